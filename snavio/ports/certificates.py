"""Signer's ledger of issued certificates with their chains, and of identities that may have none.

Every write is atomic and durable when it returns. Holds no secret. Expired certificates are forgotten after a while;
each certificate names its own chain, so a chain never breaks. Bounded in total, per tenant and per identity; the counts
are maintained, so that no operation costs more with more entries.
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
    """The identity that requested it."""
    parent: str
    """Serial of the certificate with which it was requested; empty for the first of a chain."""
    delegate: str
    """The principal through whom it was first issued, and whose right every renewal needs; empty for none."""
    issued_ns: int
    """In Signer's order of issue, which rises also when its clock is set back."""
    not_after_ns: int
    root: str = ""
    """Serial of the first of its chain of renewals; empty in a certificate that is the first itself."""
    via: str = ""
    """Root of the principal's chain with which the chain was begun; empty for none."""
    marked: bool = True
    """True if the certificate itself carries its chain; older ones do not."""


class CertificateLedger(Protocol):
    """See the module."""

    shares: Shares
    """Stored certificates by tenant."""

    async def record(self, issued: IssuedCertificate, *, now_ns: int | None = None) -> None:
        """Store one, forgetting some that have long expired at `now_ns`, or at its time of issue.

        Saturated when the total, its tenant's or its identity's bound is reached.
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
        """The certificates stored first, valid or not; of one identity or one tenant if given."""
        ...

    async def forget(self, serials: Collection[str]) -> None:
        """Delete these, which must be expired or revoked."""
        ...

    async def ever_known(self, spiffe_id: str) -> bool:
        """True for a principal that ever had a certificate, also a forgotten one."""
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
        """Certificates that have not expired, oldest first; filtered by identity, delegate, root of the chain (or of
        the chain it was begun with), missing marks and serial prefix, if given.
        """
        ...

    async def bar(self, spiffe_id: str, *, at_ns: int, actor: str, reason: str, reserve: bool = True) -> None:
        """Refuse further certificates to an identity; idempotent. Saturated when too many are barred; the last tenth is
        reserved for callers that may use the reserve.
        """
        ...

    async def unbar(self, spiffe_id: str) -> bool:
        """Lift that; true if the identity was barred."""
        ...

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        """Those of the given identities that are barred."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
