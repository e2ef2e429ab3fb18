"""The endpoints of a plan: which path leads to which topic, and which tokens open it.

Never changed once it is made: a request that began under one table ends under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from snavio.edge.plan import EdgePlan, PullListener
from snavio.edge.references import SecretReference
from snavio.edge.topics import PULL_TARGET, RouteTopic, route_topic

MILLISECOND: Final = 1_000_000
LEAST_LEASE_MS: Final = 250
MOST_LEASE_MS: Final = 43_200_000
"""The lease that a mailbox grants unless it is told otherwise."""
MOST_WAIT_NS: Final = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class PullEndpoint:
    """One route that workers fetch from."""

    path: str
    """As it is called, with the listener's prefix."""
    route: str
    topic: RouteTopic
    tokens: tuple[SecretReference, ...] = field(repr=False)
    """Any of these opens it."""


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Bounds and defaults of requests."""

    max_batch: int = 100
    max_lease_batch: int = 100
    default_lease_ms: int = 30_000
    max_lease_ms: int = MOST_LEASE_MS
    default_wait_ns: int = 0
    max_wait_ns: int = MOST_WAIT_NS
    keepalive_ns: int = 15_000_000_000
    max_connection_ns: int | None = None

    @classmethod
    def of(cls, listener: PullListener) -> PullLimits:
        """As the file has them."""
        most = listener.max_lease_ttl_ns
        longest = (
            MOST_LEASE_MS if most is None else min(MOST_LEASE_MS, max(LEAST_LEASE_MS, most // MILLISECOND))
        )
        return cls(
            max_batch=listener.max_batch,
            max_lease_batch=listener.max_lease_batch,
            default_lease_ms=min(longest, max(LEAST_LEASE_MS, listener.default_lease_ttl_ns // MILLISECOND)),
            max_lease_ms=longest,
            default_wait_ns=listener.default_max_wait_ns,
            max_wait_ns=min(MOST_WAIT_NS, listener.max_wait_ns or MOST_WAIT_NS),
            keepalive_ns=listener.sse_keepalive_ns,
            max_connection_ns=listener.sse_max_connection_ns,
        )

    def lease_ms(self, asked_ns: int | None) -> int:
        """Duration of a lease that was asked for."""
        if asked_ns is None:
            return self.default_lease_ms
        return min(self.max_lease_ms, max(LEAST_LEASE_MS, asked_ns // MILLISECOND))


@dataclass(frozen=True, slots=True)
class PullTable:
    """Every endpoint by its path."""

    endpoints: Mapping[str, PullEndpoint] = field(default_factory=dict)
    limits: PullLimits = field(default_factory=PullLimits)
    tokens: tuple[SecretReference, ...] = field(default=(), repr=False)
    """The listener's own: they open endpoints without tokens of their own, and what is not there."""

    @classmethod
    def of(cls, plan: EdgePlan) -> PullTable:
        """The endpoints of a plan."""
        listener = plan.pull_api
        if listener is None:
            return cls()
        found: dict[str, PullEndpoint] = {}
        for route in plan.routes:
            if route.pull is not None:
                path = joined(listener.prefix, route.pull.path)
                topic = route_topic(plan.tenant, route.path, PULL_TARGET)
                tokens = route.pull.tokens or listener.tokens
                found[path] = PullEndpoint(path, route.path, topic, tokens)
        return cls(found, PullLimits.of(listener), listener.tokens)


def joined(prefix: str, path: str) -> str:
    """Both, without doubled or trailing slashes."""
    return "/" + "/".join(part for part in f"{prefix}/{path}".split("/") if part)
