"""Reads the log of changes for a person: all of it for operators, what is a tenant's own for its principals.

Never searches more of the log for one answer than a bound: the reader asks again from where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.registry.reads.visibility import as_seen, sees_all, sees_author, stake
from snavio.domain.directory import KINDS, Change, DirectoryView, Route, Target, Value, require_name
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed
from snavio.ports.directory import Directory

MAX_LINES: Final = 500
SEARCHED: Final = 5_000
"""Lines of the log that one answer looks through."""
STEP: Final = 500


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The lines that one reader asks for."""

    tenant: str = ""
    """The tenant whose they are; empty for everything."""
    kinds: frozenset[str] = frozenset()
    since: int = 0
    from_ns: int = 0
    to_ns: int = 0
    limit: int = MAX_LINES

    def require_valid(self) -> None:
        """BadRequest for kinds or times that cannot be."""
        if unknown := sorted(self.kinds - KINDS.keys()):
            raise BadRequest(
                f"kind: {len(unknown)} of them are none of {', '.join(sorted(KINDS))}.", reason="bad-field"
            )
        if self.tenant:
            require_name(self.tenant, "tenant")
        if self.from_ns < 0 or self.to_ns < 0 or (self.to_ns and self.from_ns >= self.to_ns):
            raise BadRequest("to_unix_ns: must be a time after from_unix_ns, or 0.", reason="bad-field")


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of the log, and the version up to which it was searched."""

    version: int
    changes: Sequence[Change]
    more: bool


async def read_log(directory: Directory, query: LogQuery, *, reader: Identity) -> LogLines:
    """The first lines that fit `query`, as this reader may see them."""
    query.require_valid()
    if not sees_all(reader) and (not reader.tenant or query.tenant not in ("", reader.tenant)):
        raise NotAllowed(f"{reader} may read the log of its own tenant.", reason="not-owner")
    tenant = query.tenant if sees_all(reader) else reader.tenant
    whose = Identity(reader.trust_domain, IdentityKind.PRINCIPAL, "any", tenant) if tenant else None
    end = await directory.version_at(query.to_ns - 1) if query.to_ns else directory.standing[1]
    at = query.since
    if query.from_ns:
        # The version before that time.
        at = max(at, await directory.version_at(query.from_ns - 1))
    last, limit = min(end, at + SEARCHED), min(query.limit, MAX_LINES) or MAX_LINES
    found: list[Change] = []
    # Never asked beyond the newest version: a reader that is ahead of the log makes the directory take a new epoch.
    while at < last and len(found) < limit:
        page = await directory.changes(since=at, epoch=directory.standing[0], limit=min(STEP, last - at))
        fitting = [c for c in page.changes if at < c.version <= last and _is_of_kind(c, query.kinds)]
        if whose is not None:
            fitting = await _concerning(directory, fitting, whose)
        room = limit - len(found)
        if len(fitting) > room:
            fitting = fitting[:room]
            at = fitting[-1].version
        else:
            at = page.changes[-1].version if page.changes else last
        found += fitting
    at = min(max(at, query.since), max(end, query.since))
    return LogLines(at, [as_seen(change, reader) for change in found], more=at < end)


def _is_of_kind(change: Change, kinds: frozenset[str]) -> bool:
    return not kinds or change.value.kind in kinds


async def _concerning(directory: Directory, changes: Sequence[Change], whose: Identity) -> list[Change]:
    _, seen = await directory.read(lambda view: [c for c in changes if _concerns(view, c, whose)])
    return seen


def _concerns(view: DirectoryView, change: Change, whose: Identity) -> bool:
    """True for what was the tenant's at that time, what concerns it by an entry's key, and what it wrote itself."""
    if any(_owner(value) == whose.tenant for value in (change.value, change.before) if value is not None):
        return True
    since = stake(view, whose, type(change.value), change.value.key)
    return sees_author(whose, change.actor) or (since is not None and change.version >= since)


def _owner(value: Value) -> str:
    """The owner that an entry names: a target that was given up since still had one."""
    match value:
        case Target():
            return value.tenant
        case Route():
            return value.topic.partition("/")[0]
        case _:
            return ""
