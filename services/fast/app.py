"""Composes Fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from services.fast.bans import WarmBans
from services.fast.directory import CachedDirectory
from services.fast.dispatch import Dispatcher
from services.fast.expiry import Expiry
from services.fast.grants import GrantKeeper
from services.fast.servicer import FastServicer
from services.fast.settings import FastSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.revocation import CEILING_S
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.fair_queue import FairSendQueue
from snavio.hop.server_stream import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS
from snavio.host.introspection import Introspection
from snavio.native import Dispatch
from snavio.replication.denylist import denylist_poller
from snavio.rpc.capability_request import sender
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.rpc.renewal import mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.signed.platform_keys import PlatformKeys
from snavio.signed.snapshot_reader import SnapshotReader
from snavio.telemetry.cache_meter import ACL, ROUTING, USAGE, CacheMeter
from snavio.telemetry.events import Event, EventJournal
from snavio.telemetry.explain_servicer import ExplainServicer
from snavio.telemetry.recent_commands import RecentCommands
from snavio.telemetry.reporting import Reporting
from snavio.wiring import open_archive, open_watermark, target_queues

# Taken off every fresh time, by chance, so that instances do not ask again in step. It only shortens.
MOST_SHORTENED_PERMILLE = 100
# What is told of an ACL cache whose entries have a profile each: that of the default profile.
ACL_FRESH_S, ACL_STALE_S = 30.0, 90.0
# And from here on the most sensitive of them are stale.
CRITICAL_FRESH_S = 2.0
# Older than this, no right of any profile is used.
LONGEST_BOUND_MS = round(max(CEILING_S.values()) * 1000)
GAUGES = frozenset({"routes", "acls", "bans", "unknown_routes", "remembered_deliveries", "counted_sources"})


class FastApp:
    """Fast, ready to start."""

    def __init__(self, mesh: MeshSettings, settings: FastSettings, clock: Clock) -> None:
        files = CertificateFiles.in_folder(mesh.certificates("fast"))
        interval_s = mesh.pull_interval_ms / 1000
        self._settings = settings
        capability_provider = sender(mesh.signer, files=files, trust_domain=mesh.trust_domain, clock=clock)
        self._channels = {
            name: MeshChannel(
                address,
                files=files,
                service=name,
                trust_domain=mesh.trust_domain,
                capability_provider=capability_provider if name == "mailbox" else None,
            )
            for name, address in (
                ("slow", mesh.slow),
                ("registry", mesh.registry),
                ("mailbox", mesh.mailbox),
                ("signer", mesh.signer),
            )
        }
        dispatch = Dispatch(
            max_batch_bytes=MESH_BATCH_BYTES,
            max_batch_commands=MESH_BATCH_COMMANDS,
            route_fresh_ms=settings.route_fresh_ms,
            route_stale_ms=settings.route_stale_ms,
            shorten_permille=random.randint(0, MOST_SHORTENED_PERMILLE),  # noqa: S311 spreads load
            cold_only=settings.dispatch_mode == "cold-only",
            duplicates=settings.remembered_deliveries,
            unknown_routes=settings.unknown_routes,
            unknown_routes_per_source=settings.unknown_routes_per_source,
            unknown_ms=settings.unknown_route_ms,
            counted_sources=settings.counted_sources,
        )
        epoch = clock.unix_ns()
        self._reporting = Reporting(mesh, service="fast", instance=settings.instance, clock=clock)
        self._events = EventJournal(epoch=epoch, onward=self._reporting.record)
        # Refreshes are many: in a journal of their own they push nothing out that matters more.
        self._refreshes = EventJournal(epoch=epoch, max_events=256)

        def record(event: Event) -> None:
            self._events.record(event, at_unix_ns=clock.unix_ns())

        def record_refresh(event: Event) -> None:
            self._refreshes.record(event, at_unix_ns=clock.unix_ns())

        meters = [
            CacheMeter(
                name,
                fresh_s=fresh_s,
                stale_s=stale_s,
                age_ns=lambda: dispatch.age_ns(clock.mono_ns()),
                clock=clock,
                record=record_refresh,
                onward=self._reporting.record,
                first_stale_s=first_stale_s,
            )
            for name, fresh_s, stale_s, first_stale_s in (
                (ACL, ACL_FRESH_S, ACL_STALE_S, CRITICAL_FRESH_S),
                (ROUTING, settings.route_fresh_ms / 1000, settings.route_stale_ms / 1000, None),
            )
        ]
        self._archive = open_archive(mesh.snapshots())
        snapshots = SnapshotReader(
            archive=self._archive,
            keys=PlatformKeys(self._channels["signer"]).verifying,
            watermark=open_watermark(mesh.state_dir / "fast" / f"{settings.instance}.snapshot"),
            clock=clock,
            refused=self._reporting.snapshot_refused,
        )
        self._directory = CachedDirectory(
            dispatch=dispatch,
            registry=self._channels["registry"],
            clock=clock,
            interval_s=interval_s,
            instance=settings.instance,
            bound_ms=LONGEST_BOUND_MS,
            snapshots=snapshots if settings.use_snapshots else None,
            meters=meters,
        )
        self._queues = target_queues(
            mesh, self._channels["mailbox"], clock=clock, instance=settings.instance, epoch=epoch
        )
        escalations = FairSendQueue(
            max_bytes=settings.escalation_bytes,
            max_source_bytes=settings.escalation_bytes_per_source,
            max_source_commands=settings.escalations_per_source,
            what="Escalations",
        )
        self._slow = BatchClient(
            self._channels["slow"],
            "/snavio.v1.Slow/Arbitrate",
            clock=clock,
            instance=settings.instance,
            epoch=epoch,
            waiting=escalations,
            # Small batches, soon: who has joined one is past the fair line.
            limits=ClientLimits(eager=2, linger_s=0.001, max_batch_commands=1000),
        )
        self._grants = GrantKeeper(
            dispatch=dispatch,
            slow=self._channels["slow"],
            clock=clock,
            instance=settings.instance,
            pause_s=settings.grant_pause_ms / 1000,
        )
        self._bans = WarmBans(
            slow=self._channels["slow"], clock=clock, instance=settings.instance, record=record
        )
        self._upkeep = Expiry(dispatch=dispatch, clock=clock)
        recent = RecentCommands(max_bytes=mesh.explain_max_mb << 20)
        self._reporting.journal.seen = recent.keep
        dispatcher = Dispatcher(
            dispatch=dispatch,
            directory=self._directory,
            grants=self._grants,
            bans=self._bans,
            queues=self._queues,
            slow=self._slow,
            journal=self._reporting.journal,
            clock=clock,
            budget_ms=mesh.budget_ms,
        )
        gate = CertificateGate(clock=clock)
        self._denylist = denylist_poller(
            self._channels["signer"], gate, clock=clock, interval_s=interval_s, stale_s=mesh.denylist_stale_s
        )
        servicer = FastServicer(
            dispatcher=dispatcher, gate=gate, clock=clock, in_flight=settings.batches_in_flight
        )
        introspection = Introspection("fast", instance=settings.instance, clock=clock)
        self._tell(introspection, dispatch, meters, escalations)
        self._reporting.introspect(introspection)
        self._reporting.certificates(gate, introspection)
        introspection.gauges(recent.gauges, prefix="recent.")
        introspection.gauges(self._directory.gauges, prefix="directory.")
        introspection.counts(snapshots.counters)
        self._renewal = mesh_renewal(mesh.certificates("fast"), self._channels["signer"], clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        for kind in sorted(mesh.queue_kinds()):
            introspection.link(kind.name.lower(), self._queues[kind - 1].connected.is_set)
        introspection.gauges(self._denylist.gauges, prefix="denylist.")
        introspection.link("slow", self._slow.connected.is_set)
        methods = servicer.methods()
        introspection.register(methods)
        ExplainServicer(
            recent, instance=settings.instance, registry=self._channels["registry"], clock=clock
        ).register(methods)
        shares = ServerShares(mesh.share)
        introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=mesh.fast,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            window_bytes=HOP_WINDOW_BYTES,
            shares=shares,
        )

    def _tell(
        self,
        introspection: Introspection,
        dispatch: Dispatch,
        meters: Sequence[CacheMeter],
        escalations: FairSendQueue,
    ) -> None:
        """What operators see of the decisions, under document 001's names where it has one."""
        introspection.native(dispatch.counters, gauges=GAUGES, prefix="dispatch.")
        for phase in ("Fresh", "Stale", "Expired"):
            _tell(introspection, dispatch, f"{USAGE}.{phase}", f"usage.{phase.lower()}")
        for meter, counter in zip(meters, ("usage.acl.stale", "usage.routing.stale"), strict=True):
            meter.register(introspection, _reading(dispatch, counter))
        # Where it is decided, and so once in the fleet: here what is answered from memory; Slow counts all the others,
        # among them those of routes that Fast does not know.
        _tell(introspection, dispatch, "Snavio.Dedup.StrictModeUsage", "duplicates")
        _tell(introspection, dispatch, "Snavio.Dedup.DuplicatesPrevented", "duplicates")
        _tell(introspection, dispatch, "Snavio.Dedup.Escalations", "escalated.dedupe_required")
        introspection.counts(self._grants.counters, prefix="grants.")
        introspection.counts(self._bans.counters, prefix="bans.")
        introspection.counts(lambda: {"saturated": escalations.refused}, prefix="escalations.")
        introspection.gauges(
            lambda: {"waiting": escalations.commands, "sources": escalations.sources}, prefix="escalations."
        )
        introspection.counts(self._events.counters, prefix="events.")
        introspection.counts(self._refreshes.counters, prefix="events.")

    async def start(self) -> int:
        """Read the directory, then serve."""
        await self._denylist.start(within_s=self._settings.start_within_s)
        await self._directory.start(within_s=self._settings.start_within_s)
        for queue in self._queues:
            await queue.start()
        await self._slow.start()
        self._grants.start()
        self._bans.start()
        self._upkeep.start()
        self._renewal.start()
        self._reporting.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking batches, answer what was taken."""
        await self._server.drain(grace_s=5.0)
        await self._upkeep.stop()
        await self._bans.stop()
        await self._grants.stop()
        await self._slow.close()
        for queue in self._queues:
            await queue.close()
        await self._directory.stop()
        await self._denylist.stop()
        await self._archive.close()
        await self._renewal.stop()
        await self._reporting.stop()
        for channel in self._channels.values():
            await channel.close()


def _reading(dispatch: Dispatch, counter: str) -> Callable[[], int]:
    return lambda: dispatch.counters()[counter]


def _tell(introspection: Introspection, dispatch: Dispatch, name: str, counter: str) -> None:
    """A native counter under a name of document 001."""
    introspection.counts(lambda: {name: dispatch.counters()[counter]})


def build(mesh: MeshSettings, settings: FastSettings, clock: Clock) -> FastApp:
    """The composition root."""
    return FastApp(mesh, settings, clock)
