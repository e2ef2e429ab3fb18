"""Composes the mailbox.

Never serves before the store is open, its topics are counted, and the denylist and the capability roots were read.
"""

from __future__ import annotations

from services.mailbox.access.capabilities import Capabilities
from services.mailbox.access.roots import Roots, roots_pull
from services.mailbox.composition import MailboxParts, compose_parts
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.settings import MailboxSettings
from services.mailbox.status import show_mailbox
from services.mailbox.upkeep import begin_upkeep
from services.mailbox.wire.oversight_servicer import OversightServicer
from services.mailbox.wire.servicer import MailboxServicer
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.host.service import HostedService
from snavio.host.shares import Shares
from snavio.rpc.limits import HOP_WINDOW_BYTES


class MailboxApp(HostedService[MailboxSettings]):
    """One mailbox process. Tests may look at `waiters`, `capabilities` and, once it has started, at `parts`."""

    service = "mailbox"
    parts: MailboxParts

    def __init__(self, mesh: MeshSettings, settings: MailboxSettings, clock: Clock) -> None:
        self.journal = "memory" if settings.amnesia else "disk"
        super().__init__(mesh, settings, clock)
        host = self.host
        self._stopping = False
        self.waiters = Waiters(Shares("waiters", mesh.share("waiters", settings.max_waiters)))
        roots = Roots(clock=clock)
        # As seldom as the denylist, and often enough that the cache time is the longest that a revocation takes.
        self._roots = roots_pull(
            host.channel("signer"),
            roots,
            clock=clock,
            interval_s=min(host.denylist.interval_s, settings.capability_cache_s / 2),
        )
        self.capabilities = Capabilities(
            roots=roots,
            clock=clock,
            cache_s=settings.capability_cache_s,
            signer=mesh.signer,
            refresh=self._roots.nudge,
        )

    async def compose(self) -> int:
        """Read denylist and roots, open the store, count its topics, serve, and begin the work beside the traffic."""
        host, settings = self.host, self._settings
        await host.read_denylist()
        await host.run(self._roots, within_s=settings.start_within_s)
        parts = self.parts = await compose_parts(
            host, settings, waiters=self.waiters, stopping=lambda: self._stopping
        )
        servicer = MailboxServicer(
            settings=settings,
            delivery=parts.delivery,
            intake=parts.intake,
            message_intake=parts.message_intake,
            group_intake=parts.group_intake,
            receiving=parts.receiving,
            settlements=parts.settlements,
            capabilities=self.capabilities,
            gate=host.gate,
            clock=host.clock,
        )
        show_mailbox(
            host.introspection,
            settings,
            parts,
            waiters=self.waiters,
            capabilities=self.capabilities,
            servicer=servicer,
        )
        methods = servicer.methods()
        OversightServicer(
            listing=parts.listing,
            oversight=parts.oversight,
            capabilities=self.capabilities,
            known=parts.delivery.topics.topic,
        ).register(methods)
        port = await host.serve(methods, window_bytes=HOP_WINDOW_BYTES, leaving=self._leave)
        begin_upkeep(host, parts)
        return port

    def _leave(self) -> None:
        self._stopping = True
        self.waiters.wake_all()
