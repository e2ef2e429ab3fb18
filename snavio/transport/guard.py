"""The one door into every server: identity, authorisation and gate, before any handler sees a byte.

Works as an interceptor, so that whatever is registered is behind it; handlers learn their peer from here
and cannot run without one. Never lets the text of an unexpected error out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import grpc
import structlog

from snavio.errors import NotAllowed, SnavioError, Unavailable
from snavio.transport.authorisation import authorise
from snavio.transport.gate import Gate
from snavio.transport.peer import Peer, Peers
from snavio.transport.status import DEADLINE_EXCEEDED, REASON_KEY, abort, abort_internal, code_of

# Each call runs in a task of its own, and so has its own value. Unset means: not behind the guard.
_PEER: Final[ContextVar[Peer]] = ContextVar("peer")

_log = structlog.get_logger(__name__)

Behaviour = Callable[[Any, Any], Awaitable[Any]]


def guarded_peer() -> Peer:
    """The peer of the call that is being handled; LookupError outside of the guard."""
    return _PEER.get()


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without identity, right or valid certificate, and puts errors on the wire."""

    def __init__(self, *, peers: Peers, gate: Gate) -> None:
        self._peers = peers
        self._gate = gate
        # By method and bounded by what is registered: unknown methods are not remembered.
        self._guarded: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler for this call, wrapped."""
        handler = await continuation(details)
        method: str = details.method
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(self._wrap(method, _unknown, known=False))
        remembered = self._guarded.get(method)
        if remembered is None or remembered[0] is not handler:
            remembered = self._guarded[method] = (handler, self._wrap_handler(method, handler))
        return remembered[1]

    def _wrap_handler(self, method: str, handler: Any) -> Any:
        # gRPC would run deserialisers before the guard and answer their errors with the error's text, so
        # only handlers on raw bytes are let in; Methods makes no others.
        if handler.request_deserializer is None and handler.response_serializer is None:
            if handler.unary_unary is not None:
                return grpc.unary_unary_rpc_method_handler(self._wrap(method, handler.unary_unary))
            if handler.stream_stream is not None:
                return grpc.stream_stream_rpc_method_handler(self._wrap(method, handler.stream_stream))
        raise TypeError(f"{method} is not a handler on raw bytes")

    def _wrap(self, method: str, behaviour: Behaviour, *, known: bool = True) -> Behaviour:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                peer = self._peers.peer(context.auth_context())
                if known and not authorise(method, peer.identity):
                    raise NotAllowed(f"{peer.identity} may not call {method}.")
                self._gate.require(peer)
                _PEER.set(peer)
                return await behaviour(request, context)
            except (grpc.aio.BaseError, asyncio.CancelledError):
                # An abort under way, a client that went away, or a server that was stopped.
                raise
            except Exception as failure:
                error = _expected(failure)
                if error is None:
                    _log.error("call failed", method=method, exc_info=failure)
                    await abort_internal(context)
                else:
                    await abort(context, error)

        return guarded


def _expected(failure: Exception) -> SnavioError | None:
    """The error that was meant for the caller, if `failure` is one."""
    if isinstance(failure, TimeoutError):
        return Unavailable("The time for this call is over.", reason=DEADLINE_EXCEEDED)
    if isinstance(failure, ExceptionGroup):
        # From a TaskGroup. One unexpected error among expected ones is still unexpected.
        inner = [_expected(each) for each in failure.exceptions]
        return None if None in inner else inner[0]
    if isinstance(failure, SnavioError) and code_of(failure) is not grpc.StatusCode.INTERNAL:
        return failure
    return None


async def _unknown(_request: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNIMPLEMENTED, "No such method here.", ((REASON_KEY, "unknown-method"),)
    )
