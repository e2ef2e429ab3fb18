"""Builds the mailbox out of its parts, starts it and ends it in order.

The only place that knows them all. Never serves before the store is open and its topics are counted.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.mailbox.backlog import backlog
from services.mailbox.commits import Commits
from services.mailbox.delivery import Delivery
from services.mailbox.intake import Intake
from services.mailbox.receiving import Receiving, Waiters
from services.mailbox.rows import Rows
from services.mailbox.servicer import MailboxServicer
from services.mailbox.settings import MailboxSettings
from services.mailbox.settling import Settlements
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import Unavailable
from snavio.ports.mailbox_store import MailboxStore, Progress
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.denylist import denylist_pull
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.renewal import mesh_renewal
from snavio.transport.server import MeshServer
from snavio.wiring import open_mailbox_store
from snavio.worker import Worker

SCAN_SECONDS = 0.025
IDLE_SCAN_SECONDS = 0.1
GRACE_SECONDS = 5.0


class MailboxApp:
    """One mailbox process."""

    def __init__(self, mesh: MeshSettings, settings: MailboxSettings, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._files = CertificateFiles.in_folder(mesh.certificates("mailbox"))
        self._gate = Gate(clock=clock)
        self._waiters = Waiters()
        self._stopping = False
        self._scanner: asyncio.Task[None] | None = None
        self._store: MailboxStore | None = None
        self._commits: Commits | None = None
        self._worker: Worker | None = None
        self._server: MeshServer | None = None
        self._signer = MeshChannel(
            mesh.signer, files=self._files, service="signer", trust_domain=mesh.trust_domain
        )
        self._denylist = denylist_pull(
            self._signer, self._gate, clock=clock, interval_s=mesh.pull_interval_ms / 1000
        )
        self._renewal = mesh_renewal(mesh.certificates("mailbox"), self._signer, clock=clock)

    async def start(self) -> int:
        """Learn whom not to trust, open the store, count its topics, serve; the port."""
        await self._denylist.start(within_s=self._settings.start_within_s)
        store = self._store = await asyncio.to_thread(self._open)
        epoch = await asyncio.to_thread(store.begin_epoch, self._clock.unix_ns())
        records = await asyncio.to_thread(store.topics)
        commits = self._commits = Commits(
            store, clock=self._clock, max_waiting_bytes=self._settings.queued_bytes
        )
        self._worker = Worker("mailbox-reads")
        rows = Rows(store, worker=self._worker, max_bytes=self._settings.cached_bytes)
        delivery = Delivery(
            clock=self._clock,
            boot_epoch=epoch,
            records=records,
            woken=self._waiters.wake,
            record=self._note,
            limits=self._settings.limits(),
        )
        servicer = MailboxServicer(
            settings=self._settings,
            delivery=delivery,
            intake=Intake(store=store, commits=commits, delivery=delivery, rows=rows, clock=self._clock),
            receiving=Receiving(
                delivery=delivery, rows=rows, waiters=self._waiters, stopping=lambda: self._stopping
            ),
            settlements=Settlements(delivery=delivery, commits=commits, rows=rows),
            gate=self._gate,
            clock=self._clock,
        )
        introspection = Introspection("mailbox", clock=self._clock)
        introspection.gauges(lambda: backlog(delivery))
        introspection.times("commit", commits.latency.read)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        methods = servicer.methods()
        introspection.register(methods)
        commits.start()
        self._server = MeshServer(
            listen=self._mesh.mailbox,
            files=self._files,
            methods=methods,
            gate=self._gate,
            clock=self._clock,
            trust_domain=self._mesh.trust_domain,
        )
        self._renewal.start()
        port = await self._server.start()
        self._scanner = asyncio.create_task(_scan(delivery), name="scan")
        return port

    async def drain(self) -> None:
        """Answer what is under way, commit it, and let go of the store."""
        self._stopping = True
        self._waiters.wake_all()
        if self._server is not None:
            await self._server.drain(GRACE_SECONDS)
        if self._scanner is not None:
            self._scanner.cancel()
            await asyncio.gather(self._scanner, return_exceptions=True)
        await self._denylist.stop()
        await self._renewal.stop()
        await self._signer.close()
        if self._commits is not None:
            await self._commits.close()
        if self._store is not None and self._worker is not None:
            await self._worker.close(self._store.close)

    def _open(self) -> MailboxStore:
        folder = None if self._settings.amnesia else self._mesh.state_dir / "mailbox"
        return open_mailbox_store(folder, max_bytes=self._settings.max_store_bytes)

    def _note(self, progress: Progress) -> None:
        if self._commits is not None:
            with contextlib.suppress(Unavailable):  # stopping: the attempt is then not counted
                self._commits.submit(progress=(progress,))


async def _scan(delivery: Delivery) -> None:
    """Wake those who wait for messages whose lease or delay ends while nobody calls."""
    while True:
        await asyncio.sleep(SCAN_SECONDS if delivery.expecting else IDLE_SCAN_SECONDS)
        delivery.tick()


def build(mesh: MeshSettings, settings: MailboxSettings, clock: Clock) -> MailboxApp:
    """The mailbox, not yet started."""
    return MailboxApp(mesh, settings, clock)
