"""The readable part and the state of tenants' streams, from Relay.

Never guesses: while Relay is away nobody is told where a stream stands.
"""

from __future__ import annotations

from typing import Final

from snavio.domain.stream import Position
from snavio.rpc.channel import MeshChannel
from snavio.v1.relay_pb2 import (
    StreamPosition,
    StreamWindowRequest,
    StreamWindowResponse,
    TenantStateRequest,
    TenantStateResponse,
)

CALL_SECONDS: Final = 3.0


class Positions:
    """Asks Relay, each time."""

    def __init__(self, relay: MeshChannel) -> None:
        self._relay = relay

    async def window(self, tenant: str) -> Position:
        """The readable part of a tenant's stream."""
        return _position((await self._window(tenant, signed=False)).position)

    async def statement(self, tenant: str) -> bytes:
        """The same as a signed document."""
        return (await self._window(tenant, signed=True)).statement

    async def state(self, tenant: str) -> bytes:
        """The signed state of a tenant, with the position to go on from."""
        answer = await self._relay.call(
            "/snavio.v1.Relay/TenantState",
            TenantStateRequest(tenant=tenant),
            TenantStateResponse,
            timeout_s=CALL_SECONDS,
        )
        return answer.statement

    async def _window(self, tenant: str, *, signed: bool) -> StreamWindowResponse:
        return await self._relay.call(
            "/snavio.v1.Relay/StreamWindow",
            StreamWindowRequest(tenant=tenant, signed=signed),
            StreamWindowResponse,
            timeout_s=CALL_SECONDS,
        )


def _position(wire: StreamPosition) -> Position:
    return Position(wire.epoch, wire.low, wire.high, wire.head)
