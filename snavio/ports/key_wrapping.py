"""Somebody else who keeps the key to our key: makes data keys, and opens those that it has made.

Only the wrapped form is for the disk. Without the keeper, what was sealed cannot be opened by anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DataKey:
    """A fresh key, in the clear and wrapped."""

    key: bytes = field(repr=False)
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class KmsKey:
    """Which key of which AWS KMS wraps, and what a wrapped key is bound to."""

    key: str
    """Id, ARN or `alias/…`."""
    region: str
    endpoint: str
    """Another address than the region's own; empty for that."""
    installation: str
    """A key that was wrapped for another installation is not opened."""


class KeyWrapping(Protocol):
    """Unavailable `kms-unavailable` when the keeper is away; StateError `kms-refused` when it refuses, with why."""

    async def fresh(self) -> DataKey:
        """A new key of 32 bytes."""
        ...

    async def unwrap(self, wrapped: bytes) -> bytes:
        """The key in the clear. StateError `kms-refused` for what was not wrapped here, or for somebody else."""
        ...
