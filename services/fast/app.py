"""Composes Fast.

Never serves before the directory was read, from a snapshot or from Registry.
"""

from __future__ import annotations

from services.fast.bans import WarmBans
from services.fast.caches import make_directory
from services.fast.dispatch import Dispatcher
from services.fast.dispatch_tables import make_tables, show_tables, sweep
from services.fast.escalations import make_escalations
from services.fast.grants import GrantKeeper
from services.fast.servicer import FastServicer
from services.fast.settings import FastSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.host.service import HostedService
from snavio.host.target_queues import open_target_queues
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.telemetry.events import Event, EventJournal

SWEEP_SECONDS = 10.0


class FastApp(HostedService[FastSettings]):
    """One Fast process. Tests may look at `tables`, `events`, `refreshes`, `slow` and `grants`."""

    service = "fast"

    def __init__(self, mesh: MeshSettings, settings: FastSettings, clock: Clock) -> None:
        super().__init__(mesh, settings, clock)
        host = self.host
        self.tables = make_tables(mesh, settings)
        self.events = EventJournal(epoch=host.epoch, onward=host.reporting.record)
        # Refreshes are many: in a journal of their own they push nothing out that matters more.
        self.refreshes = EventJournal(epoch=host.epoch, max_events=256)
        self.slow = make_escalations(host, settings)
        self.grants = GrantKeeper(
            dispatch=self.tables,
            slow=host.channel("slow"),
            clock=clock,
            instance=settings.instance,
            pause_s=settings.grant_pause_ms / 1000,
        )

    async def compose(self) -> int:
        """Read denylist and directory, connect to queues and Slow, then serve."""
        host, settings, tables = self.host, self._settings, self.tables
        clock, introspection = host.clock, host.introspection
        await host.read_denylist()
        directory = make_directory(host, settings, tables, self.refreshes)
        await host.run(directory, within_s=settings.start_within_s)
        queues = open_target_queues(host)
        for queue in queues:
            await host.run(queue)
        await host.run(self.slow)
        await host.run(self.grants)
        bans = WarmBans(
            slow=host.channel("slow"), clock=clock, instance=settings.instance, record=self._record
        )
        await host.run(bans)
        host.every(SWEEP_SECONDS, "upkeep", sweep(tables, clock))
        show_tables(introspection, tables)
        introspection.counts(self.grants.counters, prefix="grants.")
        introspection.counts(bans.counters, prefix="bans.")
        introspection.counts(self.events.counters, prefix="events.")
        introspection.counts(self.refreshes.counters, prefix="events.")
        dispatcher = Dispatcher(
            dispatch=tables,
            directory=directory,
            grants=self.grants,
            bans=bans,
            queues=queues,
            slow=self.slow,
            journal=host.reporting.journal,
            clock=clock,
            budget_ms=host.mesh.budget_ms,
        )
        servicer = FastServicer(
            dispatcher=dispatcher, gate=host.gate, clock=clock, in_flight=settings.batches_in_flight
        )
        return await host.serve(servicer.methods(), explain=True, window_bytes=HOP_WINDOW_BYTES)

    def _record(self, event: Event) -> None:
        self.events.record(event, at_unix_ns=self.host.clock.unix_ns())
