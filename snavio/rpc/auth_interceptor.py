"""Authenticates and authorises every call at its headers: identity, right, certificate and share.

Works as an interceptor over handlers that read their request themselves, so no byte of a body is awaited, kept or
counted before the caller is known and permitted. Handlers get their peer from here and cannot run without one. Never
shows the text of an unexpected error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import grpc
import structlog

from snavio.errors import NotAllowed, SnavioError, Unauthenticated, Unavailable
from snavio.host.shares import HOLDER, Shares
from snavio.rpc.authorisation import authorise, refusal
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.open_calls import OpenCall, OpenCalls
from snavio.rpc.peer import Peer, Peers
from snavio.rpc.server_shares import ServerShares
from snavio.rpc.status import DEADLINE_EXCEEDED, REASON_KEY, abort, abort_internal, code_of
from snavio.tracebacks import trace_of

# Each call runs in its own task, and so has its own value. Unset outside of the interceptor.
_OPEN: Final[ContextVar[OpenCall]] = ContextVar("open_call")

SIDE_SERVICES: Final = "/grpc."
"""Health and reflection, which every server has and every caller may call."""

_log = structlog.get_logger(__name__)

Behaviour = Callable[[Any, Any], Awaitable[Any]]


def guarded_call() -> OpenCall:
    """The call that is being handled; LookupError outside of an interceptor's handler."""
    return _OPEN.get()


class AuthInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without identity, right, valid certificate or share, and maps errors to gRPC statuses."""

    def __init__(
        self, *, peers: Peers, gate: CertificateGate, shares: ServerShares, open_calls: OpenCalls
    ) -> None:
        self._peers = peers
        self._gate = gate
        self._shares = shares
        self._open_calls = open_calls
        # By method and bounded by what is registered: unknown methods are not remembered.
        self._guarded: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler for this call, wrapped."""
        handler = await continuation(details)
        method: str = details.method
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(self._unknown)
        remembered = self._guarded.get(method)
        if remembered is None or remembered[0] is not handler:
            remembered = self._guarded[method] = (handler, self._wrap_handler(method, handler))
        return remembered[1]

    def _wrap_handler(self, method: str, handler: Any) -> Any:
        # gRPC would read the body of a unary request, and run deserialisers, before the interceptor: only handlers that
        # read raw bytes themselves are accepted; Methods makes no others.
        if handler.request_deserializer is None and handler.response_serializer is None:
            if handler.stream_unary is not None:
                guarded = self._wrap(method, handler.stream_unary, self._shares.calls)
                return grpc.stream_unary_rpc_method_handler(guarded)
            if handler.stream_stream is not None:
                guarded = self._wrap(method, handler.stream_stream, self._streams_of(method))
                return grpc.stream_stream_rpc_method_handler(guarded)
        raise TypeError(f"{method} is not a handler that reads raw bytes")

    def _streams_of(self, method: str) -> Shares:
        return self._shares.side_streams if method.startswith(SIDE_SERVICES) else self._shares.streams

    def _wrap(self, method: str, behaviour: Behaviour, shares: Shares) -> Behaviour:
        async def guarded(requests: Any, context: Any) -> Any:
            try:
                peer = self._peer(context)
                if not authorise(method, peer.identity):
                    raise NotAllowed(refusal(method, peer.identity))
                self._gate.require(peer)
                tenant = peer.identity.tenant
                shares.take(tenant)
                opened = self._open_calls.begin(peer, lambda: shares.give_back(tenant))
                try:
                    _OPEN.set(opened)
                    HOLDER.set(tenant)
                    return await behaviour(requests, context)
                except asyncio.CancelledError:
                    if opened.was_cut():
                        assert opened.error is not None
                        raise opened.error from None
                    raise
                finally:
                    opened.handled()
            except (grpc.aio.BaseError, asyncio.CancelledError):
                # An abort in progress, a client that disconnected, or a server that was stopped.
                raise
            except Exception as failure:
                await _put_on_the_wire(context, failure, method)

        return guarded

    async def _unknown(self, _requests: Any, context: Any) -> None:
        """A handler for unknown methods: only a caller with an identity and a valid certificate learns that there is
        none.
        """
        try:
            self._gate.require(self._peer(context))
        except SnavioError as error:
            await abort(context, error)
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "No such method here.", ((REASON_KEY, "unknown-method"),)
        )

    def _peer(self, context: Any) -> Peer:
        try:
            return self._peers.peer(context.auth_context())
        except Unauthenticated as error:
            self._gate.refused(None, error.reason)
            raise


async def _put_on_the_wire(context: Any, failure: Exception, method: str) -> None:
    error = _expected(failure)
    if error is None:
        _log.error("call failed", method=method, stack=trace_of(failure))
        await abort_internal(context)
    else:
        await abort(context, error)


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
