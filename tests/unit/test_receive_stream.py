"""The credit of a receive stream, against a mailbox that does not keep to it."""

from __future__ import annotations

from typing import Any, cast

from snavio.rpc.channel import MeshChannel
from snavio.sdk.message_source import ReceiveStream
from snavio.v1.mailbox_pb2 import ReceiveResponse, RecvStreamRequest

RESPONSE = ReceiveResponse(boot_epoch=7).SerializeToString()


class ScriptedCall:
    """Answers every read at once, and keeps the credit that it was granted."""

    def __init__(self) -> None:
        self.credit: list[int] = []

    async def write(self, request: bytes) -> None:
        self.credit.append(RecvStreamRequest.FromString(request).credit)

    async def read(self) -> bytes:
        return RESPONSE


class ScriptedChannel:
    def __init__(self, call: ScriptedCall) -> None:
        self._call = call

    def stream(self, _method: str) -> Any:
        return self._call

    def generation(self) -> int:
        return 1


async def test_more_messages_than_credit_are_not_awaited_and_earn_the_mailbox_none() -> None:
    call = ScriptedCall()
    stream = ReceiveStream("acme/bot", channel=cast(MeshChannel, ScriptedChannel(call)), visibility_ms=30_000)
    assert await stream.receive(2) == RESPONSE
    stream.took(5)
    # A consumer waits for room before it reads what is not awaited.
    assert stream.awaited == 0
    await stream.receive(2)
    assert call.credit == [2, 2]
