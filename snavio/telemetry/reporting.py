"""A service's whole telemetry in one piece: its journal, what it remembers over a crash, and the way to Relay.

Never starts before it is told to, and never keeps a service from ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity
from snavio.errors import SnavioError
from snavio.host.introspection import Introspection
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.certificate_refusals import CertificateRefusals
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.telemetry.events import Event, SnapshotLoadFailed, certificate_refused
from snavio.telemetry.journal import Journal
from snavio.telemetry.journal_uploader import Gather, JournalUploader
from snavio.telemetry.metrics import Metrics, export_metrics
from snavio.telemetry.schema import AUDIT
from snavio.wiring import open_journal_mark

if TYPE_CHECKING:  # Most services read no snapshots, and start sooner without that.
    from snavio.signed.snapshot_reader import Refused


class Reporting:
    """See the module. Without `on_disk` nothing is remembered over a crash, and Relay says that it cannot know."""

    def __init__(
        self,
        mesh: MeshSettings,
        *,
        service: str,
        instance: str,
        clock: Clock,
        gather: Gather = lambda: (),
        on_disk: bool = True,
    ) -> None:
        epoch = self._epoch = clock.unix_ns()
        self._clock = clock
        self._log = structlog.get_logger()
        self._exporter = mesh.metrics_exporter
        self._introspection: Introspection | None = None
        self._metrics: Metrics | None = None
        folder = mesh.state_dir / service
        self._mark = open_journal_mark(folder, instance=instance, epoch=epoch) if on_disk else None
        self._relay = MeshChannel(
            mesh.relay,
            files=CertificateFiles.in_folder(mesh.certificates(service)),
            service="relay",
            trust_domain=mesh.trust_domain,
        )
        self.journal = Journal(
            service=service, mark=self._mark, on=mesh.telemetry, max_bytes=mesh.journal_max_bytes
        )
        self._uploader = JournalUploader(
            self.journal,
            relay=self._relay,
            instance=instance,
            epoch=epoch,
            clock=clock,
            mark=self._mark,
            gather=gather,
        )

    def record(self, event: Event, at_unix_ns: int | None = None) -> None:
        """Add an event that happens seldom; audit events are durable when this returns, if the disk takes them.

        An event from before this life was told then, and is left out.
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

    def snapshot_refused(self, refused: Refused) -> None:
        """For a service's snapshot readers: what they did not believe."""
        self.record(SnapshotLoadFailed(refused.refusal.value, refused.detail))

    def certificates(self, gate: CertificateGate, introspection: Introspection) -> None:
        """Count and tell whose certificates `gate` refuses."""
        refusals = CertificateRefusals(self._certificate_refused, clock=self._clock)
        gate.refused = refusals.refused
        introspection.counts(refusals.counters, prefix="certificate_refused.")

    def _certificate_refused(self, identity: Identity | None, reason: str, count: int) -> None:
        self.record(certificate_refused(identity, reason, count))

    def introspect(self, introspection: Introspection) -> None:
        """Let operators see it."""
        introspection.counts(self.journal.counters, prefix="journal.")
        introspection.counts(self._uploader.counters, prefix="journal.")
        introspection.gauges(self.journal.gauges, prefix="journal.")
        introspection.link("relay", self._uploader.connected.is_set)
        self._introspection = introspection

    def start(self) -> None:
        """Carry from now on, with or without Relay there; and export metrics, where somebody wants them.

        StateError for an exporter that is not installed.
        """
        if self.journal.on:
            self._uploader.start()
        if self._introspection is not None:
            self._metrics = export_metrics(self._introspection, exporter=self._exporter)

    async def stop(self) -> None:
        """Carry what is left, then let go of everything. After the last event."""
        if self._metrics is not None:
            await self._metrics.stop()
        await self._uploader.stop()
        await self._relay.close()
        if self._mark is not None:
            self._mark.close()
