"""The telemetry of a service in one piece: its journal, the mark that survives a crash, and the upload to Relay.

Never uploads before `start`, and never keeps a service from ending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity
from snavio.errors import SnavioError, Unavailable
from snavio.host.introspection import Introspection
from snavio.ports.journal_mark import JournalMark
from snavio.rpc.channel import MeshChannel
from snavio.telemetry.events import Event, SnapshotLoadFailed, certificate_refused
from snavio.telemetry.journal import Journal
from snavio.telemetry.journal_uploader import Gather, JournalUploader
from snavio.telemetry.schema import AUDIT

if TYPE_CHECKING:  # Most services read no snapshots, and start sooner without that.
    from snavio.signed.snapshot_reader import Refused


class Reporting:
    """Journal and uploader of one life, named by `epoch`.

    Without a `mark` nothing is remembered over a crash, and Relay says that it cannot know what is missing.
    """

    def __init__(
        self,
        mesh: MeshSettings,
        *,
        service: str,
        instance: str,
        epoch: int,
        clock: Clock,
        relay: MeshChannel,
        mark: JournalMark | None,
    ) -> None:
        self._epoch = epoch
        self._clock = clock
        self._mark = mark
        self._log = structlog.get_logger()
        self.journal = Journal(
            service=service, mark=mark, on=mesh.telemetry, max_bytes=mesh.journal_max_bytes
        )
        self.gather: Gather = lambda: ()
        """Gives blocks that are made only when a page is sent."""
        self._uploader = JournalUploader(
            self.journal,
            relay=relay,
            instance=instance,
            epoch=epoch,
            clock=clock,
            mark=mark,
            gather=self._gathered,
        )

    def _gathered(self) -> Iterable[bytes]:
        return self.gather()

    def record(self, event: Event, at_unix_ns: int | None = None) -> None:
        """Add a rare event; audit events are durable when this returns, if the disk takes them.

        An event from before this life was recorded by an earlier one, and is left out.
        """
        at = self._clock.unix_ns() if at_unix_ns is None else at_unix_ns
        if at < self._epoch:
            return
        try:
            self.journal.record(event, at_unix_ns=at, durable=event.name in AUDIT)
        except SnavioError as error:
            # A full disk must not undo what has happened; the event still travels.
            self._log.error("an audit event is not on disk", event_name=event.name, message=str(error))
            self.journal.record(event, at_unix_ns=at)

    async def record_at_relay(self, event: Event, *, within_s: float) -> None:
        """Add an event and wait until Relay has stored it; Unavailable `not-on-record` if it has not `within_s`.

        For a process that keeps nothing itself. The event travels later in that case.
        """
        self.journal.record(event, at_unix_ns=self._clock.unix_ns())
        if not self.journal.on or not await self._uploader.durable(self.journal.last_seq, within_s=within_s):
            raise Unavailable("Relay has not recorded this; try again.", reason="not-on-record")

    def snapshot_refused(self, refused: Refused) -> None:
        """Record a snapshot that a reader of this service did not accept."""
        self.record(SnapshotLoadFailed(refused.refusal.value, refused.detail))

    def certificate_refused(self, identity: Identity | None, reason: str, count: int) -> None:
        """Record certificates that the gate refused."""
        self.record(certificate_refused(identity, reason, count))

    def introspect(self, introspection: Introspection) -> None:
        """Show the journal and the connection to Relay to operators."""
        introspection.counts(self.journal.counters, prefix="journal.")
        introspection.counts(self._uploader.counters, prefix="journal.")
        introspection.gauges(self.journal.gauges, prefix="journal.")
        introspection.link("relay", self._uploader.connected.is_set)

    def start(self) -> None:
        """Upload from now on; Relay may be away."""
        if self.journal.on:
            self._uploader.start()

    async def stop(self) -> None:
        """Upload what is left, then release the mark. Call after the last event."""
        if self.journal.on and self.journal.last_seq and not self._uploader.started:
            # A start that was cut short has something to say about itself, such as a snapshot that it refused.
            self._uploader.start()
        await self._uploader.stop()
        if self._mark is not None:
            self._mark.close()
