"""One name, one living process: a second one is refused with a sentence, and accepted once the first is gone."""

from __future__ import annotations

import asyncio

import pytest

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.hop import connection, instance_names
from snavio.hop.client import BatchClient
from snavio.hop.instance_names import InstanceNames
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.host.background import Background, host
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call
from snavio.v1.batch_pb2 import Batch, Hello
from tests.support.batch_clients import METHOD, Waiter, deliver, server, told, until
from tests.support.pki import Authority

WITHIN_S = 5.0


class House:
    """A server that keeps names apart, as the mailbox does."""

    def __init__(self) -> None:
        self.instance_names = InstanceNames()
        self.admitted: list[int] = []

    async def dispatch(self, call: Call) -> None:
        stream = BatchStream(call, gate=CertificateGate(clock=SystemClock()))
        try:
            hello = await stream.greet(mesh_hello(SystemClock(), in_flight=16), names=self.instance_names)
            self.admitted.append(hello.epoch)
            async for frame in stream.batches():
                await deliver(Batch.FromString(frame), stream)
        finally:
            await stream.finish()


def linked(authority: Authority, address: str, *, epoch: int) -> tuple[MeshChannel, BatchClient]:
    channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
    return channel, BatchClient(
        channel, METHOD, clock=SystemClock(), instance="fast-0", epoch=epoch, resend=True
    )


async def closed(channel: MeshChannel, link: BatchClient) -> None:
    await link.close()
    await channel.close()


async def delivered(link: BatchClient) -> None:
    link.put(waiter := Waiter())
    await told(waiter)
    assert waiter.codes == [Verdict.DELIVERED]


async def test_second_living_process_of_one_name_is_refused_with_a_sentence(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TAKEN_SECONDS", 0.5)
    # All of them share this process: where it stands still, the living one must not be taken for dead.
    monkeypatch.setattr(instance_names, "ANSWER_SECONDS", 20.0)
    process = Background()
    host(process)
    ended = asyncio.Event()
    process.on_lost(ended.set)
    house = House()
    async with server(authority, house.dispatch) as address:
        first = linked(authority, address, epoch=2)
        await first[1].start()
        await first[1].connected.wait()
        # The smaller epoch, as after a clock that was set back: neither is more right than the other.
        second = linked(authority, address, epoch=1)
        await second[1].start()
        async with asyncio.timeout(30):
            await ended.wait()
        trouble = second[1].trouble
        assert trouble is not None and "Another process runs under the name shield/fast-0." in str(trouble)
        assert process.lost_work == f"hop {METHOD}"
        await delivered(first[1])
        assert set(house.admitted) == {2}
        await closed(*second)
        await closed(*first)


async def test_process_that_is_back_is_let_in_at_once_when_its_old_stream_has_ended(
    authority: Authority,
) -> None:
    house = House()
    async with server(authority, house.dispatch) as address:
        first = linked(authority, address, epoch=1)
        await first[1].start()
        await delivered(first[1])
        await closed(*first)
        second = linked(authority, address, epoch=2)
        await second[1].start()
        await delivered(second[1])
        await closed(*second)


async def test_process_whose_host_vanished_is_replaced_within_five_seconds(authority: Authority) -> None:
    house = House()
    async with server(authority, house.dispatch) as address:
        # It has sent Hello and nothing since; its connection stays open.
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        silent = channel.stream(METHOD)
        await silent.write(Batch(hello=Hello(wire_version=1, instance="fast-0", epoch=1)).SerializeToString())
        await silent.read()
        second = linked(authority, address, epoch=2)
        began = asyncio.get_running_loop().time()
        await second[1].start()
        await second[1].connected.wait()
        assert asyncio.get_running_loop().time() - began < WITHIN_S
        await delivered(second[1])
        await until(lambda: set(house.admitted) == {1, 2})
        await closed(*second)
        await channel.close()


async def test_streams_of_one_process_may_overlap(authority: Authority) -> None:
    house = House()
    async with server(authority, house.dispatch) as address:
        links = [linked(authority, address, epoch=7) for _ in range(2)]
        for _, link in links:
            await link.start()
            await delivered(link)
        for _, link in links:
            await delivered(link)
        for each in links:
            await closed(*each)
    assert set(house.admitted) == {7}
