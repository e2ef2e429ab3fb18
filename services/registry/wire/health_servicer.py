"""Health of routes on the wire: for operators all of them, for a tenant its own targets'.

Never tells a tenant whether another has a target, or how its queue is.
"""

from __future__ import annotations

from typing import Final

from services.registry.health.route_watch import RouteWatch, WatchedQueue
from services.registry.reads.visibility import sees_all
from snavio.domain.directory import require_name
from snavio.domain.directory.rules import require_target
from snavio.errors import NotAllowed
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as wire

MOST: Final = 1000
USUAL: Final = 500


class HealthServicer:
    """The handler of health."""

    def __init__(self, watch: RouteWatch) -> None:
        self._watch = watch

    def register(self, methods: Methods) -> None:
        """Add the handler."""
        methods.unary(
            "/snavio.v1.Registry/ListRouteHealth", self.list_route_health, wire.ListRouteHealthRequest
        )

    async def list_route_health(
        self, request: wire.ListRouteHealthRequest, call: Call
    ) -> wire.ListRouteHealthResponse:
        if request.tenant:
            require_name(request.tenant, "tenant")
        if request.target:
            require_target(request.target, "target")
        reader = call.peer.identity
        tenant: str | None = request.tenant or None
        if not sees_all(reader):
            if request.tenant and request.tenant != reader.tenant:
                raise NotAllowed("A tenant sees the health of its own routes.", reason="not-owner")
            tenant = reader.tenant
        limit = min(request.limit or USUAL, MOST)
        found = self._watch.of(tenant=tenant, target=request.target, unhealthy=request.unhealthy)
        beyond = [
            each for each in found if (each.topic, each.kind) > (request.after, 3 if request.after else 0)
        ]
        # Pages go on after a topic, which may have a queue of each kind.
        while 1 < limit < len(beyond) and beyond[limit - 1].topic == beyond[limit].topic:
            limit -= 1
        return wire.ListRouteHealthResponse(
            route=[_told(each) for each in beyond[:limit]], more=len(beyond) > limit
        )


def _told(queue: WatchedQueue) -> wire.RouteHealth:
    told = wire.RouteHealth(
        tenant=queue.tenant,
        target=queue.target,
        name=queue.names[:100],
        topic=queue.topic,
        queue_kind=wire.QueueKind.Name(int(queue.kind)),
        status=queue.health.status.value,
        evidence=queue.health.evidence,
        since_unix_ns=queue.since_unix_ns,
        expected_drain_seconds=queue.drain_s,
    )
    if queue.looks:
        look = queue.looks[-1]
        told.looked_unix_ns = look.at_unix_ns
        told.depth, told.inflight = look.depth, look.inflight
        told.oldest_ms = round((look.oldest_s or 0.0) * 1e3)
        told.oldest_estimated = look.oldest_estimated
        if look.dead is not None:
            told.dead = look.dead
        told.last_received_unix_ns = look.last_received_unix_ns
        told.last_receiver = look.last_receiver
    return told
