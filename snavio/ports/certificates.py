"""Where Signer writes down which certificates it has issued, of which chain each is, and who may have none.

Every write is atomic and durable when it returns. Holds no secret. What has expired is forgotten after a while; each
certificate says itself which chain it belongs to, so a chain never tears. Bounded for all, for each tenant and for each
identity; the counts are kept, so that none costs more when there are more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from snavio.host.shares import Shares


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
    """In Signer's order of issue, which rises also when its clock is set back."""
    not_after_ns: int
    root: str = ""
    """Serial of the first of its chain of renewals; empty in a certificate that is the first itself."""
    via: str = ""
    """Root of the principal's chain with which the chain was begun; empty for none."""
    marked: bool = True
    """True if the certificate itself carries this; those of before do not."""


class CertificateLedger(Protocol):
    """See the module."""

    shares: Shares
    """Certificates written down by tenant."""

    async def record(self, issued: IssuedCertificate, *, now_ns: int | None = None) -> None:
        """Write one down, forgetting some that have long expired at `now_ns`, or at its time of issue.

        Saturated when there are too many, of all, of its tenant or of its identity.
        """
        ...

    async def find(self, serial: str) -> IssuedCertificate | None:
        """The certificate with that serial."""
        ...

    async def latest_ns(self) -> int:
        """The latest time of issue; 0 when there is none."""
        ...

    async def oldest(
        self, *, spiffe_id: str = "", tenant: str = "", limit: int
    ) -> tuple[IssuedCertificate, ...]:
        """Those that were written down first, dead or alive; of one identity or one tenant if given."""
        ...

    async def forget(self, serials: Collection[str]) -> None:
        """Let go of these, which must be dead."""
        ...

    async def ever_known(self, spiffe_id: str) -> bool:
        """True for a principal that ever had a certificate, also one that is forgotten."""
        ...

    async def living(
        self,
        *,
        now_ns: int,
        spiffe_id: str = "",
        delegate: str = "",
        chain: str = "",
        unmarked: bool = False,
        prefix: str = "",
        after: str = "",
        limit: int,
    ) -> tuple[IssuedCertificate, ...]:
        """Certificates that have not expired, oldest first; of one identity, through one delegate, of the chain with
        that root or begun with it, without marks, with a serial that begins so, if given."""
        ...

    async def bar(self, spiffe_id: str, *, at_ns: int, actor: str, reason: str, reserve: bool = True) -> None:
        """Let an identity have no further certificate; idempotent. Saturated when too many are barred; the last
        tenth is for those who may use the reserve."""
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
