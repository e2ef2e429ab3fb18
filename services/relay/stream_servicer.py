"""Tenants' streams on the wire, for the gateway, which decides which reader may read which of them.

Never leaves out an envelope that was asked for: a reader that falls behind what is kept is told so, and the call ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from services.relay.statements import Statements
from services.relay.stream_tails import StreamTails
from snavio.domain.identity import valid_name
from snavio.domain.stream import FAMILIES, Position
from snavio.errors import BadRequest
from snavio.ports.tenant_streams import StreamPart
from snavio.rpc.methods import parsed
from snavio.rpc.server import Call, Methods
from snavio.v1 import relay_pb2 as wire

AT: Final = "/snavio.v1.Relay/"
BEAT_SECONDS: Final = 15.0
PAGE_ENVELOPES: Final = 200
PAGE_BYTES: Final = 1 << 20
MAX_FILTERS: Final = 256


class StreamServicer:
    """The handlers that read streams."""

    def __init__(
        self,
        *,
        tails: StreamTails,
        statements: Statements,
        send_again: Callable[[str, int], Awaitable[int]],
        beat_s: float = BEAT_SECONDS,
    ) -> None:
        self._send_again = send_again
        self._tails = tails
        self._statements = statements
        self._beat_s = beat_s

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        methods.stream_raw(AT + "ReadStream", self.read_stream)
        methods.unary(AT + "StreamWindow", self.stream_window, wire.StreamWindowRequest)
        methods.unary(AT + "ReEmit", self.re_emit, wire.ReEmitRequest)
        methods.unary(AT + "TenantState", self.tenant_state, wire.TenantStateRequest)

    async def read_stream(self, call: Call) -> None:
        """Pages until the caller, the process or the window ends it."""
        message = await call.read()
        if message is None:
            return
        request = parsed(wire.ReadStreamRequest, message)
        tenant = _tenant(request.tenant)
        sources, families = frozenset(request.source), frozenset(request.family)
        if len(sources) > MAX_FILTERS or not families <= set(FAMILIES):
            raise BadRequest(
                f"source, family: at most {MAX_FILTERS}, and families of the catalogue.", reason="bad-field"
            )
        after = request.after
        while not call.draining.is_set():
            part, position = await self._tails.after(
                tenant,
                after,
                sources=sources,
                families=families,
                limit=PAGE_ENVELOPES,
                max_bytes=PAGE_BYTES,
            )
            # The first also when it is empty: the caller hears that its number is within the window.
            await call.write(_page(part, position).SerializeToString())
            after = part.through
            if after >= position.high:
                await self._tails.moved(tenant, after, within_s=self._beat_s)

    async def stream_window(
        self, request: wire.StreamWindowRequest, _call: Call
    ) -> wire.StreamWindowResponse:
        tenant = _tenant(request.tenant)
        position = await self._tails.position(tenant)
        statement = await self._statements.position(tenant, position) if request.signed else b""
        return wire.StreamWindowResponse(position=_position(position), statement=statement)

    async def re_emit(self, request: wire.ReEmitRequest, _call: Call) -> wire.ReEmitResponse:
        tenant = _tenant(request.tenant)
        after = request.after or (await self._tails.position(tenant)).low
        return wire.ReEmitResponse(envelopes=await self._send_again(tenant, after), after=after)

    async def tenant_state(self, request: wire.TenantStateRequest, _call: Call) -> wire.TenantStateResponse:
        tenant = _tenant(request.tenant)
        position = await self._tails.position(tenant)
        statement = await self._statements.state(tenant, position)
        return wire.TenantStateResponse(position=_position(position), statement=statement)


def _tenant(name: str) -> str:
    if not valid_name(name):
        raise BadRequest("tenant: not the name of a tenant.", reason="bad-field")
    return name


def _position(position: Position) -> wire.StreamPosition:
    return wire.StreamPosition(epoch=position.epoch, low=position.low, high=position.high, head=position.head)


def _page(part: StreamPart, position: Position) -> wire.StreamPage:
    return wire.StreamPage(
        envelope=[
            wire.StreamEnvelope(
                seq=entry.seq,
                source=entry.source,
                family=entry.family,
                body=entry.body,
                digest=entry.digest,
            )
            for entry in part.entries
        ],
        through=part.through,
        position=_position(position),
    )
