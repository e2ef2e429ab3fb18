"""Target queues of a service that sends: opened with its host's identity and shown to operators.

Never chooses an adapter itself: wiring does.
"""

from __future__ import annotations

from snavio.host.service import ServiceHost
from snavio.ports.queue import TargetQueue
from snavio.wiring import target_queues


def open_target_queues(host: ServiceHost) -> list[TargetQueue]:
    """Every kind of target queue in the order of `QueueKind`, not running yet; configured ones show their link."""
    queues = target_queues(
        host.mesh,
        host.channel("mailbox", sends=True),
        clock=host.clock,
        instance=host.instance,
        epoch=host.epoch,
    )
    for kind in sorted(host.mesh.queue_kinds()):
        host.introspection.link(kind.name.lower(), queues[kind - 1].connected.is_set)
    return queues
