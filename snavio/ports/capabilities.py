"""Where Signer writes down which capabilities it has issued, which of them ended early, and at which version each
realm's root key is.

Every write is atomic and durable when it returns. Holds no secret: whoever reads it can make no capability. What has
expired is forgotten after a while; a root line never is.
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
    """Whose share of the ledger it takes; `~mesh` and `~operator` for those who have no tenant."""
    issued_to: str
    root: str
    root_version: int
    issued_ns: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class CapabilityEnding:
    """What is not good any more though it has not expired: one capability, or what a holder had until a time."""

    subject: str
    """An id or a holder."""
    forget_ns: int
    """When all of it has certainly expired."""
    issued_until_ms: int = 0
    """Of a holder's: those that were issued at or before; 0 for a single capability."""


@dataclass(frozen=True, slots=True)
class CapabilityAuditEntry:
    """Who did it, when and why."""

    at_ns: int
    actor: str
    reason: str
    tenant: str = MESH
    """The holder of the share that it takes: the actor's tenant."""


@dataclass(frozen=True, slots=True)
class EndingsPage:
    """What changed, by version; `version` is what the reader has after applying it."""

    epoch: int
    version: int
    capabilities: tuple[CapabilityEnding, ...]
    holders: tuple[CapabilityEnding, ...]
    lines: tuple[RootLine, ...]
    more: bool


class CapabilityLedger(Protocol):
    """See the module. Endings, lines and bars take a part of the share of whoever's they are."""

    shares: Shares
    """Endings, lines and bars by tenant."""

    async def record(self, issued: IssuedCapability) -> None:
        """Write one down, forgetting some that have expired. Saturated when a tenant, or all, have too many."""
        ...

    async def find(self, cap_id: str) -> IssuedCapability | None:
        """The capability with that id."""
        ...

    async def knows(self, *, realm: str = "", holder: str = "", now_ns: int) -> bool:
        """True if a capability of that realm or holder is alive."""
        ...

    async def living(
        self, *, now_ns: int, realm: str = "", holder: str = "", tenant: str = "", after: str = "", limit: int
    ) -> tuple[tuple[IssuedCapability, bool], ...]:
        """Capabilities that have not expired, oldest first, each with whether it was ended early; those whose realm
        begins so, of one holder, of one tenant, if given."""
        ...

    async def end_capability(self, cap_id: str, *, forget_ns: int, audit: CapabilityAuditEntry) -> int:
        """End one; idempotent. The version that has it. Saturated when its tenant has its share, or all have."""
        ...

    async def end_holder(
        self, holder: str, *, until_ms: int, forget_ns: int, bar: bool, audit: CapabilityAuditEntry
    ) -> int:
        """End what a holder had until then, and let it have no other if `bar`; the version that has it."""
        ...

    async def restore_holder(self, holder: str, *, operator: bool) -> bool:
        """Lift a bar; whether there was one. What was ended stays so. NotAllowed when an operator barred it and the
        caller is none."""
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
        """Replace a line by what `decide` makes of it, atomically; the line, and the version that has it.

        What `decide` raises comes out, and nothing is written. Saturated when there are too many lines.
        """
        ...

    async def endings_since(self, version: int, *, epoch: int, now_ns: int, limit: int) -> EndingsPage:
        """What changed after `version`; from the start for a reader of another epoch, or who is ahead."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
