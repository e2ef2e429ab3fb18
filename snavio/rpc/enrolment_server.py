"""A server for callers without a certificate: TLS in which only the server presents one, one method, and health.

Never serves anything else there, never reads a request before the throttle has admitted its headers, never lets one
address hold more than its share of the calls, and never shows the text of an unexpected error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from grpc_health.v1 import health_pb2

from snavio.errors import NotFound, SnavioError, Unavailable
from snavio.host.shares import HOLDER, ShareLimit, Shares
from snavio.host.waiting_shares import WaitingShares
from snavio.rpc.body import Bodies
from snavio.rpc.credentials import CertificateFiles, enrolment_credentials
from snavio.rpc.limits import GRPC_CALLS
from snavio.rpc.listening import listen, server_options
from snavio.rpc.methods import parsed
from snavio.rpc.proto_message import ProtoMessage
from snavio.rpc.status import DEADLINE_EXCEEDED, abort, abort_internal, code_of
from snavio.rpc.throttle import Throttle, address_of
from snavio.tracebacks import trace_of

MAX_REQUEST_BYTES: Final = 64 << 10
MAX_CALLS: Final = 256
CALLS_PER_ADDRESS: Final = 8
CALL_SECONDS: Final = 10.0
CONNECTION_SECONDS: Final = 60.0
_HEALTH: Final = "/grpc.health.v1.Health/Check"

Request = TypeVar("Request", bound=ProtoMessage)
Response = TypeVar("Response", bound=ProtoMessage)
_log = structlog.get_logger(__name__)


class EnrolmentServer(Generic[Request, Response]):
    """Serves `method` without authentication, at the throttle's rate."""

    def __init__(
        self,
        *,
        listen: str,
        files: CertificateFiles,
        method: str,
        handler: Callable[[Request], Awaitable[Response]],
        request_type: type[Request],
        throttle: Throttle,
    ) -> None:
        self._listen = listen
        self._files = files
        self._method = method
        self._handler = handler
        self._request_type = request_type
        self._throttle = throttle
        self.calls = Shares("calls", ShareLimit(MAX_CALLS, CALLS_PER_ADDRESS))
        """By address: callers without a certificate have no tenant."""
        held = ShareLimit(MAX_CALLS * MAX_REQUEST_BYTES, CALLS_PER_ADDRESS * MAX_REQUEST_BYTES)
        self._bodies = Bodies(
            WaitingShares(Shares("bytes", held)), largest=MAX_REQUEST_BYTES, first_read_s=CALL_SECONDS
        )
        self._server: Any = None

    async def start(self) -> int:
        """Listen; the port. StateError if the address is in use or the certificate files cannot be used."""
        # Health costs nothing and is polled all day by monitoring.
        behaviours = {
            self._method: self._guarded(self._answer),
            _HEALTH: self._guarded(self._health, throttled=False),
        }
        server = grpc.aio.server(
            handlers=(_EnrolmentHandlers(behaviours),),
            options=(
                *server_options(max_message_bytes=MAX_REQUEST_BYTES, window_bytes=MAX_REQUEST_BYTES),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", 4),
                ("grpc.max_connection_idle_ms", round(CALL_SECONDS * 1000)),
                ("grpc.max_connection_age_ms", round(CONNECTION_SECONDS * 1000)),
                ("grpc.max_connection_age_grace_ms", round(CALL_SECONDS * 1000)),
            ),
            maximum_concurrent_rpcs=GRPC_CALLS,
        )
        port = await listen(server, self._listen, enrolment_credentials(self._files))
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and finish those in progress."""
        if self._server is not None:
            await self._server.stop(grace_s)

    async def _answer(self, request: bytes) -> bytes:
        return (await self._handler(parsed(self._request_type, request))).SerializeToString()

    async def _health(self, request: bytes) -> bytes:
        if parsed(health_pb2.HealthCheckRequest, request).service not in ("", self._method.split("/")[1]):
            raise NotFound("No such service here.", reason="unknown-service")
        answer: bytes = health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING
        ).SerializeToString()
        return answer

    def _guarded(
        self, answer: Callable[[bytes], Awaitable[bytes]], *, throttled: bool = True
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def behaviour(_requests: Any, context: Any) -> Any:
            try:
                address = address_of(context.peer())
                # Work for callers without a certificate has its own queue, apart from the mesh's.
                HOLDER.set(address)
                with self.calls.holding(address):
                    if throttled:
                        self._throttle.admit(context.peer())
                    async with asyncio.timeout(CALL_SECONDS):
                        request, held = await self._bodies.read(context, address, max_bytes=MAX_REQUEST_BYTES)
                        try:
                            return await answer(request)
                        finally:
                            self._bodies.release(address, held)
            except (grpc.aio.BaseError, asyncio.CancelledError):
                raise
            except TimeoutError:
                await abort(context, Unavailable("The time for this call is over.", reason=DEADLINE_EXCEEDED))
            except Exception as failure:
                if isinstance(failure, SnavioError) and code_of(failure) is not grpc.StatusCode.INTERNAL:
                    await abort(context, failure)
                _log.error("call failed", method=self._method, stack=trace_of(failure))
                await abort_internal(context)

        return behaviour


class _EnrolmentHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The generic handlers of the enrolment server, on raw bytes."""

    def __init__(self, behaviours: dict[str, Any]) -> None:
        self._handlers = {
            # As streams of one message: gRPC would await the body of a unary call before the throttle is asked.
            name: grpc.stream_unary_rpc_method_handler(behaviour)
            for name, behaviour in behaviours.items()
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)
