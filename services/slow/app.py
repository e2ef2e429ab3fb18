"""Composes Slow."""

from __future__ import annotations

from services.slow.arbitration import Arbiter, Rounds
from services.slow.bans import Bans, Escalation
from services.slow.dominance import Dominance
from services.slow.grants import Grants
from services.slow.lane_rules import LaneRules
from services.slow.limits import LimitEnforcer
from services.slow.servicer import SlowServicer
from services.slow.settings import SlowSettings
from services.slow.strict import Strict
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.claim import Terms
from snavio.errors import BadRequest
from snavio.host.introspection import Introspection
from snavio.ports.coordination import Coordination
from snavio.replication.denylist import denylist_poller
from snavio.replication.poller import Poller
from snavio.rpc.capability_request import sender
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.rpc.renewal import mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.telemetry.explain_servicer import ExplainServicer
from snavio.telemetry.recent_commands import RecentCommands
from snavio.telemetry.reporting import Reporting
from snavio.wiring import CoordinationChoice, open_coordination, target_queues


class SlowApp:
    """One Slow process. `store` stands in for the configured coordination store in tests."""

    def __init__(
        self,
        mesh: MeshSettings,
        settings: SlowSettings,
        clock: Clock,
        *,
        store: Coordination | None = None,
    ) -> None:
        least_ms = mesh.budget_ms + settings.coordination_timeout_ms
        if settings.claim_lease_ms <= least_ms:
            # A claim that can be taken over while its owner waits for the queue or for the commit is no claim.
            raise BadRequest(
                "[slow] claim_lease_ms must be over [mesh] budget_ms and [slow] coordination_timeout_ms together, "
                f"which are {least_ms}.",
                reason="bad-configuration",
            )
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._store = store
        self._files = CertificateFiles.in_folder(mesh.certificates("slow"))
        capability_provider = sender(
            mesh.signer, files=self._files, trust_domain=mesh.trust_domain, clock=clock
        )
        self._channels = {
            name: MeshChannel(
                address,
                files=self._files,
                service=name,
                trust_domain=mesh.trust_domain,
                capability_provider=capability_provider if name == "mailbox" else None,
            )
            for name, address in (
                ("registry", mesh.registry),
                ("mailbox", mesh.mailbox),
                ("signer", mesh.signer),
            )
        }
        self._epoch = clock.unix_ns()
        self._queues = target_queues(
            mesh, self._channels["mailbox"], clock=clock, instance=settings.instance, epoch=self._epoch
        )
        self._reporting = Reporting(mesh, service="slow", instance=settings.instance, clock=clock)
        self._gate = CertificateGate(clock=clock)
        self._denylist = denylist_poller(
            self._channels["signer"],
            self._gate,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            stale_s=mesh.denylist_stale_s,
        )
        self._renewal = mesh_renewal(mesh.certificates("slow"), self._channels["signer"], clock=clock)
        self._introspection = Introspection("slow", instance=settings.instance, clock=clock)
        self._introspection.gauges(self._renewal.gauges, prefix="certificate.")
        self._introspection.gauges(self._denylist.gauges, prefix="denylist.")
        for kind in sorted(mesh.queue_kinds()):
            self._introspection.link(kind.name.lower(), self._queues[kind - 1].connected.is_set)
        self._recent = RecentCommands(max_bytes=mesh.explain_max_mb << 20)
        self._introspection.gauges(self._recent.gauges, prefix="recent.")
        self._arbiter: Arbiter | None = None
        self._presence: Poller | None = None
        self._server: MeshServer | None = None

    async def start(self) -> int:
        """Open the coordination store, read the denylist, then serve."""
        mesh, settings = self._mesh, self._settings
        if self._store is None:
            self._store = await _open_coordination(mesh, settings, self._clock)
        methods = self._compose(self._store).methods()
        self._introspection.register(methods)
        ExplainServicer(
            self._recent, instance=settings.instance, registry=self._channels["registry"], clock=self._clock
        ).register(methods)
        shares = ServerShares(mesh.share)
        self._introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=mesh.slow,
            files=self._files,
            methods=methods,
            gate=self._gate,
            clock=self._clock,
            trust_domain=mesh.trust_domain,
            window_bytes=HOP_WINDOW_BYTES,
            shares=shares,
        )
        await self._denylist.start(within_s=settings.start_within_s)
        for queue in self._queues:
            await queue.start()
        self._renewal.start()
        assert self._arbiter is not None
        self._arbiter.start()
        assert self._presence is not None
        self._presence.begin()
        self._reporting.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking batches, answer what was taken."""
        if self._server is not None:
            await self._server.drain(grace_s=5.0)
        for queue in self._queues:
            await queue.close()
        if self._arbiter is not None:
            await self._arbiter.stop()
        if self._presence is not None:
            await self._presence.stop()
        if self._store is not None:
            await self._store.close()
        await self._denylist.stop()
        await self._renewal.stop()
        await self._reporting.stop()
        for channel in self._channels.values():
            await channel.close()

    def _compose(self, store: Coordination) -> SlowServicer:
        settings, clock, registry = self._settings, self._clock, self._channels["registry"]
        dominance = Dominance(clock=clock)
        self._reporting.journal.seen = self._recent.keep
        timeout_ms = settings.coordination_timeout_ms
        lane_rules = LaneRules(
            registry=registry,
            timeout_ms=settings.resolve_timeout_ms,
            instance=settings.instance,
            bound_ms=self._mesh.budget_ms,
        )
        interval_s = self._mesh.pull_interval_ms / 1000
        self._presence = Poller("presence", lane_rules.report, clock=clock, interval_s=interval_s)
        limits = LimitEnforcer(store=store, dominance=dominance, clock=clock, timeout_ms=timeout_ms)
        strict = Strict(
            store=store,
            clock=clock,
            instance=settings.instance,
            epoch=self._epoch,
            keep_ms=settings.dedupe_ms,
            remembered=settings.remembered_deliveries,
            timeout_ms=timeout_ms,
        )
        self._arbiter = Arbiter(
            lane_rules=lane_rules,
            limits=limits,
            strict=strict,
            queues=self._queues,
            journal=self._reporting.journal,
            clock=clock,
            budget_ms=self._mesh.budget_ms,
            rounds=Rounds(
                at_once=settings.rounds,
                commands=settings.round_commands,
                quantum=settings.quantum_commands,
                max_waiting=settings.max_waiting_commands,
                max_waiting_per_source=settings.max_waiting_per_source,
            ),
        )
        grants = Grants(
            lane_rules=lane_rules,
            store=store,
            leases=settings.prefetch_leases,
            timeout_ms=settings.resolve_timeout_ms,
        )
        bans = Bans(
            store=store,
            registry=registry,
            dominance=dominance,
            clock=clock,
            escalation=Escalation(
                settings.bans_to_escalate, settings.bans_within_ms, settings.escalated_ban_ms
            ),
        )
        introspection = self._introspection
        self._reporting.introspect(introspection)
        self._reporting.certificates(self._gate, introspection)
        introspection.counts(limits.counters, prefix="limits.")
        introspection.counts(grants.counters, prefix="grants.")
        introspection.counts(bans.counters, prefix="bans.")
        introspection.counts(strict.counters, prefix="Snavio.Dedup.")
        introspection.times("Snavio.Dedup.SlowPathLatency", strict.latency)
        introspection.gauges(self._arbiter.gauges, prefix="waiting.")
        return SlowServicer(
            arbiter=self._arbiter,
            grants=grants,
            bans=bans,
            gate=self._gate,
            clock=clock,
            in_flight=settings.batches_in_flight,
        )


async def _open_coordination(mesh: MeshSettings, settings: SlowSettings, clock: Clock) -> Coordination:
    url = settings.coordination_url
    return await open_coordination(
        CoordinationChoice(
            kind=settings.coordination,
            folder=mesh.state_dir / "slow",
            instance=settings.instance,
            url=url.get_secret_value() if url is not None else "",
            prefix=f"snavio:{mesh.trust_domain}",
            table=settings.coordination_table,
            region=settings.coordination_region or "",
            endpoint_url=settings.coordination_endpoint_url,
            terms=Terms(lease_ms=settings.claim_lease_ms, keep_ms=settings.dedupe_ms),
            max_claims=settings.max_claims,
            max_claims_per_source=settings.max_claims_per_source,
            timeout_s=settings.coordination_timeout_ms / 1000,
            replicas=settings.coordination_replicas,
        ),
        clock=clock,
    )


def build(mesh: MeshSettings, settings: SlowSettings, clock: Clock) -> SlowApp:
    """The composition root."""
    return SlowApp(mesh, settings, clock)
