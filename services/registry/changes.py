"""Answers readers: what changed since a version, and what holds for a command at this moment.

Never answers one question from two moments, and shows the author of a change only to operators and the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snavio.clock import Clock
from snavio.domain.directory import AclEntry, Route, Suspension, View, is_over
from snavio.domain.identity import Identity, Kind
from snavio.errors import BadRequest, Conflict
from snavio.ports.directory import Directory
from snavio.transport.entries import change_to_wire
from snavio.v1 import registry_pb2 as wire

MAX_CHANGES = 5000
MAX_KEYS = 1000
# Names may be long: 5000 of the longest changes would not fit into one gRPC message.
MAX_PAGE_BYTES = 2 << 20

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What holds for one (source, target, name)."""

    route: Route | None
    allowed: bool
    suspended: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """The reading side of the directory."""

    directory: Directory
    clock: Clock

    async def changes(self, *, since: int, epoch: int, limit: int, reader: Identity) -> wire.ChangesResponse:
        """Changes in order, as many as fit."""
        page = await self.directory.changes(
            since=since, epoch=epoch, limit=min(limit, MAX_CHANGES) or MAX_CHANGES
        )
        show_actor = reader.kind in (Kind.OPERATOR, Kind.MESH)
        answer = wire.ChangesResponse(
            version=page.version, directory_epoch=page.directory_epoch, more=page.more
        )
        size = 0
        for change in page.changes:
            entry = change_to_wire(change, show_actor=show_actor)
            size += entry.ByteSize()
            if size > MAX_PAGE_BYTES and answer.change:
                answer.version = answer.change[-1].version
                answer.more = True
                break
            answer.change.append(entry)
        return answer

    async def resolve(self, keys: Sequence[Key]) -> tuple[int, list[Resolved]]:
        """One answer per key, all from the same moment, and the version of that moment."""
        if len(keys) > MAX_KEYS:
            raise BadRequest(f"key: must be at most {MAX_KEYS}.", reason="too-many-keys")
        now = self.clock.unix_ns()
        return await self.directory.read(lambda view: [_resolve(view, key, now) for key in keys])

    async def dump(self, *, version: int, epoch: int, after: str, limit: int) -> wire.DumpResponse:
        """A page of the directory at `version`, as much as fits; what has ended meanwhile is left out."""
        page = await self.directory.dump(
            version=version, after=after, limit=min(limit, MAX_CHANGES) or MAX_CHANGES
        )
        if epoch not in (0, page.directory_epoch):
            raise Conflict("The directory was replaced; read it from the start.", reason="epoch-changed")
        answer = wire.DumpResponse(
            version=page.version, directory_epoch=page.directory_epoch, next_page_token=page.after
        )
        now, size = self.clock.unix_ns(), 0
        for change in page.entries:
            entry = change_to_wire(change, show_actor=True)
            size += entry.ByteSize()
            if size > MAX_PAGE_BYTES and answer.entry:
                break
            answer.next_page_token = "\n".join((change.value.kind, *change.value.key))
            if not is_over(change.value, now):
                answer.entry.append(entry)
        else:
            answer.next_page_token = page.after
        return answer


def _resolve(view: View, key: Key, now_unix_ns: int) -> Resolved:
    source, target, name = key
    route, suspension = view.find(Route, target, name), view.find(Suspension, source)
    return Resolved(
        route=None if route is None or is_over(route, now_unix_ns) else route,
        allowed=view.find(AclEntry, source, target, name) is not None,
        suspended=suspension is not None and not is_over(suspension, now_unix_ns),
    )
