"""Answers about the past from the log: the changes of an entry, the rights at a time, and their differences.

Never reconstructs from the present: a moment is a version, and the log has every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.registry.reads.visibility import as_seen, owned_since, require_stake, stake
from snavio.clock import Clock
from snavio.domain.directory import (
    KINDS,
    AclEntry,
    Change,
    Route,
    Suspension,
    every_source,
    is_over,
)
from snavio.domain.identity import Identity
from snavio.errors import BadRequest
from snavio.ports.directory import Directory

MAX_HISTORY: Final = 1000
MAX_LISTED: Final = 10_000
MAX_RANGE: Final = 100_000
"""Changes of rights between two times that one answer may look at."""
STEP: Final = 5_000
MAX_SUSPENDED: Final = 100_000
_KEY_PARTS: Final = {"acl": 3, "source_quota": 3, "access_request": 3, "ban": 4, "route": 2, "service": 2} | {
    "profile_limit": 2,
    "principal": 2,
    "alert_channel": 2,
    "topic_rule": 2,
    "endpoint": 2,
    "ban_proposal": 1,
}


@dataclass(frozen=True, slots=True)
class AccessAtTime:
    """The sources that could send one command at one time."""

    version: int
    routed: bool
    rights: Sequence[Change]
    suspended: frozenset[str]
    """Sources of the suspensions of that time: services, or whole tenants."""
    more: bool

    def was_suspended(self, source: str) -> bool:
        """True if the source could not use its rights at that time."""
        return not self.suspended.isdisjoint((source, every_source(source.partition("/")[0])))


@dataclass(frozen=True, slots=True)
class AccessChanges:
    """Rights that came (changes that are not deletions) and went between two versions."""

    from_version: int
    to_version: int
    changes: Sequence[Change]
    more: bool


@dataclass(frozen=True, slots=True)
class History:
    """The log, for readers who may ask."""

    directory: Directory
    clock: Clock

    async def history(
        self, kind_name: str, key: Sequence[str], *, limit: int, reader: Identity
    ) -> list[Change]:
        """Every change of one entry."""
        kind = KINDS.get(kind_name)
        if kind is None:
            raise BadRequest(f"kind: must be one of {', '.join(sorted(KINDS))}.", reason="bad-field")
        parts = _KEY_PARTS.get(kind_name, 1)
        if len(key) != parts:
            raise BadRequest(f"key: must have {parts} parts for a {kind_name}.", reason="bad-field")
        _, since = await self.directory.read(lambda view: require_stake(view, reader, kind, key))
        wanted = min(limit, MAX_HISTORY) or MAX_HISTORY
        # One more, to know whether what stood there before the first was the reader's to see.
        changes = await self.directory.history(kind, key, limit=wanted + 1)
        seen = [change for change in changes if change.version >= since]
        if seen and len(seen) < len(changes):
            seen[0] = replace(seen[0], before=None)
        return [as_seen(change, reader) for change in seen[-wanted:]]

    async def access_at(self, target: str, name: str, at_ns: int, *, reader: Identity) -> AccessAtTime:
        """The sources that could send `name` to `target` at a time; 0 means now."""
        at_ns = at_ns or self.clock.unix_ns()
        _, since = await self.directory.read(lambda view: owned_since(view, reader, target))
        version = await self.directory.version_at(at_ns)
        if version < since:
            return AccessAtTime(version, routed=False, rights=(), suspended=frozenset(), more=False)
        # Three questions, one version: the log cannot change under them.
        standing = self.directory.standing_at
        routes = await standing(Route, version=version, parent=target, ending=name, limit=1)
        rights = await standing(AclEntry, version=version, parent=target, ending=name, limit=MAX_LISTED + 1)
        kept_out = await standing(Suspension, version=version, parent="", limit=MAX_SUSPENDED)
        return AccessAtTime(
            version=version,
            routed=any(not is_over(route.value, at_ns) for route in routes),
            rights=[
                as_seen(change, reader) for change in rights[:MAX_LISTED] if not is_over(change.value, at_ns)
            ],
            suspended=frozenset(s.value.key[0] for s in kept_out if not is_over(s.value, at_ns)),
            more=len(rights) > MAX_LISTED,
        )

    async def acl_diff(self, from_ns: int, to_ns: int, *, target: str, reader: Identity) -> AccessChanges:
        """Rights that differ between two times; what came and went again in between is left out."""
        to_ns = to_ns or self.clock.unix_ns()
        if not 0 <= from_ns <= to_ns:
            raise BadRequest("from_unix_ns: must be a time before to_unix_ns.", reason="bad-field")
        if target:
            await self.directory.read(lambda view: owned_since(view, reader, target))
        start, end = await self.directory.version_at(from_ns), await self.directory.version_at(to_ns)
        moved = [
            change
            for change in _net(await self._rights_moved(start, end))
            # One whose end had come by then, while its tombstone was still to be written, was no right any more.
            if _is_of(change, target) and (change.deleted or not is_over(change.value, to_ns))
        ]
        _, seen = await self.directory.read(
            lambda view: [
                change
                for change in moved
                if (since := stake(view, reader, AclEntry, change.value.key)) is not None
                and change.version >= since
            ]
        )
        return AccessChanges(
            start, end, [as_seen(c, reader) for c in seen[:MAX_LISTED]], len(seen) > MAX_LISTED
        )

    async def _rights_moved(self, start: int, end: int) -> list[Change]:
        """Every change of a right in a range, read in steps: a long range must not keep others waiting."""
        changes: list[Change] = []
        for after in range(start, end, STEP):
            changes += await self.directory.between(
                AclEntry, after=after, upto=min(after + STEP, end), limit=STEP
            )
            if len(changes) > MAX_RANGE:
                raise BadRequest(
                    f"from_unix_ns: must be closer; over {MAX_RANGE} rights moved since then.",
                    reason="range-too-wide",
                )
        return changes


def _is_of(change: Change, target: str) -> bool:
    return not target or change.value.key[1] == target


def _net(changes: Sequence[Change]) -> list[Change]:
    first: dict[tuple[str, ...], Change] = {}
    last: dict[tuple[str, ...], Change] = {}
    for change in changes:
        first.setdefault(change.value.key, change)
        last[change.value.key] = change
    return [last[key] for key in sorted(last) if (first[key].before is None) == (not last[key].deleted)]
