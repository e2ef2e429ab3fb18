"""Composes Slow."""

from __future__ import annotations

from services.slow.arbitration import Arbiter
from services.slow.servicer import SlowServicer
from services.slow.settings import SlowSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.telemetry.journal import Journal
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.denylist import denylist_pull
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.renewal import mesh_renewal
from snavio.transport.server import MeshServer
from snavio.wiring import mailbox_queue


class SlowApp:
    """Slow, ready to start."""

    def __init__(self, mesh: MeshSettings, settings: SlowSettings, clock: Clock) -> None:
        files = CertificateFiles.in_folder(mesh.certificates("slow"))
        self._settings = settings
        self._channels = {
            name: MeshChannel(address, files=files, service=name, trust_domain=mesh.trust_domain)
            for name, address in (
                ("registry", mesh.registry),
                ("mailbox", mesh.mailbox),
                ("signer", mesh.signer),
            )
        }
        self._mailbox = mailbox_queue(
            self._channels["mailbox"], clock=clock, instance=settings.instance, epoch=clock.unix_ns()
        )
        journal = Journal()
        arbiter = Arbiter(
            registry=self._channels["registry"],
            queues=[self._mailbox],
            journal=journal,
            clock=clock,
            budget_ms=mesh.budget_ms,
            resolve_timeout_ms=settings.resolve_timeout_ms,
        )
        gate = Gate(clock=clock)
        self._denylist = denylist_pull(
            self._channels["signer"], gate, clock=clock, interval_s=mesh.pull_interval_ms / 1000
        )
        servicer = SlowServicer(arbiter=arbiter, gate=gate, clock=clock, in_flight=settings.batches_in_flight)
        introspection = Introspection("slow", instance=settings.instance, clock=clock)
        introspection.counts(journal.counters, prefix="journal.")
        self._renewal = mesh_renewal(mesh.certificates("slow"), self._channels["signer"], clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.link("mailbox", self._mailbox.connected.is_set)
        methods = servicer.methods()
        introspection.register(methods)
        self._server = MeshServer(
            listen=mesh.slow,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
        )

    async def start(self) -> int:
        """Read the denylist, then serve."""
        await self._denylist.start(within_s=self._settings.start_within_s)
        await self._mailbox.start()
        self._renewal.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking batches, answer what was taken."""
        await self._server.drain(grace_s=5.0)
        await self._mailbox.close()
        await self._denylist.stop()
        await self._renewal.stop()
        for channel in self._channels.values():
            await channel.close()


def build(mesh: MeshSettings, settings: SlowSettings, clock: Clock) -> SlowApp:
    """The composition root."""
    return SlowApp(mesh, settings, clock)
