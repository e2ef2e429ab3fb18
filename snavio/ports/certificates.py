"""Where Signer writes down which certificates it has issued, from which others they came, and who may have none.

Every write is atomic and durable when it returns. Holds no secret. What has expired is forgotten after a while; a
certificate whose parent is forgotten is then the child of its parent's parent, so a chain never tears.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """One certificate."""

    serial: str
    spiffe_id: str
    issued_to: str
    """Who asked for it."""
    parent: str
    """Serial of the certificate with which it was asked for; empty for the first of a chain."""
    delegate: str
    """The principal through whom it was first had, and whose right every renewal needs; empty for none."""
    issued_ns: int
    not_after_ns: int


class CertificateLedger(Protocol):
    """See the module."""

    async def record(self, issued: IssuedCertificate) -> None:
        """Write one down, forgetting some that have long expired. Saturated when there are too many."""
        ...

    async def find(self, serial: str) -> IssuedCertificate | None:
        """The certificate with that serial."""
        ...

    async def descendants(self, serials: Collection[str], *, now_ns: int) -> tuple[str, ...]:
        """Serials of living certificates that came from any of these, at whatever remove; not these themselves."""
        ...

    async def living(
        self, *, now_ns: int, spiffe_id: str = "", delegate: str = "", after: str = "", limit: int
    ) -> tuple[IssuedCertificate, ...]:
        """Certificates that have not expired, oldest first; of one identity or through one delegate if given."""
        ...

    async def bar(self, spiffe_id: str, *, at_ns: int, actor: str, reason: str) -> None:
        """Let an identity have no further certificate; idempotent. Saturated when too many are barred."""
        ...

    async def unbar(self, spiffe_id: str) -> bool:
        """Lift that; whether the identity was barred."""
        ...

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        """Those of the given identities that are barred."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
