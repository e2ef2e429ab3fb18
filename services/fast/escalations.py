"""The stream to Slow: every source waits in a queue of its own, and the source that was served least is next.

Never lets a flood of one source, banned or not, keep the escalations of others waiting; what does not fit into a
source's own share, or into a tenant's half of all, is refused with a hint.
"""

from __future__ import annotations

from services.fast.settings import FastSettings
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.fair_queue import FairSendQueue
from snavio.host.service import ServiceHost

METHOD = "/snavio.v1.Slow/Arbitrate"


def make_escalations(host: ServiceHost, settings: FastSettings) -> BatchClient:
    """The client for escalations, with its fair queue, shown to operators."""
    queue = FairSendQueue(
        max_bytes=settings.escalation_bytes,
        # Shares of sources alone are no bound: a tenant has as many sources as it registers, and could fill it all.
        max_tenant_bytes=settings.escalation_bytes // 2,
        max_source_bytes=settings.escalation_bytes_per_source,
        max_source_commands=settings.escalations_per_source,
        what="Escalations",
    )
    slow = BatchClient(
        host.channel("slow"),
        METHOD,
        clock=host.clock,
        instance=host.instance,
        epoch=host.epoch,
        waiting=queue,
        # Small batches, soon: what has joined one is past the fair queue.
        limits=ClientLimits(eager=2, linger_s=0.001, max_batch_commands=1000),
    )
    introspection = host.introspection
    introspection.link("slow", slow.connected.is_set)
    introspection.counts(lambda: {"saturated": queue.refused}, prefix="escalations.")
    introspection.gauges(lambda: {"waiting": queue.commands, "sources": queue.sources}, prefix="escalations.")
    return slow
