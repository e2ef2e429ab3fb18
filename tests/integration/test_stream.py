"""The server side of a batch stream, against peers that do not read their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from snavio.errors import SnavioError
from snavio.hop.server_stream import BatchStream
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call
from snavio.v1.batch_pb2 import Batch, Hello, Verdicts
from tests.support.batch_clients import BODY, METHOD, Peer, server, until
from tests.support.pki import Authority

# Some of them fill every buffer between the two ends.
LARGE = Verdicts(batch_seq=1, codes=bytes(256 << 10)).SerializeToString()
WINDOW = 16


async def opened(channel: MeshChannel) -> Any:
    call = channel.stream(METHOD)
    await call.write(Batch(hello=Hello(wire_version=1)).SerializeToString())
    await call.read()
    return call


async def flood(call: Any, *, batches: int) -> None:
    for _ in range(batches):
        await call.write(BODY)


async def test_a_peer_that_does_not_take_its_answers_is_read_no_further_than_the_window(
    authority: Authority,
) -> None:
    async def at_length(_batch: Batch, stream: BatchStream) -> None:
        # In a part, and then the place alone: the part is what fills the memory.
        stream.reply(LARGE, False)
        stream.reply(b"", True)

    peer = Peer(at_length)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        call = await opened(channel)
        flooding = asyncio.create_task(flood(call, batches=2000))
        await until(lambda: len(peer.batches) >= WINDOW)
        seen = -1
        async with asyncio.timeout(20):
            # Until nothing more is read.
            while seen != len(peer.batches):
                seen = len(peer.batches)
                await asyncio.sleep(0.3)
        assert seen < 200
        for _ in range(seen):
            await call.read()
        # A peer that reads its answers is served again.
        await until(lambda: len(peer.batches) > seen)
        flooding.cancel()
        call.cancel()
        await channel.close()


async def test_a_peer_that_never_takes_its_answers_loses_the_stream(authority: Authority) -> None:
    async def at_length(_batch: Batch, stream: BatchStream) -> None:
        stream.reply(LARGE, True)

    peer = Peer(at_length)
    ended: list[SnavioError] = []

    async def dispatch(call: Call) -> None:
        try:
            await peer.dispatch(call)
        except SnavioError as error:
            ended.append(error)
            raise

    async with server(authority, dispatch, write_limit_s=0.3) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        call = await opened(channel)
        flooding = asyncio.create_task(flood(call, batches=200))
        await until(lambda: bool(ended))
        flooding.cancel()
        call.cancel()
        await channel.close()
    assert [error.reason for error in ended] == ["peer-stuck"]


async def test_a_stream_that_ends_in_order_is_not_said_to_drain(authority: Authority) -> None:
    async def briefly(batch: Batch, stream: BatchStream) -> None:
        answer = Verdicts(batch_seq=batch.header.batch_seq, codes=bytes([16]), final=True)
        stream.reply(answer.SerializeToString(), True)

    async with server(authority, Peer(briefly)) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        call = await opened(channel)
        await call.write(BODY)
        await call.done_writing()
        assert await call.read() is not grpc.aio.EOF
        assert await call.read() is grpc.aio.EOF
        assert not dict(await call.trailing_metadata())
        await channel.close()
