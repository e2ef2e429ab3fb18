"""ACL entries, which permit a source to send a command, and access requests, by which producers ask for one.

Never widens by itself: a request gives no right until the target's owner has granted it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar, Final

from snavio.domain.directory.route import DAY_SECONDS, Profile
from snavio.domain.directory.rules import (
    require,
    require_command,
    require_number,
    require_target,
    require_text,
    split_source,
)

REQUEST_LIFE_NS: Final = 30 * 24 * 3600 * 1_000_000_000
"""Life of an access request, answered or not; without an end, old ones would fill the tenant's share."""


@dataclass(frozen=True, slots=True)
class AclEntry:
    """The right of a source to send one command to one target."""

    kind: ClassVar[str] = "acl"
    source: str
    target: str
    name: str
    profile: Profile | None = None
    """In place of its route's, stricter or looser; None for the route's."""
    ttl_seconds: int = 0
    """Life of the right, counted from its last grant; 0 lasts."""
    expires_unix_ns: int = 0
    """Set by `beginning`, never taken from a request; 0 lasts."""

    def __post_init__(self) -> None:
        split_source(self.source, "acl.source")
        require_target(self.target, "acl.target")
        require_command(self.name, "acl.name")
        require_number(self.ttl_seconds, "acl.ttl_seconds", 0, 365 * DAY_SECONDS)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source, self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target

    def beginning(self, now_unix_ns: int) -> AclEntry:
        """The right with the end that its TTL sets, counted from now."""
        end = now_unix_ns + self.ttl_seconds * 1_000_000_000 if self.ttl_seconds else 0
        return replace(self, expires_unix_ns=end)


class RequestState(IntEnum):
    """State of an access request; same numbers as the wire's."""

    PENDING = 1
    GRANTED = 2
    DECLINED = 3


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A producer's principal asks a target's owner for a right."""

    kind: ClassVar[str] = "access_request"
    source: str
    target: str
    name: str
    reason: str
    state: RequestState = RequestState.PENDING
    requested_by: str = ""
    answer: str = ""
    """The owner's answer in words."""
    expires_unix_ns: int = 0

    def __post_init__(self) -> None:
        split_source(self.source, "access_request.source")
        require_target(self.target, "access_request.target")
        require_command(self.name, "access_request.name")
        require_text(self.reason, "access_request.reason")
        require(bool(self.reason.strip()), "access_request.reason", "given: the owner decides by it")
        require_text(self.answer, "access_request.answer")

    @property
    def key(self) -> tuple[str, ...]:
        """Begins with the target, so that owners can list the requests made to them."""
        return (self.target, self.name, self.source)

    @property
    def parent(self) -> str:
        """The requesting tenant: requests count against its own share, so it cannot fill another's list."""
        return self.source.partition("/")[0]

    @property
    def acl(self) -> AclEntry:
        """The requested right."""
        return AclEntry(self.source, self.target, self.name)
