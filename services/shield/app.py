"""Composes Shield.

Never serves before key sets, denylist and suspensions were read.
"""

from __future__ import annotations

import secrets

from services.shield.admission import CROWDED_BYTES, WAITING_BYTES, AdmissionControl
from services.shield.caches import make_caches
from services.shield.nonces import NonceShares
from services.shield.refused_batch import MAX_BATCH_COMMANDS
from services.shield.servicer import (
    ANSWER_SECONDS,
    MAX_BATCH_BYTES,
    MAX_PAYLOAD_BYTES,
    ShieldServicer,
)
from services.shield.settings import ShieldSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.hop.client import BatchClient
from snavio.hop.fair_queue import FairSendQueue
from snavio.host.service import HostedService
from snavio.native import Admission
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.telemetry.events import EventJournal
from snavio.telemetry.latency import LatencyWindow
from snavio.telemetry.tally import VerdictCounts


class ShieldApp(HostedService[ShieldSettings]):
    """One Shield process. Tests may look at `admission`, `refreshes` and `fast`."""

    service = "shield"

    def __init__(self, mesh: MeshSettings, settings: ShieldSettings, clock: Clock) -> None:
        super().__init__(mesh, settings, clock)
        host = self.host
        # A new audience with every start: nothing that an earlier life of this process admitted, or that
        # was signed for it with a stamp in the future, can be played to the empty nonce table of this one.
        self._audience = f"{settings.instance}:{secrets.token_hex(8)}"
        nonces = mesh.share("nonces", settings.nonce_capacity)
        admission = self.admission = Admission(
            audience=self._audience,
            window_ms=settings.window_ms,
            nonce_capacity=nonces.total,
            nonce_share_per_tenant=nonces.per_tenant,
            nonce_reserve=nonces.reserve,
            max_batch_bytes=MAX_BATCH_BYTES,
            max_batch_commands=MAX_BATCH_COMMANDS,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
        )
        host.reporting.gather = lambda: [block for _, block in admission.flood_telemetry(clock.unix_ns())]
        host.introspection.native(admission.counters, gauges=frozenset({"nonces_live"}), prefix="admission.")
        host.introspection.shares(NonceShares(admission, nonces))
        self.refreshes = EventJournal(epoch=host.epoch, max_events=256)
        host.introspection.counts(self.refreshes.counters, prefix="events.")
        queue = FairSendQueue(max_bytes=WAITING_BYTES, crowded_bytes=CROWDED_BYTES, what="The way to Fast")
        self.fast = BatchClient(
            host.channel("fast"),
            "/snavio.v1.Fast/Dispatch",
            clock=clock,
            instance=settings.instance,
            epoch=host.epoch,
            waiting=queue,
        )
        host.introspection.link("fast", self.fast.connected.is_set)

    async def compose(self) -> int:
        """Read keys, denylist and suspensions, connect to Fast, then serve."""
        host, settings, clock = self.host, self._settings, self.host.clock
        freshness = make_caches(host, settings, self.admission, self.refreshes, holder=self._audience)
        await host.run(freshness, within_s=settings.start_within_s)
        await host.run(self.fast)
        tally, latency = VerdictCounts(), LatencyWindow(clock=clock)
        host.introspection.counts(tally.read, prefix="outcome.")
        host.introspection.times("admit_to_verdict", latency.read)
        control = AdmissionControl(
            admission=self.admission,
            freshness=freshness,
            fast=self.fast,
            journal=host.reporting.journal,
            tally=tally,
            latency=latency,
            clock=clock,
            budget_ms=host.mesh.budget_ms,
        )
        servicer = ShieldServicer(
            admission_control=control,
            gate=host.gate,
            clock=clock,
            audience=self._audience,
            window_ms=settings.window_ms,
            in_flight=settings.batches_in_flight,
            bodies=host.shares.bodies,
        )
        return await host.serve(
            servicer.methods(),
            explain=True,
            window_bytes=HOP_WINDOW_BYTES,
            unary_limit_s=ANSWER_SECONDS,
        )
