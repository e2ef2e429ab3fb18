"""Follows which rights were taken away, and finds commands that went by such a right afterwards.

Never looks at a command on its way: it joins what Registry says with what the archive gets. A right whose end becomes
known late is looked up in what was archived meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from services.relay.manifests import present_files
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import SERVICE, RelayEvents
from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.native import Tombstones, format_timestamp
from snavio.ports.archive import Archive
from snavio.ports.outbox import Cursor, Outbox, RevokedRight
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.telemetry.events import Event, ExecutedAfterRevocation
from snavio.telemetry.parquet import read
from snavio.telemetry.schema import DELIVERED
from snavio.v1.registry_pb2 import Change, ChangesRequest, ChangesResponse, DumpRequest, DumpResponse

CALL_SECONDS: Final = 2.0
# Events are archived minutes after they happen, at the worst.
REMEMBERED_NS: Final = 24 * 3600 * 1_000_000_000
HOUR_NS: Final = 3600 * 1_000_000_000
MAX_FILE_BYTES: Final = 512 << 20


class Revocations:
    """Pulls the directory's changes into `tombstones`."""

    def __init__(
        self,
        *,
        registry: MeshChannel,
        outbox: Outbox,
        archive: Archive,
        waiting: PendingPages,
        own: RelayEvents,
        tombstones: Tombstones,
        turn: asyncio.Lock,
        clock: Clock,
        interval_s: float,
        patience_s: float,
        changed: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        self._registry = registry
        self._outbox = outbox
        self._archive = archive
        self._waiting = waiting
        self._own = own
        self._tombstones = tombstones
        self._turn = turn
        self._clock = clock
        self._patience_ns = round(patience_s * 1e9)
        self._changed = changed
        self._cursor = Cursor()
        self._known_unix_ns = 0
        self._pull = Poller("revocations", self._refresh, clock=clock, interval_s=interval_s)
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Load what was known, then follow Registry, which may be away."""
        self._cursor = await self._outbox.cursor()
        for right in await self._outbox.revoked_rights():
            self._add_tombstone(right)
        self._pull.begin()

    async def stop(self) -> None:
        """End the polling."""
        await self._pull.stop()

    def known_unix_ns(self) -> int:
        """Events before this time may be archived: the rights revoked before them are known, or the wait is over."""
        return max(self._known_unix_ns, self._clock.unix_ns() - self._patience_ns)

    async def _refresh(self) -> None:
        if self._cursor == Cursor():
            await self._begin()
        while True:
            asked = self._clock.unix_ns()
            answer = await self._registry.call(
                "/snavio.v1.Registry/Changes",
                ChangesRequest(since_version=self._cursor.version, directory_epoch=self._cursor.epoch),
                ChangesResponse,
                timeout_s=CALL_SECONDS,
            )
            for change in answer.change:
                self._changed(change)
            rights = [
                RevokedRight(
                    change.acl.source,
                    change.acl.target,
                    change.acl.name,
                    change.version,
                    _ended_unix_ns(change),
                )
                for change in answer.change
                if change.WhichOneof("value") == "acl" and change.deleted
            ]
            cursor = Cursor(answer.directory_epoch, answer.version)
            if rights or cursor != self._cursor:
                async with self._turn:
                    await self._take(rights, cursor)
            if not answer.more:
                self._known_unix_ns = asked
                return

    async def _begin(self) -> None:
        """Begin at the current version of the directory: nothing was archived before the first Relay."""
        answer = await self._registry.call(
            "/snavio.v1.Registry/Dump", DumpRequest(limit=1), DumpResponse, timeout_s=CALL_SECONDS
        )
        self._cursor = Cursor(answer.directory_epoch, answer.version)

    async def _take(self, rights: list[RevokedRight], cursor: Cursor) -> None:
        forget = self._clock.unix_ns() - REMEMBERED_NS
        archived_until = await self._outbox.exported_until_unix_ns()
        late: list[Event] = []
        for right in rights:
            if right.revoked_unix_ns < archived_until:
                late += await self._look_up(right, archived_until)
        async with self._own.stored_with(late) as (pages, lives):
            ids = await self._outbox.remember_revoked(
                rights, cursor, forget_before_unix_ns=forget, pages=pages, lives=lives
            )
            self._waiting.add(ids, pages, [SERVICE] * len(ids))
        for right in rights:
            self._add_tombstone(right)
        self._tombstones.forget(forget)
        self._cursor = cursor

    def _add_tombstone(self, right: RevokedRight) -> None:
        self._tombstones.add(
            right.source,
            right.target,
            right.name,
            version=right.version,
            revoked_unix_ns=right.revoked_unix_ns,
        )

    async def _look_up(
        self, right: RevokedRight, archived_until_unix_ns: int
    ) -> list[ExecutedAfterRevocation]:
        """Archived commands that used the right after it was revoked."""
        found: list[ExecutedAfterRevocation] = []
        # An export may be hours later than its events, when Signer was away.
        hour_ns = right.revoked_unix_ns - right.revoked_unix_ns % HOUR_NS
        end_ns = max(archived_until_unix_ns, self._clock.unix_ns())
        while hour_ns <= end_ns:
            for path, entry in (await present_files(self._archive, hour_ns)).items():
                if entry.max_at_unix_ns < right.revoked_unix_ns:
                    continue
                try:
                    contents = await self._archive.get(path, max_bytes=MAX_FILE_BYTES)
                    found += await asyncio.to_thread(_executed, contents, right)
                except (SnavioError, ValueError) as error:
                    # A damaged file is for `archive verify` to report; the others still tell what they know.
                    self._log.warning("a file of the archive cannot be read", name=path, message=str(error))
            hour_ns += HOUR_NS
        return found


def _ended_unix_ns(change: Change) -> int:
    """When the right ended: with its revocation, or by itself some time before its tombstone was written."""
    end: int = change.acl.expires_unix_ns
    return min(end, change.at_unix_ns) if end else change.at_unix_ns


def _executed(contents: bytes, right: RevokedRight) -> list[ExecutedAfterRevocation]:
    import pyarrow.compute as pc

    table = read(contents)
    fits = (
        (pc.field("event") == DELIVERED)
        & (pc.field("source") == right.source)
        & (pc.field("target") == right.target)
        & (pc.field("command_name") == right.name)
        & (pc.field("acl_version") < right.version)
    )
    plain = table.select(["event", "source", "target", "command_name", "acl_version", "at"])
    for column in ("event", "source", "target", "command_name"):
        index = plain.column_names.index(column)
        plain = plain.set_column(index, column, plain[column].cast("string"))
    counted = plain.filter(fits).group_by("at").aggregate([([], "count_all")]).to_pylist()
    revoked_us = right.revoked_unix_ns // 1000
    moments = [(round(row["at"].timestamp() * 1e6), row["count_all"]) for row in counted]
    return [
        ExecutedAfterRevocation(
            source=right.source,
            target=right.target,
            command_name=right.name,
            stale_duration_seconds=(at_us - revoked_us) / 1e6,
            acl_revocation_timestamp=format_timestamp(right.revoked_unix_ns),
            count=count,
        )
        for at_us, count in sorted(moments)
        if at_us > revoked_us
    ]
