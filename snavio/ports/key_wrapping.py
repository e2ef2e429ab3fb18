"""A key management service that makes data keys and unwraps those that it has made.

Only the wrapped form is stored on disk. Without the service the sealed data cannot be opened.
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
    """The wrapping key of AWS KMS, and the context that a wrapped key is bound to."""

    key: str
    """Id, ARN or `alias/…`."""
    region: str
    endpoint: str
    """An address other than the region's own; empty for the default."""
    installation: str
    """A key that was wrapped for another installation is not unwrapped."""


class KeyWrapping(Protocol):
    """Unavailable `kms-unavailable` when the service is away; StateError `kms-refused` when it refuses, with the
    reason.
    """

    async def fresh(self) -> DataKey:
        """A new key of 32 bytes."""
        ...

    async def unwrap(self, wrapped: bytes) -> bytes:
        """The key in the clear. StateError `kms-refused` for a key that was wrapped elsewhere, or for another
        installation.
        """
        ...
