"""The sealed part of a snapshot: all key sets, for Shield alone, in the same archive that others may read.

Never opens what was sealed with another key, and never tells more of a part that it cannot open than that.

    magic 8 | format 2 | zero 2 | rows 4 | version 8 | epoch 8 | key id 16 | nonce 12 | ciphertext and tag

Little endian; AES-256-GCM, with the header authenticated: a part cannot be passed off as another version of itself.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused

MAGIC: Final = b"SNAVSEAL"
FORMAT: Final = 1
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEADER: Final = struct.Struct(f"<8sHHIQQ16s{_NONCE_BYTES}s")


@dataclass(frozen=True, slots=True)
class SealedHeader:
    """The header of a sealed part; trustworthy only once the part has been opened."""

    rows: int
    version: int
    epoch: int
    key_id: bytes


def key_id_of(key: bytes) -> bytes:
    """An id of the key that does not disclose it."""
    return hashlib.sha256(b"snavio snapshot key id\n" + key).digest()[:16]


def read_header(part: bytes) -> SealedHeader:
    """ValueError for anything but a sealed part."""
    if len(part) < _HEADER.size + _TAG_BYTES:
        raise ValueError("no sealed part is that short")
    magic, form, zero, rows, version, epoch, key_id, _ = _HEADER.unpack_from(part)
    if magic != MAGIC:
        raise ValueError("no sealed part begins like this")
    if form != FORMAT or zero:
        raise ValueError("the sealed part is of a format that this program does not know")
    return SealedHeader(rows, version, epoch, key_id)


def seal(plain: bytes, *, key: bytes, rows: int, version: int, epoch: int) -> bytes:
    """A sealed part."""
    # Random: one key seals a part a minute for a month, far below 2^32.
    nonce = secrets.token_bytes(_NONCE_BYTES)
    header = _HEADER.pack(MAGIC, FORMAT, 0, rows, version, epoch, key_id_of(key), nonce)
    return header + AESGCM(key).encrypt(nonce, plain, header)


def unseal(part: bytes, *, key: bytes) -> bytes:
    """The plain bytes. SnapshotRefused when the key is another, ValueError when the part was changed."""
    if read_header(part).key_id != key_id_of(key):
        raise SnapshotRefused(
            RefusalReason.CANNOT_OPEN, "The key sets were sealed with another key than we have."
        )
    header = part[: _HEADER.size]
    try:
        return AESGCM(key).decrypt(header[-_NONCE_BYTES:], part[_HEADER.size :], header)
    except InvalidTag:
        raise ValueError("the sealed part was changed") from None
