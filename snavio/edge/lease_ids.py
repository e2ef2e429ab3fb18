"""Ids of leases as workers get them: topic, lease and a seal, so that no table remembers them.

Never settles by what an id says alone: it counts for the topic of the route that it is used at, and the mailbox decides
whether the lease stands. The seal keeps a worker from naming leases that it was never given.
"""

from __future__ import annotations

import base64
import hmac
import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from snavio.edge.topics import HASH_BYTES

LEASE_PREFIX: Final = "lease_"
KEY_BYTES: Final = 32
_SEAL_BYTES: Final = 12
_LEASE: Final = struct.Struct(f">{HASH_BYTES}sQQI")
_CHARACTERS: Final = (_LEASE.size + _SEAL_BYTES + 2) // 3 * 4
_PADDING: Final = -(_LEASE.size + _SEAL_BYTES) % 3


class LeaseName(NamedTuple):
    """One delivery of one message, as the mailbox names it."""

    boot_epoch: int
    msg_id: int
    attempt: int


class LeaseIds:
    """Makes and reads ids under one key. Edges that share it settle each other's leases."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._key = key

    def write(self, topic_hash: bytes, lease: LeaseName) -> str:
        """The id of a lease of a topic."""
        raw = _LEASE.pack(topic_hash, *lease)
        text = base64.urlsafe_b64encode(raw + self._seal(raw)).decode()
        return LEASE_PREFIX + text.rstrip("=")

    def read(self, topic_hash: bytes, text: str) -> LeaseName | None:
        """The lease of an id; None when it is of another topic, of another key, or no id."""
        rest = text.removeprefix(LEASE_PREFIX)
        if rest == text or len(rest) != _CHARACTERS - _PADDING or not rest.isascii():
            return None
        try:
            raw = base64.urlsafe_b64decode(rest + "=" * _PADDING)
        except ValueError:
            return None
        body, seal = raw[: _LEASE.size], raw[_LEASE.size :]
        if not hmac.compare_digest(seal, self._seal(body)):
            return None
        found_hash, *lease = _LEASE.unpack(body)
        found = LeaseName(*lease)
        # The last character has bits to spare: another spelling of the same id would be a second name for it.
        return found if found_hash == topic_hash and self.write(topic_hash, found) == text else None

    def _seal(self, raw: bytes) -> bytes:
        return blake2b(raw, digest_size=_SEAL_BYTES, key=self._key, person=b"snavio-lease").digest()
