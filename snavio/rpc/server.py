"""A mesh server: mTLS on one port, every method behind the interceptor, and an orderly shutdown.

Never listens without TLS, never serves a call without identity, right and valid certificate, and never shares its port
unless configured to.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import grpc

from snavio.clock import Clock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, IdentityKind
from snavio.errors import StateError
from snavio.host.background import background
from snavio.rpc.auth_interceptor import AuthInterceptor, guarded_call
from snavio.rpc.body import Bodies
from snavio.rpc.call import WRITE_LIMIT_S, Call
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.connection_options import Options
from snavio.rpc.credentials import CertificateFiles, server_credentials
from snavio.rpc.health import Health
from snavio.rpc.limits import (
    FIRST_READ_S,
    GRPC_CALLS,
    IDLE_STREAM_S,
    MAX_FRAME_BYTES,
    SMALL_ANSWER_BYTES,
    WINDOW_BYTES,
)
from snavio.rpc.listening import listen, server_options
from snavio.rpc.methods import Method, Methods
from snavio.rpc.open_calls import OpenCall, OpenCalls
from snavio.rpc.peer import Peers
from snavio.rpc.reflection import register_reflection
from snavio.rpc.server_shares import ServerShares
from snavio.rpc.status import DRAINING, REASON_KEY

__all__ = ["Call", "MeshServer", "Methods"]

# Streams of one connection; more wait in the client.
_MAX_STREAMS_PER_CONNECTION: Final = 1024
# For streams to notice their age and finish what they have in flight.
_FINISHING_S: Final = 30.0
# For answers to be sent once all handlers have returned: a peer that does not read its answers must not delay the end.
_SENDING_S: Final = 0.5
# For a handler of a unary call whose caller has no shorter deadline.
UNARY_LIMIT_S: Final = 60.0
# For cancelled handlers to release their resources.
UNWIND_S: Final = 5.0


class MeshServer:
    """Serves `methods`, health and reflection.

    Health is SERVING from the start; a server that must load something first calls `set_serving(False)` before.
    """

    def __init__(
        self,
        *,
        listen: str,
        files: CertificateFiles,
        methods: Methods,
        gate: CertificateGate,
        clock: Clock,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
        max_connection_age_s: float = 3600.0,
        shares: ServerShares | None = None,
        max_message_bytes: int = MAX_FRAME_BYTES,
        unary_limit_s: float = UNARY_LIMIT_S,
        first_read_s: float = FIRST_READ_S,
        idle_stream_s: float = IDLE_STREAM_S,
        write_limit_s: float = WRITE_LIMIT_S,
        reuse_port: bool = False,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._listen = listen
        self._files = files
        self._methods = methods
        self._gate = gate
        shares = shares or ServerShares()
        self._open_calls = OpenCalls(
            gate=gate, clock=clock, first_read_s=first_read_s, idle_stream_s=idle_stream_s
        )
        self._guard = AuthInterceptor(
            peers=Peers(trust_domain=trust_domain), gate=gate, shares=shares, open_calls=self._open_calls
        )
        self._bodies = Bodies(shares.bodies, largest=max_message_bytes, first_read_s=first_read_s)
        self._max_message_bytes = max_message_bytes
        self._max_age_s = max_connection_age_s
        self._unary_limit_s = unary_limit_s
        self._write_limit_s = write_limit_s
        self._reuse_port = reuse_port
        self._window_bytes = window_bytes
        self._health = Health(methods.services())
        # Never SERVING again: the process is about to end.
        background().on_lost(self._health.close)
        self._draining = asyncio.Event()
        # Bounded by the share of streams.
        self._streams: set[Call] = set()
        self._server: Any = None

    async def start(self) -> int:
        """Listen; the port. StateError if the address is in use or the certificate files cannot be used."""
        if self._server is not None:
            raise StateError("This server was started before.", reason="started")
        everything = Methods()
        for method in self._methods:
            everything.add(method)
        self._health.register(everything)
        register_reflection(everything)
        server = grpc.aio.server(
            handlers=(_MeshHandlers({method.name: self._handler(method) for method in everything}),),
            interceptors=(self._guard,),
            options=self._options(),
            maximum_concurrent_rpcs=GRPC_CALLS,
        )
        port = await listen(server, self._listen, server_credentials(self._files), shared=self._reuse_port)
        self._server = server
        return port

    def set_serving(self, serving: bool) -> None:
        """Set the health of this server and all of its services. Ignored while draining."""
        self._health.set_serving(serving)

    def set_part(self, name: str, serving: bool) -> None:
        """Set the health of one part of this server, such as writes that are refused while reads go on."""
        self._health.set_part(name, serving)

    @property
    def serving(self) -> bool:
        """True while calls are taken; for good not any more once it drains."""
        return self._server is not None and self._health.serving

    def refused(self) -> dict[str, int]:
        """Calls that were refused before a handler saw them, by reason."""
        return {"not-allowed": self._guard.not_allowed}

    async def drain(self, grace_s: float) -> None:
        """Shut down in order: health is NOT_SERVING, streams are asked to end, new calls are refused, the rest
        finishes.

        Calls that are still running after `grace_s` are cancelled. When this returns no handler is running, so that the
        resources of handlers can be closed. May be called again, also with a shorter grace.
        """
        self._health.close()
        self._draining.set()
        for stream in self._streams:
            stream.drain()
        if self._server is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.stop(grace_s + UNWIND_S), name="stop")
            # gRPC ends its own half of a call at the end of the grace and does not wait for ours, so the
            # handlers are ended first.
            if not await self._ended(within_s=grace_s):
                for task in self._open_calls.tasks():
                    task.cancel()
                await self._ended(within_s=UNWIND_S)
                await self._server.stop(None)
            # Only unread answers are still open.
            await self._server.stop(_SENDING_S)
        self._open_calls.close()

    async def _ended(self, *, within_s: float) -> bool:
        """Wait for running handlers, also those that begin meanwhile, and briefly for answers; true if all ended."""
        # Calls that gRPC accepted before it stopped accepting run first.
        await asyncio.sleep(0)
        end = asyncio.get_running_loop().time() + within_s
        while running := self._open_calls.tasks():
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await asyncio.wait(running, timeout=min(left, _SENDING_S))
            if all(opened.answered for opened in self._open_calls):
                return True
        return True

    def _handler(self, method: Method) -> Any:
        # To gRPC a unary method is a stream of one message: otherwise it would read the body before the headers are
        # checked.
        if method.unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._unary(method))
        return grpc.stream_stream_rpc_method_handler(self._stream(method))

    def _unary(self, method: Method) -> Any:
        handler = method.unary
        assert handler is not None

        async def behaviour(_requests: Any, context: Any) -> bytes:
            opened = guarded_call()
            call = self._call(context, self._draining, method, opened)
            tenant = opened.peer.identity.tenant
            opened.awaits_body = True
            request, held = await self._bodies.read(context, tenant, max_bytes=call.max_bytes)
            opened.awaits_body = False
            try:
                remaining = call.remaining_s()
                if remaining is not None and remaining <= self._unary_limit_s:
                    # gRPC itself cancels the handler at the caller's deadline, and a timer costs as much as the guard.
                    answer = await handler(request, call)
                else:
                    # A caller without a deadline must not be able to keep a handler waiting for ever.
                    async with asyncio.timeout(self._unary_limit_s):
                        answer = await handler(request, call)
            finally:
                self._bodies.release(tenant, held)
            if len(answer) > SMALL_ANSWER_BYTES:
                kept = self._bodies.keep(tenant, answer)
                opened.when_over(lambda: self._bodies.release(tenant, kept))
            return answer

        return behaviour

    def _stream(self, method: Method) -> Any:
        handler = method.stream
        assert handler is not None

        async def behaviour(_requests: Any, context: Any) -> None:
            opened = guarded_call()
            call = self._call(context, asyncio.Event(), method, opened)
            self._open_calls.watch(opened, call, idle_s=method.idle_s)
            if self._draining.is_set():
                call.drain()
            self._streams.add(call)
            # The connection's maximum age alone would cut a stream off with batches in flight.
            ageing = asyncio.get_running_loop().call_later(self._max_age_s, call.drain)
            try:
                try:
                    await handler(call)
                finally:
                    if call.unsent:
                        await self._gone()
            finally:
                ageing.cancel()
                call.end()
                self._streams.discard(call)
            if call.draining.is_set():
                # Lets the peer tell "come again elsewhere" from "done".
                context.set_trailing_metadata(((REASON_KEY, DRAINING),))

        return behaviour

    async def _gone(self) -> None:
        """Wait until the peer of a stream that cannot be ended disconnects, upon which gRPC cancels the task; or for
        the server's end.

        Such a stream occupies memory as long as its connection lasts, and so does its tenant's share.
        """
        task = asyncio.current_task()
        assert task is not None
        if not task.cancelling():
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._max_age_s + _FINISHING_S):
                    await self._draining.wait()

    def _call(self, context: Any, draining: asyncio.Event, method: Method, opened: OpenCall) -> Call:
        peer = opened.peer
        in_mesh = peer.identity.kind is IdentityKind.MESH
        return Call(
            peer=peer,
            max_bytes=self._max_message_bytes if in_mesh else method.max_bytes,
            context=context,
            gate=self._gate,
            draining=draining,
            received_mono_ns=opened.since_ns,
            write_limit_s=self._write_limit_s,
        )

    def _options(self) -> Options:
        return (
            *server_options(max_message_bytes=self._max_message_bytes, window_bytes=self._window_bytes),
            ("grpc.so_reuseport", int(self._reuse_port)),
            ("grpc.max_concurrent_streams", _MAX_STREAMS_PER_CONNECTION),
            ("grpc.max_connection_age_ms", round(self._max_age_s * 1000)),
            # A stream that began just before its connection's age was reached still gets its own full age.
            ("grpc.max_connection_age_grace_ms", round((self._max_age_s + _FINISHING_S) * 1000)),
        )


class _MeshHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every method of one server by its full name."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)
