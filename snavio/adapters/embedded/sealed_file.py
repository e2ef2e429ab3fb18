"""The key store's contents in one sealed file, which every write replaces as a whole.

Never writes a secret in the clear, never opens a file that was cut, changed or sealed with another key, and
never acknowledges a write before file and folder are on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from snavio.adapters.embedded.keystore_document import Contents, decode, encode
from snavio.adapters.embedded.sealing import SealingKey
from snavio.adapters.embedded.sqlite import StoreLock
from snavio.durable_files import replace_private_file
from snavio.errors import StateError, Unavailable
from snavio.host.store_worker import StoreWorker

MAGIC = b"SNAVIOKS"
FORMAT_VERSION = 2

T = TypeVar("T")


class SealedFile:
    """Owned by one process. The contents are also kept in memory, so reads cost nothing."""

    def __init__(self, path: Path, *, key: SealingKey, lock: StoreLock, worker: StoreWorker) -> None:
        self._path = path
        self._key = key
        self._lock = lock
        self._worker = worker
        self._contents: Contents | None = None

    @classmethod
    async def open(cls, path: Path, *, key: SealingKey, create: bool = False) -> Self:
        """Open the file at `path`; create an empty one if there is none and `create` is set."""
        worker = StoreWorker("key store")
        return await worker.begin(lambda: cls._open(path, key=key, create=create, worker=worker))

    @classmethod
    def _open(cls, path: Path, *, key: SealingKey, create: bool, worker: StoreWorker) -> Self:
        if not create and not path.exists():
            raise StateError(
                f"{path} does not exist; `python -m services.signer init` makes it.", reason="no-store"
            )
        lock = StoreLock(path)
        try:
            file = cls(path, key=key, lock=lock, worker=worker)
            if path.exists():
                file._load()
            else:
                file._save(Contents(store_epoch=new_epoch()))
        except BaseException:
            lock.release()
            raise
        return file

    async def close(self) -> None:
        """Finish pending writes and release the lock."""
        await self._worker.close(self._lock.release)

    async def read(self, question: Callable[[Contents], T]) -> T:
        """The result of `question` on the contents."""
        return await self._worker.run(lambda: question(self._contents or self._load()))

    async def write(self, change: Callable[[Contents], tuple[Contents, T]]) -> T:
        """Replace the contents by those of `change`, and return its answer; unchanged contents write nothing."""

        def write() -> T:
            before = self._contents or self._load()
            after, answer = change(before)
            if after is not before:
                self._save(after)
            return answer

        return await self._worker.run(write)

    # -- on the worker's thread ------------------------------------------------------------------------

    def _load(self) -> Contents:
        try:
            sealed = self._path.read_bytes()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}.") from error
        name = str(self._path)
        plain = self._key.unseal(sealed, magic=MAGIC, format_version=FORMAT_VERSION, name=name)
        self._contents = decode(plain, name=name)
        return self._contents

    def _save(self, contents: Contents) -> None:
        # Dropped first: if the write fails half-way, the file is read again. Going on with either version from memory
        # could give one version number to two different writes.
        self._contents = None
        sealed = self._key.seal(encode(contents), magic=MAGIC, format_version=FORMAT_VERSION)
        try:
            replace_private_file(self._path, sealed)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror}.") from error
        self._contents = contents


def new_epoch() -> int:
    """A random epoch, which identifies this history of the store."""
    return secrets.randbits(63) | 1
