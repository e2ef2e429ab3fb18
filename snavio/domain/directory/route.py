"""The route of a command name: its queue, limit, fairness, and the age that an ACL entry may have.

Never takes an address from a request: a free topic would let a tenant write into another's queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, Final

from snavio.domain.directory.rules import require, require_command, require_number, require_target
from snavio.errors import BadRequest

DEFAULT_DRAIN_SECONDS: Final = 300
MAX_DRAIN_SECONDS: Final = 14 * 24 * 3600
DAY_SECONDS: Final = 24 * 3600
MAX_COUNT: Final = 1_000_000_000
DLQ_PREFIX: Final = "dlq/"
MAX_LEASES: Final = 64


class Profile(IntEnum):
    """The age that an ACL entry may have when it is used; same numbers as the wire's."""

    CRITICAL = 1
    MODERATE = 2
    LOW = 3
    SYNC = 4


class DedupeMode(IntEnum):
    """Strict or best-effort delivery of one id; same numbers as the wire's."""

    NONE = 1
    STRICT = 2


class DispatchMode(IntEnum):
    """Permission of Fast to dispatch from its cache; same numbers as the wire's."""

    ADAPTIVE = 1
    COLD_ONLY = 2
    """Every command goes by Slow."""


class QueueKind(IntEnum):
    """The kind of target queue; same numbers as the wire's."""

    MAILBOX = 1
    REDIS = 2
    SQS = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """The commands that a route takes from all sources together."""

    max: int
    """Commands per aligned interval."""
    interval_seconds: int
    burst: int = 0
    """Most commands in any one second; 0 for no bound but `max`."""
    cooldown_seconds: int = 0
    """Pause after the limit was reached."""
    shadow: bool = False
    """Counts and reports without refusing."""
    leases: int = 0
    """Instances that may prefetch permits within one second; 0 for the installation's number."""
    by_profile: bool = False
    """It is the one that the target has for the route's profile; never taken from a request."""

    def __post_init__(self) -> None:
        require_number(self.max, "route.limit.max", 1, MAX_COUNT)
        require_number(self.interval_seconds, "route.limit.interval_seconds", 1, DAY_SECONDS)
        # A burst over the maximum would promise what the interval refuses.
        require_number(self.burst, "route.limit.burst", 0, self.max)
        require_number(self.cooldown_seconds, "route.limit.cooldown_seconds", 0, DAY_SECONDS)
        require_number(self.leases, "route.limit.leases", 0, MAX_LEASES)


@dataclass(frozen=True, slots=True)
class Fairness:
    """Thresholds at which a source that dominates a route's warm path is banned from it for a while."""

    window_seconds: int = 30
    dominant_share: float = 0.8
    competing_share: float = 0.1
    competitors: int = 2
    minimum_volume: int = 50
    ban_seconds: int = 30

    def __post_init__(self) -> None:
        require_number(self.window_seconds, "route.fairness.window_seconds", 1, 3600)
        # Below a half two sources could be dominant at once. NaN fails every comparison, so it fails here.
        share = self.dominant_share
        require(0.5 <= share <= 1.0, "route.fairness.dominant_share", "from 0.5 to 1")
        require(0.0 < self.competing_share <= 1.0, "route.fairness.competing_share", "over 0 and at most 1")
        require_number(self.competitors, "route.fairness.competitors", 1, 10_000)
        require_number(self.minimum_volume, "route.fairness.minimum_volume", 1, MAX_COUNT)
        require_number(self.ban_seconds, "route.fairness.ban_seconds", 1, 3600)


@dataclass(frozen=True, slots=True)
class Route:
    """The route of one command name."""

    kind: ClassVar[str] = "route"
    target: str
    name: str
    queue_kind: QueueKind = QueueKind.MAILBOX
    profile: Profile = Profile.LOW
    dedupe_mode: DedupeMode = DedupeMode.NONE
    expected_drain_seconds: int = DEFAULT_DRAIN_SECONDS
    topic: str = ""
    """Derived from owner and target by `addressed_to`, never taken from a request."""
    dlq: str = ""
    """Queue of undeliverable commands; for a mailbox derived from the topic."""
    limit: Limit | None = None
    fairness: Fairness = field(default_factory=Fairness)
    ttl_seconds: int = 0
    """Life of an ephemeral route, counted from its last write; 0 lasts."""
    expires_unix_ns: int = 0
    """Set by `beginning`, never taken from a request; 0 lasts."""
    dispatch_mode: DispatchMode = DispatchMode.ADAPTIVE

    def __post_init__(self) -> None:
        require_target(self.target, "route.target")
        require_command(self.name, "route.name")
        require_number(self.expected_drain_seconds, "route.expected_drain_seconds", 1, MAX_DRAIN_SECONDS)
        require_number(self.ttl_seconds, "route.ttl_seconds", 0, 365 * DAY_SECONDS)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target

    def addressed_to(self, owner: str) -> Route:
        """The route with its owner's topic and DLQ; any other DLQ is refused."""
        topic = f"{owner}/{self.target}"
        require(self.dlq in ("", DLQ_PREFIX + topic), "route.dlq", f"empty or {DLQ_PREFIX}<topic>")
        return replace(self, topic=topic, dlq=DLQ_PREFIX + topic)

    def beginning(self, now_unix_ns: int) -> Route:
        """The route with the end that its TTL sets, counted from now."""
        end = now_unix_ns + self.ttl_seconds * 1_000_000_000 if self.ttl_seconds else 0
        return replace(self, expires_unix_ns=end)

    def limited_by(self, limit: ProfileLimit | None) -> Route:
        """The route under the limit of its profile, unless it has one of its own."""
        if self.limit is not None and not self.limit.by_profile:
            return self
        return replace(self, limit=None if limit is None else replace(limit.limit, by_profile=True))

    def require_available(self, kinds: frozenset[QueueKind]) -> None:
        """BadRequest for a kind of queue that this installation does not have: its commands could go nowhere."""
        if self.queue_kind not in kinds:
            available = ", ".join(sorted(kind.name.lower() for kind in kinds))
            raise BadRequest(
                f"route.queue_kind: this installation has no {self.queue_kind.name.lower()} queues "
                f"(available: {available}).",
                reason="queue-kind-not-available",
            )


@dataclass(frozen=True, slots=True)
class ProfileLimit:
    """The limit of each route of a target that has this profile and no limit of its own."""

    kind: ClassVar[str] = "profile_limit"
    target: str
    profile: Profile
    limit: Limit

    def __post_init__(self) -> None:
        require_target(self.target, "profile_limit.target")
        # One that says of itself that it is derived would never be found different from what it writes.
        require(not self.limit.by_profile, "profile_limit.limit.by_profile", "false")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.target, self.profile.name.lower())

    @property
    def parent(self) -> str:
        return self.target
