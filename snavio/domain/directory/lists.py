"""The lists of bans (no warm path for a source), suspensions (no access) and freezes (no traffic to a target).

Never mixed: a ban sends a source's commands by Slow and refuses none, a suspension refuses every command of a source,
and a freeze refuses every command to a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from snavio.domain.directory.rules import (
    MAX_EVIDENCE_LENGTH,
    require,
    require_command,
    require_name,
    require_target,
    require_text,
    split_source,
)


class BanList(IntEnum):
    """Reason why a source's commands go by Slow; same numbers as the wire's."""

    WARM_BAN = 1
    COLD_ONLY = 2
    FROZEN = 3


@dataclass(frozen=True, slots=True)
class Ban:
    """A source whose commands only Slow decides, for one route or for all.

    On the list `frozen` it is a target, or one of its commands, that Slow refuses to every source; it has no source.
    """

    kind: ClassVar[str] = "ban"
    list: BanList
    source: str
    target: str = ""
    name: str = ""
    until_unix_ns: int = 0
    """Time at which it ends; 0 lasts until it is lifted, which a `warm_ban` may not."""
    reason: str = ""
    evidence: str = ""
    """Evidence for the decision; for operators."""

    def __post_init__(self) -> None:
        if self.list is BanList.FROZEN:
            require(not self.source, "ban.source", "empty: what is frozen is frozen for everybody")
            require_target(self.target, "ban.target")
            if self.name:
                require_command(self.name, "ban.name")
        else:
            split_source(self.source, "ban.source")
            if self.target or self.name:
                require_target(self.target, "ban.target")
                require_command(self.name, "ban.name")
        lasting = self.list is not BanList.WARM_BAN
        require(
            self.until_unix_ns > 0 or (lasting and self.until_unix_ns == 0),
            "ban.until_unix_ns",
            "a time: a warm ban ends by itself",
        )
        require_text(self.reason, "ban.reason")
        require_text(self.evidence, "ban.evidence", MAX_EVIDENCE_LENGTH)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source, self.list.name.lower(), self.target, self.name)

    @property
    def parent(self) -> str:
        return self.source


@dataclass(frozen=True, slots=True)
class Suspension:
    """A source that Shield refuses; `<tenant>/*` is every service that the tenant has now or later."""

    kind: ClassVar[str] = "suspension"
    source: str
    reason: str = ""
    until_unix_ns: int = 0
    """Time at which it ends; 0 lasts until it is lifted."""
    evidence: str = ""
    """Evidence for the decision; for operators."""

    def __post_init__(self) -> None:
        if self.whole_tenant:
            require_name(self.tenant, "suspension.source")
        else:
            split_source(self.source, "suspension.source")
        require_text(self.reason, "suspension.reason")
        require(self.until_unix_ns >= 0, "suspension.until_unix_ns", "a time, or 0")
        require_text(self.evidence, "suspension.evidence", MAX_EVIDENCE_LENGTH)

    @property
    def tenant(self) -> str:
        """The tenant whose source, or whose every source, it is."""
        return self.source.partition("/")[0]

    @property
    def whole_tenant(self) -> bool:
        """True if it is about every service of the tenant."""
        return self.source == every_source(self.tenant)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def parent(self) -> str:
        return ""


def every_source(tenant: str) -> str:
    """The source of a suspension of a whole tenant. No service can have this name."""
    return f"{tenant}/*"
