"""Composes Slow.

Never serves before the coordination store is open.
"""

from __future__ import annotations

from services.slow.arbitration import Arbiter, Rounds
from services.slow.bans import Bans, Escalation
from services.slow.coordination import open_chosen, require_long_leases
from services.slow.dominance import Dominance
from services.slow.forecast import Forecasts
from services.slow.grants import Grants
from services.slow.lane_rules import LaneRules
from services.slow.limits import LimitEnforcer
from services.slow.queue_states import MOST_LOOKS, QueueStates
from services.slow.servicer import SlowServicer
from services.slow.settings import SlowSettings
from services.slow.strict import Strict
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.host.service import HostedService
from snavio.host.shares import Shares
from snavio.host.target_queues import open_target_queues
from snavio.ports.coordination import Coordination
from snavio.rpc.limits import HOP_WINDOW_BYTES


class SlowApp(HostedService[SlowSettings]):
    """One Slow process. `store` stands in for the configured coordination store in tests."""

    service = "slow"

    def __init__(
        self, mesh: MeshSettings, settings: SlowSettings, clock: Clock, *, store: Coordination | None = None
    ) -> None:
        require_long_leases(mesh, settings)
        super().__init__(mesh, settings, clock)
        self._store = store

    async def compose(self) -> int:
        """Open the coordination store, read the denylist, connect to the queues, then serve."""
        host, settings, clock = self.host, self._settings, self.host.clock
        store = host.hold(self._store or await open_chosen(host.mesh, settings, clock))
        await host.read_denylist()
        registry, pull_s = host.channel("registry"), host.pull_interval_s
        timeout_ms = settings.coordination_timeout_ms
        dominance = Dominance(clock=clock)
        lane_rules = LaneRules(
            registry=registry,
            timeout_ms=settings.resolve_timeout_ms,
            instance=host.instance,
            bound_ms=host.mesh.budget_ms,
        )
        host.every(pull_s, "presence", lane_rules.report, at_once=True, longest_s=pull_s)
        limits = LimitEnforcer(store=store, dominance=dominance, clock=clock, timeout_ms=timeout_ms)
        strict = Strict(
            store=store,
            clock=clock,
            instance=host.instance,
            epoch=host.epoch,
            keep_ms=settings.dedupe_ms,
            remembered=settings.remembered_deliveries,
            timeout_ms=timeout_ms,
        )
        queues = open_target_queues(host)
        arbiter = Arbiter(
            lane_rules=lane_rules,
            limits=limits,
            strict=strict,
            queues=queues,
            journal=host.reporting.journal,
            clock=clock,
            budget_ms=host.mesh.budget_ms,
            rounds=Rounds(
                at_once=settings.rounds,
                commands=settings.round_commands,
                quantum=settings.quantum_commands,
                max_waiting=settings.max_waiting_commands,
                max_waiting_per_source=settings.max_waiting_per_source,
            ),
        )
        await host.run(arbiter)
        # They stop first: the arbiter still records the outcomes that come with their end.
        for queue in queues:
            await host.run(queue)
        grants = Grants(
            lane_rules=lane_rules,
            store=store,
            leases=settings.prefetch_leases,
            timeout_ms=settings.resolve_timeout_ms,
        )
        escalation = Escalation(settings.bans_to_escalate, settings.bans_within_ms, settings.escalated_ban_ms)
        bans = Bans(store=store, registry=registry, dominance=dominance, clock=clock, escalation=escalation)
        for counters, prefix in (
            (limits.counters, "limits."),
            (grants.counters, "grants."),
            (bans.counters, "bans."),
            (strict.counters, "Snavio.Dedup."),
        ):
            host.introspection.counts(counters, prefix=prefix)
        host.introspection.times("Snavio.Dedup.SlowPathLatency", strict.latency)
        host.introspection.gauges(arbiter.gauges, prefix="waiting.")
        looks = Shares("examinations", host.mesh.share("examinations", MOST_LOOKS))
        host.introspection.shares(looks)
        states = QueueStates(mailbox=host.channel("mailbox", sends=True), queues=queues, shares=looks)
        servicer = SlowServicer(
            arbiter=arbiter,
            grants=grants,
            bans=bans,
            states=states,
            forecasts=Forecasts(
                lane_rules=lane_rules,
                store=store,
                connected=lambda place: place < len(queues) and queues[place].connected.is_set(),
                states=states,
                waiting=arbiter.waiting_of,
                timeout_ms=timeout_ms,
            ),
            gate=host.gate,
            clock=clock,
            in_flight=settings.batches_in_flight,
        )
        return await host.serve(servicer.methods(), explain=True, window_bytes=HOP_WINDOW_BYTES)
