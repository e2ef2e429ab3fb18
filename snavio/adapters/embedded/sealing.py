"""Seals bytes at rest: AES-256-GCM under a key that is stored apart from them.

Never tells more about a file it cannot open than which of the known faults it has.

    magic 8 | format version 2, big endian | key id 16 | nonce 12 | ciphertext and tag

The header is authenticated with the contents, so a file cannot be passed off as another format or key.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from snavio.durable_files import replace_private_file
from snavio.errors import IntegrityError, StateError

KEY_BYTES = 32
SEALING_KEY_VARIABLE = "SNAVIO_SEALING_KEY"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_HEADER_BYTES = 8 + 2 + 16 + _NONCE_BYTES


class SealingKey:
    """The key that seals; shows only its id."""

    __slots__ = ("_cipher", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise StateError(f"A sealing key has {KEY_BYTES} bytes.", reason="bad-sealing-key")
        self.key_id = hashlib.sha256(b"snavio sealing key id\n" + key).digest()[:16]
        self._cipher = AESGCM(key)

    def __repr__(self) -> str:
        return f"SealingKey({self.key_id.hex()})"

    def seal(self, plain: bytes, *, magic: bytes, format_version: int) -> bytes:
        """`plain` with its header, as it goes to disk."""
        # A random nonce per write is safe up to 2^32 writes, far more than a file changed by people sees.
        nonce = secrets.token_bytes(_NONCE_BYTES)
        header = magic + format_version.to_bytes(2, "big") + self.key_id + nonce
        return header + self._cipher.encrypt(nonce, plain, header)

    def unseal(self, sealed: bytes, *, magic: bytes, format_version: int, name: str) -> bytes:
        """The plain bytes. StateError when they were sealed with another key or format, IntegrityError when they are
        damaged.
        """
        header = sealed[:_HEADER_BYTES]
        if len(sealed) < _HEADER_BYTES + _TAG_BYTES:
            raise IntegrityError(f"{name} is cut short.")
        if header[:8] != magic:
            raise IntegrityError(f"{name} does not begin as it should.")
        found = int.from_bytes(header[8:10], "big")
        if found > format_version:
            raise StateError(
                f"{name} was written by a newer Snavio: format {found}, we know {format_version}.",
                reason="newer-store",
            )
        if header[10:26] != self.key_id:
            raise StateError(f"{name} was sealed with another sealing key.", reason="wrong-sealing-key")
        try:
            return self._cipher.decrypt(header[26:], sealed[_HEADER_BYTES:], header)
        except InvalidTag:
            raise IntegrityError(f"{name} was changed or cut after it was written.") from None


def read_sealing_key(path: Path, *, environment: Mapping[str, str] = os.environ) -> SealingKey:
    """The key from SNAVIO_SEALING_KEY (hex) or else from the file, which must be readable by its owner alone."""
    text = environment.get(SEALING_KEY_VARIABLE)
    if text is not None:
        try:
            return SealingKey(bytes.fromhex(text))
        except ValueError:
            raise StateError(f"{SEALING_KEY_VARIABLE} is not hex.", reason="bad-sealing-key") from None
    try:
        mode = path.stat().st_mode
        key = path.read_bytes()
    except FileNotFoundError:
        raise StateError(
            f"{path} does not exist; `python -m services.signer init` makes it.", reason="no-sealing-key"
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StateError(f"{path} can be read by others; its mode must be 0600.", reason="open-sealing-key")
    return SealingKey(key)


def make_sealing_key(path: Path, *, store_path: Path) -> SealingKey:
    """The existing key, or a new one if the store does not exist yet."""
    if SEALING_KEY_VARIABLE in os.environ or path.exists():
        return read_sealing_key(path)
    if store_path.exists():
        # A fresh key would only hide that the right one is missing.
        raise StateError(
            f"{store_path} exists, but its sealing key {path} does not.", reason="no-sealing-key"
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private_file(path, os.urandom(KEY_BYTES))
    return read_sealing_key(path)
