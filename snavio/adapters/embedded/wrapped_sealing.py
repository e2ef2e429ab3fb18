"""The sealing key, wrapped by an external key, in a file beside the store.

Never writes the key in the clear, and never makes a new key for an existing store, which it could not open.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from pathlib import Path

import orjson

from snavio.adapters.embedded.sealing import SealingKey
from snavio.durable_files import replace_private_file
from snavio.errors import IntegrityError, StateError
from snavio.ports.key_wrapping import KeyWrapping

FORMAT = 1
MAX_BYTES = 64 << 10


async def unwrapped_sealing_key(
    path: Path, *, wrapping: KeyWrapping, store_path: Path, create: bool
) -> SealingKey:
    """The key whose wrapped form is at `path`; a new one if `create` is set and there is no store yet."""
    if await asyncio.to_thread(_missing, path, store_path, create):
        await asyncio.to_thread(_write, path, (await wrapping.fresh()).wrapped)
    # Also right after creating it: a key that cannot be unwrapped again is noticed before anything is sealed with it.
    return SealingKey(await wrapping.unwrap(await asyncio.to_thread(_read, path)))


def _missing(path: Path, store_path: Path, create: bool) -> bool:
    if path.exists():
        return False
    if store_path.exists() or not create:
        what = f"{store_path} exists, but its" if store_path.exists() else "The"
        raise StateError(f"{what} wrapped sealing key {path} does not exist.", reason="no-sealing-key")
    return True


def _write(path: Path, wrapped: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private_file(path, orjson.dumps({"format": FORMAT, "wrapped": b64encode(wrapped).decode()}))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            document = orjson.loads(file.read(MAX_BYTES))
        if document["format"] != FORMAT:
            raise StateError(f"{path} was written by a newer Snavio.", reason="newer-store")
        return b64decode(document["wrapped"], validate=True)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}.", reason="no-sealing-key") from None
    except (ValueError, TypeError, KeyError):
        raise IntegrityError(f"{path} is not a wrapped sealing key.") from None
