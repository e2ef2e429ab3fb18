"""gRPC health: one answer for a server and for each of its services and parts.

Never reports SERVING again once it drains, and never delays a drain.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from grpc_health.v1 import health_pb2

from snavio.errors import NotFound
from snavio.rpc.call import Call
from snavio.rpc.methods import Methods, parsed

HEALTH: Final = "grpc.health.v1.Health"
_MAX_BYTES: Final = 1 << 10

_Status = health_pb2.HealthCheckResponse


class Health:
    """The health of one server: one answer for it and for each of its services.

    gRPC's own servicer is not used because its watchers hold a drain until the grace is over.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = frozenset(("", *services))
        self._parts: dict[str, bool] = {}
        self._serving = True
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def serving(self) -> bool:
        """The health of the server as a whole."""
        return self._serving

    def register(self, methods: Methods) -> None:
        """Serve the health methods."""
        methods.unary(f"/{HEALTH}/Check", self._check, health_pb2.HealthCheckRequest, max_bytes=_MAX_BYTES)
        methods.unary(f"/{HEALTH}/List", self._list, health_pb2.HealthListRequest, max_bytes=_MAX_BYTES)
        methods.stream_raw(f"/{HEALTH}/Watch", self._watch, max_bytes=_MAX_BYTES)

    def set_serving(self, serving: bool) -> None:
        """Set the health of the server; ignored after `close`."""
        if not self._closed and serving != self._serving:
            self._serving = serving
            self._wake()

    def set_part(self, name: str, serving: bool) -> None:
        """Set the health of one part, under a name of its own; the rest is not affected."""
        if self._parts.get(name) != serving:
            self._parts[name] = serving
            self._wake()

    def close(self) -> None:
        """NOT_SERVING, for good."""
        self.set_serving(False)
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, service: str) -> Any:
        if service not in self._services and service not in self._parts:
            return _Status.SERVICE_UNKNOWN
        serving = self._serving and self._parts.get(service, True)
        return _Status.SERVING if serving else _Status.NOT_SERVING

    async def _check(self, request: Any, _call: Call) -> Any:
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            raise NotFound("No such service here.", reason="unknown-service")
        return _Status(status=status)

    async def _list(self, _request: Any, _call: Call) -> Any:
        return health_pb2.HealthListResponse(
            statuses={
                service: _Status(status=self._status(service)) for service in (*self._services, *self._parts)
            }
        )

    async def _watch(self, call: Call) -> None:
        message = await call.read()
        if message is None:
            return
        service = parsed(health_pb2.HealthCheckRequest, message).service
        told = None
        while True:
            changed, status = self._changed, self._status(service)
            if status != told:
                told = status
                await call.write(_Status(status=status).SerializeToString())
            if self._closed or call.draining.is_set():
                return
            await _first(changed, call.draining)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
