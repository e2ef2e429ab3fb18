"""Answers readers: changes since a version, and the rules that apply to a command now.

Never answers one question from two moments, and shows the author of a change only to operators and the mesh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from snavio.clock import Clock
from snavio.domain.directory import (
    KINDS,
    AclEntry,
    Ban,
    BanList,
    Change,
    DirectoryView,
    Route,
    SourceQuota,
    is_over,
    suspension_of,
)
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, Conflict
from snavio.ports.directory import Directory
from snavio.replication.directory_wire import change_to_wire
from snavio.v1 import registry_pb2 as wire

MAX_CHANGES = 5000
MAX_KEYS = 1000
# Names may be long: 5000 of the longest changes would not fit into one gRPC message.
MAX_PAGE_BYTES = 2 << 20
AT_ONCE = 200

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rules that apply to one (source, target, name)."""

    route: Route | None
    allowed: bool
    suspended: bool
    warm_banned: bool
    source_quota: SourceQuota | None
    freeze: Ban | None = None
    acl_version: int = 0


@dataclass(frozen=True, slots=True)
class DirectoryReader:
    """The reading side of the directory."""

    directory: Directory
    clock: Clock

    async def changes(self, *, since: int, epoch: int, limit: int, reader: Identity) -> wire.ChangesResponse:
        """Changes in order, as many as fit."""
        page = await self.directory.changes(
            since=since, epoch=epoch, limit=min(limit, MAX_CHANGES) or MAX_CHANGES
        )
        entries = await _fitting(
            page.changes, show_actor=reader.kind in (IdentityKind.OPERATOR, IdentityKind.MESH)
        )
        cut = len(entries) < len(page.changes)
        return wire.ChangesResponse(
            version=entries[-1].version if cut else page.version,
            directory_epoch=page.directory_epoch,
            change=entries,
            more=cut or page.more,
            now_unix_ns=self.clock.unix_ns(),
        )

    async def resolve(self, keys: Sequence[Key]) -> tuple[int, list[Resolved]]:
        """One answer per key, all from the same moment, and the version of that moment."""
        if len(keys) > MAX_KEYS:
            raise BadRequest(f"key: must be at most {MAX_KEYS}.", reason="too-many-keys")
        now = self.clock.unix_ns()
        return await self.directory.read(lambda view: [_resolve(view, key, now) for key in keys])

    async def dump(
        self, *, version: int, epoch: int, after: str, limit: int, kind: str = ""
    ) -> wire.DumpResponse:
        """A page of the directory at `version`, as much as fits; what has ended meanwhile is left out."""
        if kind and kind not in KINDS:
            raise BadRequest(f"kind: must be one of {', '.join(sorted(KINDS))}.", reason="bad-field")
        page = await self.directory.dump(
            version=version,
            after=after,
            limit=min(limit, MAX_CHANGES) or MAX_CHANGES,
            kind=KINDS[kind] if kind else None,
        )
        if epoch not in (0, page.directory_epoch):
            raise Conflict("The directory was replaced; read it from the start.", reason="epoch-changed")
        now = self.clock.unix_ns()
        standing = [change for change in page.entries if not is_over(change.value, now)]
        entries = await _fitting(standing, show_actor=True)
        last = standing[len(entries) - 1].value if len(entries) < len(standing) else None
        return wire.DumpResponse(
            version=page.version,
            directory_epoch=page.directory_epoch,
            entry=entries,
            next_page_token=page.after if last is None else "\n".join((last.kind, *last.key)),
        )


async def _fitting(changes: Sequence[Change], *, show_actor: bool) -> list[wire.Change]:
    """As many of them as one message holds, and at least one."""
    if len(changes) <= AT_ONCE:
        return _translated(changes, show_actor)
    # A whole page takes a tenth of a second to translate; on the loop, everybody else would wait for it.
    return await asyncio.to_thread(_translated, changes, show_actor)


def _translated(changes: Sequence[Change], show_actor: bool) -> list[wire.Change]:
    entries: list[wire.Change] = []
    size = 0
    for change in changes:
        entry = change_to_wire(change, show_actor=show_actor)
        size += entry.ByteSize()
        if size > MAX_PAGE_BYTES and entries:
            break
        entries.append(entry)
    return entries


def _resolve(view: DirectoryView, key: Key, now_unix_ns: int) -> Resolved:
    source, target, name = key
    route = view.find(Route, target, name)
    listed = BanList.WARM_BAN.name.lower()
    bans = (view.find(Ban, source, listed, target, name), view.find(Ban, source, listed, "", ""))
    freezes = [view.find(Ban, "", BanList.FROZEN.name.lower(), target, of) for of in (name, "")]
    right = view.find(AclEntry, *key)
    allowed = right is not None and not is_over(right, now_unix_ns)
    return Resolved(
        route=None if route is None or is_over(route, now_unix_ns) else route,
        allowed=allowed,
        suspended=suspension_of(view, source, now_unix_ns) is not None,
        warm_banned=any(ban is not None and not is_over(ban, now_unix_ns) for ban in bans),
        source_quota=view.find(SourceQuota, source, target, name),
        freeze=next((each for each in freezes if each is not None and not is_over(each, now_unix_ns)), None),
        acl_version=view.version_of(AclEntry, *key) if allowed else 0,
    )
