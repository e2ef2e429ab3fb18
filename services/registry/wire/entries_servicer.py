"""The wire face of self-service: listing entries, deleting them, and reading the log of changes.

Never answers about what another tenant owns, and never deletes more than was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from services.registry.reads.change_log import LogQuery, read_log
from services.registry.reads.changes import MAX_PAGE_BYTES
from services.registry.reads.listing import EntryQuery, page_of
from services.registry.writes.batch import BatchWriter
from services.registry.writes.deletion import Deletion, Deletions, counted
from services.registry.writes.ownership import Ownership, expecting
from snavio.domain.directory import Change, DirectoryView, Draft, Value, require_text
from snavio.domain.queue_address import address
from snavio.ports.directory import Directory
from snavio.replication.directory_wire import change_to_wire, entry_to_wire
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as wire


class EntriesServicer:
    """The methods of `snavio.v1.Registry` with which tenants look after what is theirs."""

    def __init__(self, *, directory: Directory, ownership: Ownership, batches: BatchWriter) -> None:
        self._directory = directory
        self._clock = ownership.clock
        self._deletions = Deletions(ownership)
        self._batches = batches
        self._log = structlog.get_logger()

    def register(self, methods: Methods) -> None:
        """Adds the handlers."""
        at = "/snavio.v1.Registry/"
        methods.unary(at + "ListEntries", self.list_entries, wire.ListEntriesRequest)
        methods.unary(at + "DeleteEntry", self.delete_entry, wire.DeleteEntryRequest)
        methods.unary(at + "ReadLog", self.read_log, wire.ReadLogRequest)

    async def list_entries(self, request: wire.ListEntriesRequest, call: Call) -> wire.ListEntriesResponse:
        query = EntryQuery.read(
            request.kind, request.tenant, request.target, request.limit, reader=call.peer.identity
        )
        now = self._clock.unix_ns()
        version, page = await self._directory.read(lambda view: page_of(view, query, request.page_token, now))
        return wire.ListEntriesResponse(
            version=version,
            # A page takes a while to translate; on the loop, every other caller would wait for it.
            entry=await asyncio.to_thread(_entries, page.entries),
            next_page_token=page.after,
        )

    async def delete_entry(self, request: wire.DeleteEntryRequest, call: Call) -> wire.DeleteEntryResponse:
        require_text(request.options.reason, "options.reason")
        actor = call.peer.identity
        rule = self._deletions.decision(actor, request.kind, tuple(request.key))
        expected = request.options.expected_version if request.options.HasField("expected_version") else None
        decided: list[Deletion] = []

        def drafts(view: DirectoryView) -> Sequence[Draft]:
            deletion = rule(view)
            decided[:] = [deletion]
            if not (request.dry_run or request.with_dependents):
                deletion.require_free()
            return deletion.drafts(with_dependents=request.with_dependents)

        def checked(view: DirectoryView) -> Sequence[Draft]:
            found = expecting(drafts, expected)(view)
            return (found,) if isinstance(found, Draft) else found

        written = await self._batches.carry_out(
            checked, actor=actor, reason=request.options.reason, dry_run=request.dry_run
        )
        (deletion,) = decided
        if written.changed:
            self._log.info("entry deleted", kind=request.kind, version=written.version, actor=actor.spiffe_id)
        queues = {(route.queue_kind, address(route.queue_kind, route.topic)) for route in deletion.routes}
        return wire.DeleteEntryResponse(
            version=written.version,
            changed=written.changed,
            dependent=[
                wire.EntryCount(kind=kind, count=count)
                for kind, count in counted([*deletion.dependents, *deletion.changed])
            ],
            queue=[
                wire.QueueAddress(kind=wire.QueueKind.Name(kind), address=at) for kind, at in sorted(queues)
            ],
        )

    async def read_log(self, request: wire.ReadLogRequest, call: Call) -> wire.ReadLogResponse:
        query = LogQuery(
            tenant=request.tenant,
            kinds=frozenset(request.kind),
            since=request.since_version,
            from_ns=request.from_unix_ns,
            to_ns=request.to_unix_ns,
            limit=request.limit,
        )
        lines = await read_log(self._directory, query, reader=call.peer.identity)
        told = await asyncio.to_thread(_lines, lines.changes)
        cut = len(told) < len(lines.changes)
        return wire.ReadLogResponse(
            version=told[-1].version if cut else lines.version, change=told, more=cut or lines.more
        )


def _entries(entries: Sequence[tuple[Value, int]]) -> list[wire.StandingEntry]:
    return [wire.StandingEntry(entry=entry_to_wire(value), version=version) for value, version in entries]


def _lines(changes: Sequence[Change]) -> list[wire.Change]:
    """As many as one message holds, and at least one."""
    told: list[wire.Change] = []
    size = 0
    for change in changes:
        line = change_to_wire(change, show_actor=True, with_before=True)
        size += line.ByteSize()
        if size > MAX_PAGE_BYTES and told:
            break
        told.append(line)
    return told
