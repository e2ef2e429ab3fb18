"""What Registry keeps: tenants, services, targets, routes, ACL entries, suspensions; and who may write them.

Values are valid once built: BadRequest names the field and the rule that it breaks. Pure; denies by default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from snavio.domain.identity import Identity, Kind, valid_name
from snavio.errors import BadRequest, NotAllowed

DEFAULT_DRAIN_SECONDS = 300
MAX_DRAIN_SECONDS = 14 * 24 * 3600
MAX_REASON_LENGTH = 256

_TARGET = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_NAME_RULE = "lower-case letters, digits and inner hyphens, at most 63"


class Profile(IntEnum):
    """How old an ACL entry may be when it is used; same numbers as the wire's."""

    CRITICAL = 1
    MODERATE = 2
    LOW = 3
    SYNC = 4


class DedupeMode(IntEnum):
    """Whether a route delivers an id once; same numbers as the wire's."""

    NONE = 1
    STRICT = 2


class QueueKind(IntEnum):
    """What stands behind a route; same numbers as the wire's."""

    MAILBOX = 1


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant."""

    kind: ClassVar[str] = "tenant"
    tenant: str

    def __post_init__(self) -> None:
        _require(valid_name(self.tenant), "tenant", _NAME_RULE)

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it one of a kind."""
        return (self.tenant,)

    @property
    def parent(self) -> str:
        """What bounds on its number count by."""
        return ""


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a tenant."""

    kind: ClassVar[str] = "service"
    tenant: str
    service: str

    def __post_init__(self) -> None:
        _require(valid_name(self.tenant), "service.tenant", _NAME_RULE)
        _require(valid_name(self.service), "service.service", _NAME_RULE)

    @property
    def source(self) -> str:
        """What its commands come from."""
        return f"{self.tenant}/{self.service}"

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.service)

    @property
    def parent(self) -> str:
        return self.tenant


@dataclass(frozen=True, slots=True)
class Target:
    """A target's name and the tenant that owns it."""

    kind: ClassVar[str] = "target"
    target: str
    tenant: str

    def __post_init__(self) -> None:
        _require_target(self.target, "target.target")
        _require(valid_name(self.tenant), "target.tenant", _NAME_RULE)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def parent(self) -> str:
        return self.tenant


@dataclass(frozen=True, slots=True)
class Route:
    """Where commands of one name go."""

    kind: ClassVar[str] = "route"
    target: str
    name: str
    queue_kind: QueueKind = QueueKind.MAILBOX
    profile: Profile = Profile.LOW
    dedupe_mode: DedupeMode = DedupeMode.NONE
    expected_drain_seconds: int = DEFAULT_DRAIN_SECONDS
    topic: str = ""
    """Derived from owner and target by `addressed_to`, never taken from a request."""

    def __post_init__(self) -> None:
        _require_target(self.target, "route.target")
        _require_command(self.name, "route.name")
        _require(
            1 <= self.expected_drain_seconds <= MAX_DRAIN_SECONDS,
            "route.expected_drain_seconds",
            f"at most {MAX_DRAIN_SECONDS}",
        )
        if self.dedupe_mode is DedupeMode.STRICT:
            # Refused rather than kept: a route that says "once" and delivers twice is a broken promise.
            raise BadRequest(
                "route.dedupe_mode: strict delivery is not available yet.", reason="strict-not-available"
            )

    @property
    def key(self) -> tuple[str, ...]:
        return (self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target

    def addressed_to(self, owner: str) -> Route:
        """With the owner's topic; a free topic would let a tenant write into another's queue."""
        return replace(self, topic=f"{owner}/{self.target}")


@dataclass(frozen=True, slots=True)
class AclEntry:
    """The right of a source to send one command to one target."""

    kind: ClassVar[str] = "acl"
    source: str
    target: str
    name: str

    def __post_init__(self) -> None:
        require_source(self.source, "acl.source")
        _require_target(self.target, "acl.target")
        _require_command(self.name, "acl.name")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source, self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target


@dataclass(frozen=True, slots=True)
class Suspension:
    """A source that Shield refuses."""

    kind: ClassVar[str] = "suspension"
    source: str
    reason: str = ""

    def __post_init__(self) -> None:
        require_source(self.source, "suspension.source")
        _require(
            len(self.reason) <= MAX_REASON_LENGTH and self.reason.isprintable(),
            "suspension.reason",
            f"at most {MAX_REASON_LENGTH} printable characters",
        )

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def parent(self) -> str:
        return ""


Value: TypeAlias = Tenant | Service | Target | Route | AclEntry | Suspension
V = TypeVar("V", bound=Value)
KINDS: dict[str, type[Value]] = {
    kind.kind: kind for kind in (Tenant, Service, Target, Route, AclEntry, Suspension)
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A write that was decided and not yet made."""

    value: Value
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the changelog."""

    version: int
    at_ns: int
    actor: str
    value: Value
    deleted: bool


class View(Protocol):
    """The directory at one moment."""

    def find(self, kind: type[V], *key: str) -> V | None:
        """The value with that key."""
        ...

    def count(self, kind: type[Value], parent: str) -> int:
        """How many values of a kind stand under `parent`."""
        ...


def require_operator(actor: Identity) -> None:
    """Only operators create tenants and suspend sources."""
    if actor.kind is not Kind.OPERATOR:
        raise NotAllowed(f"{actor} is not an operator.")


def require_tenant(actor: Identity, tenant: str) -> None:
    """Only a tenant's own principals, or an operator, write what belongs to the tenant.

    A service may not: whoever steals a producer's certificate must not be able to widen its rights.
    """
    own = actor.kind is Kind.PRINCIPAL and actor.tenant == tenant
    if not own and actor.kind is not Kind.OPERATOR:
        raise NotAllowed(f"{actor} may not write what belongs to tenant {tenant}.", reason="not-owner")


def require_source(source: str, where: str) -> Service:
    """The service behind `<tenant>/<service>`."""
    tenant, slash, service = source.partition("/")
    _require(
        bool(slash) and valid_name(tenant) and valid_name(service),
        where,
        f"<tenant>/<service>, each of {_NAME_RULE}",
    )
    return Service(tenant, service)


def _require_target(target: str, where: str) -> None:
    _require(
        _TARGET.fullmatch(target) is not None,
        where,
        "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128",
    )


def _require_command(name: str, where: str) -> None:
    _require(
        _COMMAND_NAME.fullmatch(name) is not None,
        where,
        "letters, digits, '.', '_', ':' and '-', beginning with a letter or digit, at most 128",
    )


def _require(holds: bool, where: str, rule: str) -> None:
    # The value itself is left out: it is whatever a stranger sent, of any length.
    if not holds:
        raise BadRequest(f"{where}: must be {rule}.", reason="bad-field")
