"""A batch client whose peer is slower than its senders: no admitted batch is refused, no source waits for a flood."""

from __future__ import annotations

import asyncio

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.fair_queue import FairSendQueue
from snavio.hop.server_stream import BatchStream
from snavio.rpc.channel import MeshChannel
from snavio.v1.batch_pb2 import Batch, Run
from tests.support.batch_clients import METHOD, Peer, Waiter, deliver, server, told, until
from tests.support.pki import Authority

STREAMS, SIZE = 500, 4 << 10
# A fiftieth of what the streams bring at once.
CROWDED, ROOM = 10 * SIZE, 40 * SIZE


def piece(source: str) -> Waiter:
    body = Batch(run=[Run(source=source, command=[bytes(SIZE - 100)])]).SerializeToString()
    return Waiter(body=body, source=source)


async def test_saturating_streams_are_let_on_as_they_fit_and_a_neighbour_passes_them(
    authority: Authority,
) -> None:
    async def slowly(batch: Batch, stream: BatchStream) -> None:
        await asyncio.sleep(0.002)
        await deliver(batch, stream)

    peer, refused = Peer(slowly), list[Saturated]()
    brought: list[Waiter] = []
    ending = asyncio.Event()

    async def bring(link: BatchClient, source: str) -> None:
        while not ending.is_set():
            await link.room(source.partition("/")[0], SIZE)
            try:
                link.put(waiter := piece(source))
            except Saturated as full:
                refused.append(full)
                return
            brought.append(waiter)
            await told(waiter)

    queue = FairSendQueue(max_bytes=ROOM, crowded_bytes=CROWDED, what="test")
    limits = ClientLimits(max_batch_bytes=2 * SIZE, window=2)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        link = BatchClient(channel, METHOD, clock=SystemClock(), limits=limits, waiting=queue)
        await link.start()
        flood = [asyncio.create_task(bring(link, f"acme/s{number}")) for number in range(STREAMS)]
        # Every sender of the flood waits, sends or has sent.
        await until(lambda: len(peer.batches) > 20)
        for _ in range(10):
            await link.room("globex", SIZE)
            before = len(peer.batches)
            link.put(neighbour := piece("globex/only"))
            await told(neighbour)
            assert neighbour.codes == [Verdict.DELIVERED]
            # Those in flight, the one that is being put together, and its own.
            assert len(peer.batches) - before <= limits.window + 3
        ending.set()
        await asyncio.gather(*flood)
        await link.close()
        await channel.close()
    assert refused == []
    assert all(waiter.codes == [Verdict.DELIVERED] for waiter in brought)
