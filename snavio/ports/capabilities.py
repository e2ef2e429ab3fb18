"""Signer's ledger of issued capabilities, of those that ended early, and of the root key version of each realm.

Every write is atomic and durable when it returns. Holds no secret: reading it does not suffice to make a capability.
Expired entries are forgotten after a while; root lines never are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from snavio.domain.capability_root import RootLine
from snavio.host.shares import MESH, Shares


@dataclass(frozen=True, slots=True)
class IssuedCapability:
    """One capability, without its signature."""

    cap_id: str
    realm: str
    operations: str
    """Separated by commas."""
    holder: str
    tenant: str
    """The tenant whose share of the ledger it counts against; `~mesh` and `~operator` for holders without a tenant."""
    issued_to: str
    root: str
    root_version: int
    issued_ns: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class CapabilityEnding:
    """An ending before the expiry: of one capability, or of all that a holder was issued until a time."""

    subject: str
    """An id or a holder."""
    forget_ns: int
    """The time at which all that it covers has expired."""
    issued_until_ms: int = 0
    """For a holder: capabilities issued at or before this; 0 for a single capability."""


@dataclass(frozen=True, slots=True)
class CapabilityAuditEntry:
    """Author, time and reason of a change."""

    at_ns: int
    actor: str
    reason: str
    tenant: str = MESH
    """The tenant whose share it counts against: the actor's."""


@dataclass(frozen=True, slots=True)
class EndingsPage:
    """Endings in order of version; `version` is the reader's version after applying them."""

    epoch: int
    version: int
    capabilities: tuple[CapabilityEnding, ...]
    holders: tuple[CapabilityEnding, ...]
    lines: tuple[RootLine, ...]
    more: bool


class CapabilityLedger(Protocol):
    """See the module. Endings, lines and bars count against their tenant's share."""

    shares: Shares
    """Endings, lines and bars by tenant."""

    async def record(self, issued: IssuedCapability) -> None:
        """Store one, forgetting some that have expired. Saturated when a tenant, or all tenants together, have too
        many.
        """
        ...

    async def find(self, cap_id: str) -> IssuedCapability | None:
        """The capability with that id."""
        ...

    async def knows(self, *, realm: str = "", holder: str = "", now_ns: int) -> bool:
        """True if a capability of that realm or holder has not expired."""
        ...

    async def living(
        self,
        *,
        now_ns: int,
        realm: str = "",
        holder: str = "",
        tenant: str = "",
        cap_id: str = "",
        after: str = "",
        limit: int,
    ) -> tuple[tuple[IssuedCapability, bool], ...]:
        """Capabilities that have not expired, oldest first, each with a flag that it was ended early; filtered by realm
        prefix, holder, tenant and id, if given.
        """
        ...

    async def end_capability(self, cap_id: str, *, forget_ns: int, audit: CapabilityAuditEntry) -> int:
        """End one; idempotent. The version that has it. Saturated when its tenant's share, or the ledger, is full."""
        ...

    async def end_holder(
        self, holder: str, *, until_ms: int, forget_ns: int, bar: bool, audit: CapabilityAuditEntry
    ) -> int:
        """End all that a holder was issued until then, and refuse new ones if `bar`; the version that has it."""
        ...

    async def restore_holder(self, holder: str, *, operator: bool) -> bool:
        """Lift a bar; true if there was one. Ended capabilities stay ended. NotAllowed when an operator barred the
        holder and the caller is not one.
        """
        ...

    async def barred(self, holders: Collection[str]) -> frozenset[str]:
        """Those of the given holders that are barred."""
        ...

    async def line(self, realm: str) -> RootLine:
        """The root keys of a realm."""
        ...

    async def update_line(
        self, realm: str, decide: Callable[[RootLine], RootLine], *, audit: CapabilityAuditEntry
    ) -> tuple[RootLine, int]:
        """Replace a line by the result of `decide`, atomically; the line, and the version that has it.

        An exception of `decide` is passed on, and nothing is written. Saturated when there are too many lines.
        """
        ...

    async def endings_since(self, version: int, *, epoch: int, now_ns: int, limit: int) -> EndingsPage:
        """Endings after `version`; all of them for a reader of another epoch, or one that is ahead."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
