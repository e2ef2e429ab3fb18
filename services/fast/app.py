"""Composes Fast."""

from __future__ import annotations

from services.fast.directory import CachedDirectory
from services.fast.dispatch import Dispatcher
from services.fast.servicer import FastServicer
from services.fast.settings import FastSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.native import Dispatch
from snavio.snapshot.platform_keys import PlatformKeys
from snavio.snapshot.reader import SnapshotReader
from snavio.telemetry.journal import Journal
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.denylist import denylist_pull
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.link import BatchLink
from snavio.transport.renewal import mesh_renewal
from snavio.transport.server import MeshServer
from snavio.transport.stream import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS
from snavio.wiring import mailbox_queue, open_archive, open_watermark


class FastApp:
    """Fast, ready to start."""

    def __init__(self, mesh: MeshSettings, settings: FastSettings, clock: Clock) -> None:
        files = CertificateFiles.in_folder(mesh.certificates("fast"))
        interval_s = mesh.pull_interval_ms / 1000
        self._settings = settings
        self._channels = {
            name: MeshChannel(address, files=files, service=name, trust_domain=mesh.trust_domain)
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
        )
        self._archive = open_archive(mesh.snapshots())
        snapshots = SnapshotReader(
            archive=self._archive,
            keys=PlatformKeys(self._channels["signer"]).verifying,
            watermark=open_watermark(mesh.state_dir / "fast" / f"{settings.instance}.snapshot"),
            clock=clock,
        )
        self._directory = CachedDirectory(
            dispatch=dispatch,
            registry=self._channels["registry"],
            clock=clock,
            interval_s=interval_s,
            snapshots=snapshots if settings.use_snapshots else None,
        )
        epoch = clock.unix_ns()
        self._mailbox = mailbox_queue(
            self._channels["mailbox"], clock=clock, instance=settings.instance, epoch=epoch
        )
        self._slow = BatchLink(
            self._channels["slow"],
            "/snavio.v1.Slow/Arbitrate",
            clock=clock,
            instance=settings.instance,
            epoch=epoch,
        )
        journal = Journal()
        dispatcher = Dispatcher(
            dispatch=dispatch,
            directory=self._directory,
            queues=[self._mailbox],
            slow=self._slow,
            journal=journal,
            clock=clock,
            budget_ms=mesh.budget_ms,
        )
        gate = Gate(clock=clock)
        self._denylist = denylist_pull(self._channels["signer"], gate, clock=clock, interval_s=interval_s)
        servicer = FastServicer(
            dispatcher=dispatcher, gate=gate, clock=clock, in_flight=settings.batches_in_flight
        )
        introspection = Introspection("fast", instance=settings.instance, clock=clock)
        introspection.native(dispatch.counters, gauges=frozenset({"routes", "acls"}), prefix="dispatch.")
        introspection.counts(journal.counters, prefix="journal.")
        introspection.counts(snapshots.counters)
        self._renewal = mesh_renewal(mesh.certificates("fast"), self._channels["signer"], clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.link("mailbox", self._mailbox.connected.is_set)
        introspection.link("slow", self._slow.connected.is_set)
        methods = servicer.methods()
        introspection.register(methods)
        self._server = MeshServer(
            listen=mesh.fast,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
        )

    async def start(self) -> int:
        """Read the directory, then serve."""
        await self._denylist.start(within_s=self._settings.start_within_s)
        await self._directory.start(within_s=self._settings.start_within_s)
        await self._mailbox.start()
        await self._slow.start()
        self._renewal.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking batches, answer what was taken."""
        await self._server.drain(grace_s=5.0)
        await self._slow.close()
        await self._mailbox.close()
        await self._directory.stop()
        await self._denylist.stop()
        await self._archive.close()
        await self._renewal.stop()
        for channel in self._channels.values():
            await channel.close()


def build(mesh: MeshSettings, settings: FastSettings, clock: Clock) -> FastApp:
    """The composition root."""
    return FastApp(mesh, settings, clock)
