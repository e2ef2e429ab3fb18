"""Shares of one bound: what is bounded for all is bounded for each tenant under it, with a reserve for the mesh.

The one mechanism behind every bound that tenants fill: calls, bytes, streams, topics, certificates. Never lets one
tenant take what another needs, and never lets all tenants together take what the mesh and its operators need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from snavio.errors import Saturated

MESH: Final = ""
"""Holder of what mesh services, operators and jobs use: their identities have no tenant."""

TENANT_PERCENT: Final = 25.0
RESERVE_PERCENT: Final = 10.0

HOLDER: Final[ContextVar[str]] = ContextVar("holder", default=MESH)
"""Tenant of the call that the current task serves, or the mesh."""

BOUNDS: Final[Mapping[str, str]] = {
    "calls": "calls being served",
    "bytes": "bytes in flight",
    "streams": "open streams",
    "side_streams": "open streams of health and reflection",
    "nonces": "remembered commands",
    "waiters": "waiting receives",
    "topics": "topics",
    "spans": "message ranges in memory",
    "store_bytes": "stored bytes",
    "certificates": "living certificates",
    "revocations": "certificate revocations",
    "capability_revocations": "capability revocations",
    "connections": "open HTTPS connections",
    "tail_bytes": "bytes of recent events",
    "lookups": "name look-ups under way",
    "pull_requests": "waiting workers of the edge",
    "examinations": "examinations of queues",
}
"""Every bound that is shared, in words that complete "too many …"."""


@dataclass(frozen=True, slots=True)
class ShareLimit:
    """One bound: `total` for all, `per_tenant` for each tenant, `reserve` of the total for the mesh alone."""

    total: int
    per_tenant: int
    reserve: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.reserve < self.total or not 0 < self.per_tenant <= self.total:
            raise ValueError(f"{self} leaves nothing to somebody")

    @classmethod
    def of(cls, total: int, *, tenant_percent: float, reserve_percent: float) -> ShareLimit:
        """Parts of `total`; a tenant always has at least one."""
        reserve = min(int(total * reserve_percent / 100), total - 1)
        return cls(total, max(1, min(total - reserve, int(total * tenant_percent / 100))), reserve)


def default_share(_bound: str, total: int) -> ShareLimit:
    """The division of a bound without a configured one."""
    return ShareLimit.of(total, tenant_percent=TENANT_PERCENT, reserve_percent=RESERVE_PERCENT)


class Shares:
    """Counts how much of one bound each tenant holds. Lives on one thread.

    Remembers only tenants that hold something, so the table is bounded by the total itself.
    """

    __slots__ = ("_held", "_retry_after_ms", "limit", "name", "refused", "used")

    def __init__(self, name: str, limit: ShareLimit, *, retry_after_ms: int = 1000) -> None:
        if name not in BOUNDS:
            raise ValueError(f"{name} is not in BOUNDS")
        self.name = name
        self.limit = limit
        self.used = 0
        """Held by all together."""
        self.refused = 0
        """Refusals since the start."""
        self._held: dict[str, int] = {}
        self._retry_after_ms = retry_after_ms

    def room(self, tenant: str, amount: int = 1) -> bool:
        """True if `tenant` can have `amount` more; `MESH` may use the reserve."""
        limit = self.limit
        if tenant == MESH:
            return self.used + amount <= limit.total
        return (
            self._held.get(tenant, 0) + amount <= limit.per_tenant
            and self.used + amount <= limit.total - limit.reserve
        )

    def take(self, tenant: str, amount: int = 1) -> None:
        """Hold `amount` more; Saturated, with nothing taken, where the share or the whole does not have it."""
        if not self.room(tenant, amount):
            self.refused += 1
            raise self.saturated(tenant, amount)
        self._held[tenant] = self._held.get(tenant, 0) + amount
        self.used += amount

    def give_back(self, tenant: str, amount: int = 1) -> None:
        """Hold `amount` less; never less than nothing."""
        held = self._held.get(tenant, 0)
        amount = min(amount, held)
        self.used -= amount
        if held > amount:
            self._held[tenant] = held - amount
        else:
            self._held.pop(tenant, None)

    def found(self, tenant: str, amount: int) -> None:
        """Count what a store holds already: it is there, whatever the limits say now."""
        self.used += amount - self._held.pop(tenant, 0)
        if amount:
            self._held[tenant] = amount

    @contextmanager
    def holding(self, tenant: str, amount: int = 1) -> Iterator[None]:
        """Hold it for as long as the block runs."""
        self.take(tenant, amount)
        try:
            yield
        finally:
            self.give_back(tenant, amount)

    @contextmanager
    def taking(self, tenant: str, amount: int = 1) -> Iterator[None]:
        """Hold it from here on, unless the block fails; for what a store keeps until it is given back."""
        self.take(tenant, amount)
        try:
            yield
        except BaseException:
            self.give_back(tenant, amount)
            raise

    @property
    def tenants(self) -> int:
        """The number of holders, the mesh among them."""
        return len(self._held)

    def held(self, tenant: str) -> int:
        """The amount that `tenant` holds."""
        return self._held.get(tenant, 0)

    def holders(self) -> Mapping[str, int]:
        """Amounts by holder."""
        return dict(self._held)

    def saturated(self, tenant: str, amount: int = 1) -> Saturated:
        """The refusal; its sentence says whether the share of the tenant or the whole bound is full."""
        what = BOUNDS[self.name]
        if tenant != MESH and self.held(tenant) + amount > self.limit.per_tenant:
            sentence = f"{tenant} has its share of {what}: {self.held(tenant)} of {self.limit.per_tenant}."
            return Saturated(sentence, retry_after_ms=self._retry_after_ms, reason="tenant-share")
        sentence = f"Too many {what} at this service: {self.used} of {self.limit.total}."
        return Saturated(sentence, retry_after_ms=self._retry_after_ms)
