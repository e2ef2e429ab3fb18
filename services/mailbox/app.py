"""Builds the mailbox out of its parts, starts it and ends it in order.

The only place that knows them all. Never serves before the store is open, its topics are counted, and it is known
whom to trust.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.mailbox.access.capabilities import Capabilities
from services.mailbox.access.roots import Roots, roots_pull
from services.mailbox.background import BackgroundWork
from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.delivery.receiving import Receiving
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.intake.batch_intake import BatchIntake
from services.mailbox.intake.commits import Commits
from services.mailbox.intake.new_messages import MessageIntake
from services.mailbox.oversight import metrics
from services.mailbox.oversight.backlog import backlog
from services.mailbox.oversight.change_requests import Oversight
from services.mailbox.oversight.listing import Listing
from services.mailbox.retention import pruning as retaining
from services.mailbox.retention.batch_rewrite import BatchRewrite
from services.mailbox.retention.empty_topics import EmptyTopics
from services.mailbox.retention.pruning import Retention
from services.mailbox.retention.store_clock import StoreClock
from services.mailbox.settings import MailboxSettings
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.leases import Settling
from services.mailbox.wire.oversight_servicer import OversightServicer
from services.mailbox.wire.servicer import MailboxServicer
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import Unavailable
from snavio.host.introspection import Introspection
from snavio.host.periodic import Periodic
from snavio.host.shares import Shares
from snavio.host.store_readers import StoreReaders
from snavio.ports.mailbox_store import MailboxStore, Progress
from snavio.replication.denylist import denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.rpc.renewal import mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.telemetry.events import EventJournal
from snavio.telemetry.reporting import Reporting
from snavio.wiring import open_mailbox_store

SCAN_SECONDS = 0.025
IDLE_SCAN_SECONDS = 0.1
GRACE_SECONDS = 5.0
INSTANCE = "mailbox-0"
"""As telemetry names it: there is one mailbox to a state folder."""
READINESS_SECONDS = 0.25
WRITES = "snavio.v1.Mailbox.Send"
"""The name under which health tells whether sends are taken; reads have the service's own."""


class MailboxApp:
    """One mailbox process."""

    def __init__(self, mesh: MeshSettings, settings: MailboxSettings, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._files = CertificateFiles.in_folder(mesh.certificates("mailbox"))
        self._gate = CertificateGate(clock=clock)
        self._waiters = Waiters(Shares("waiters", mesh.share("waiters", settings.max_waiters)))
        self._stopping = False
        self._chores: list[Periodic] = []
        self.events = EventJournal(epoch=0)
        """What happened since the start."""
        self.retention: Retention | None = None
        self._reporting = Reporting(
            mesh, service="mailbox", instance=INSTANCE, clock=clock, on_disk=not settings.amnesia
        )
        self._store: MailboxStore | None = None
        self._commits: Commits | None = None
        self._readers: StoreReaders | None = None
        self._settlements: Settlements | None = None
        self._server: MeshServer | None = None
        self._signer = MeshChannel(
            mesh.signer, files=self._files, service="signer", trust_domain=mesh.trust_domain
        )
        self._denylist = denylist_poller(
            self._signer,
            self._gate,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            stale_s=mesh.denylist_stale_s,
        )
        self._renewal = mesh_renewal(mesh.certificates("mailbox"), self._signer, clock=clock)
        roots = Roots(clock=clock)
        # As seldom as the denylist, and often enough that the cache time is the longest that a revocation takes.
        self._roots = roots_pull(
            self._signer,
            roots,
            clock=clock,
            interval_s=min(self._denylist.interval_s, settings.capability_cache_s / 2),
        )
        self._capabilities = Capabilities(
            roots=roots,
            clock=clock,
            cache_s=settings.capability_cache_s,
            signer=mesh.signer,
            refresh=self._roots.nudge,
        )

    async def start(self) -> int:
        """Learn whom not to trust, open the store, count its topics, serve; the port."""
        await self._denylist.start(within_s=self._settings.start_within_s)
        await self._roots.start(within_s=self._settings.start_within_s)
        store = self._store = await asyncio.to_thread(self._open)
        epoch = await asyncio.to_thread(store.begin_epoch, self._clock.unix_ns())
        records = await asyncio.to_thread(store.topics)
        chores = BackgroundWork()
        age = StoreClock(clock=self._clock, age_ns=await asyncio.to_thread(store.age))
        commits = self._commits = Commits(
            store,
            clock=self._clock,
            max_waiting_bytes=self._settings.queued_bytes,
            age_ns=age.now_ns,
            chores=chores,
        )
        readers = self._readers = StoreReaders("mailbox-reads")
        # Without a disk the store is the cache, and a second copy could not be wiped.
        cached = 0 if self._settings.amnesia else self._settings.cached_bytes
        rows = BatchReader(store, worker=readers, max_bytes=cached)
        policies = self._settings.policies()
        limits = self._settings.limits()
        tenants = MailboxShares.of(
            limits,
            self._mesh.share,
            store_bytes=self._settings.max_store_bytes,
            held=store.stored_bytes,
        )
        delivery = Delivery(
            clock=self._clock,
            boot_epoch=epoch,
            records=records,
            woken=self._waiters.wake,
            record=self._note,
            limits=limits,
            shares=tenants,
            policies=policies,
            bury=self._bury,
            age_ns=age.now_ns,
        )
        settlements = self._settlements = Settlements(
            delivery=delivery, commits=commits, rows=rows, clock=self._clock
        )
        listing = Listing(delivery=delivery, store=store, rows=rows, worker=readers)
        oversight = Oversight(
            delivery=delivery, listing=listing, settlements=settlements, store=store, clock=self._clock
        )
        events = self.events = EventJournal(epoch=epoch, onward=self._reporting.record)
        batch_rewrite = BatchRewrite(
            delivery=delivery, oversight=oversight, listing=listing, rows=rows, store=store, age=age
        )
        retention = self.retention = Retention(
            delivery=delivery,
            oversight=oversight,
            listing=listing,
            batch_rewrite=batch_rewrite,
            rows=rows,
            commits=commits,
            store=store,
            age=age,
            events=events,
            clock=self._clock,
            empty_topics=EmptyTopics(
                delivery=delivery, listing=listing, store=store, awaited=self._waiters.waiting
            ),
            chores=chores,
        )
        receiving = Receiving(
            delivery=delivery,
            rows=rows,
            waiters=self._waiters,
            stopping=lambda: self._stopping,
            clock=self._clock,
        )
        intake = BatchIntake(store=store, commits=commits, delivery=delivery, rows=rows, clock=self._clock)
        servicer = MailboxServicer(
            settings=self._settings,
            delivery=delivery,
            intake=intake,
            message_intake=MessageIntake(
                store=store, commits=commits, delivery=delivery, intake=intake, clock=self._clock
            ),
            receiving=receiving,
            settlements=settlements,
            capabilities=self._capabilities,
            gate=self._gate,
            clock=self._clock,
        )
        introspection = Introspection("mailbox", clock=self._clock)
        introspection.for_people(lambda: backlog(delivery))
        introspection.gauges(lambda: {**store.gauges(), "dlq_ephemeral": float(self._settings.amnesia)})
        introspection.gauges(lambda: metrics.gauges(delivery))
        kept = metrics.retention(
            policies, delivery.limits, max_visibility_ms=self._settings.max_visibility_ms
        )
        introspection.gauges(lambda: kept)
        introspection.gauges(readers.gauges)
        introspection.counts(readers.counters)
        introspection.counts(
            lambda: metrics.counters(
                delivery, delivery.topics.rejected, receiving.refused, self._capabilities.denials()
            )
        )
        introspection.shares(self._waiters.shares, *tenants.all)
        introspection.counts(chores.counters)
        introspection.times("commit", commits.latency.read, ever=commits.latency.ever)
        introspection.times("enqueue", servicer.enqueue.read, ever=servicer.enqueue.ever)
        introspection.times("dequeue", receiving.latency.read, ever=receiving.latency.ever)
        introspection.times("ack", settlements.latency.read, ever=settlements.latency.ever)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.gauges(self._denylist.gauges, prefix="denylist.")
        introspection.gauges(self._capabilities.gauges, prefix="capability.")
        introspection.counts(self._capabilities.denials, prefix="capability.denied.")
        introspection.counts(events.counters, prefix="event.")
        self._reporting.introspect(introspection)
        self._reporting.certificates(self._gate, introspection)
        methods = servicer.methods()
        OversightServicer(
            listing=listing, oversight=oversight, capabilities=self._capabilities, known=delivery.topics.topic
        ).register(methods)
        introspection.register(methods)
        commits.start()
        shares = ServerShares(self._mesh.share)
        introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=self._mesh.mailbox,
            files=self._files,
            methods=methods,
            gate=self._gate,
            clock=self._clock,
            trust_domain=self._mesh.trust_domain,
            window_bytes=HOP_WINDOW_BYTES,
            shares=shares,
        )
        self._renewal.start()
        port = await self._server.start()
        self._reporting.start()
        self._look_after(self._server, delivery, commits, retention, chores)
        return port

    def _look_after(
        self,
        server: MeshServer,
        delivery: Delivery,
        commits: Commits,
        retention: Retention,
        chores: BackgroundWork,
    ) -> None:
        async def scan() -> None:
            """Wake those who wait for messages whose lease or delay ends while nobody calls."""
            delivery.tick()

        async def readiness() -> None:
            """A disk that takes no more is no reason to stop those who would empty it: only sends are not ready."""
            server.set_part(WRITES, commits.takes_sends)

        # Whoever asks before the first turn is to hear of writes too.
        server.set_part(WRITES, commits.takes_sends)
        self._chores = [
            Periodic(
                "scan",
                chores.counted("scan", scan),
                every_s=lambda: SCAN_SECONDS if delivery.expecting else IDLE_SCAN_SECONDS,
                longest_s=1.0,
                jitter=0.0,
            ),
            Periodic("readiness", chores.counted("readiness", readiness), every_s=READINESS_SECONDS),
            Periodic(
                "retention",
                chores.counted("retention", retention.step),
                every_s=lambda: retaining.TICK_SECONDS,
            ),
        ]
        for chore in self._chores:
            chore.start()

    async def drain(self) -> None:
        """Answer what is under way, commit it, and let go of the store."""
        self._stopping = True
        self._waiters.wake_all()
        if self._server is not None:
            await self._server.drain(GRACE_SECONDS)
        for chore in self._chores:
            await chore.stop()
        await self._denylist.stop()
        await self._roots.stop()
        await self._renewal.stop()
        await self._signer.close()
        if self._commits is not None:
            await self._commits.close()
        await self._reporting.stop()
        if self._store is not None and self._readers is not None:
            await self._readers.close(self._store.close)

    def _open(self) -> MailboxStore:
        folder = None if self._settings.amnesia else self._mesh.state_dir / "mailbox"
        return open_mailbox_store(
            folder, max_bytes=self._settings.max_store_bytes, max_keys=self._settings.max_replay_keys
        )

    def _bury(self, settling: Settling) -> None:
        if self._settlements is not None:
            self._settlements.bury(settling)

    def _note(self, progress: Progress) -> None:
        if self._commits is not None:
            with contextlib.suppress(Unavailable):  # stopping: the attempt is then not counted
                self._commits.submit(progress=(progress,))


def build(mesh: MeshSettings, settings: MailboxSettings, clock: Clock) -> MailboxApp:
    """The mailbox, not yet started."""
    return MailboxApp(mesh, settings, clock)
