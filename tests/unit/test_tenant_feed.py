"""One tenant's feed at a gateway: verified once, shared by its readers, and nothing kept beyond its room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from services.gateway.callers import StreamScope
from services.gateway.tenant_feed import TenantFeed
from snavio.clock import ManualClock
from snavio.domain.stream import EPOCH_STRIDE
from snavio.errors import Conflict, SnavioError
from snavio.host.shares import ShareLimit, Shares
from snavio.signed.stream_chain import ChainEnd, StreamChain
from snavio.v1.relay_pb2 import StreamEnvelope, StreamPage
from tests.support.envelopes import EnvelopeMaker

BASE = 3 * EPOCH_STRIDE
WITHIN_S = 20.0


class ScriptedFeed(TenantFeed):
    """A feed of what Relay has: everything so far, then what comes, then an end."""

    def __init__(self, maker: EnvelopeMaker, *, room: int = 1 << 20, after: int = BASE) -> None:
        self.maker = maker
        self.kept = Shares("tail_bytes", ShareLimit(room, room))
        self.more = asyncio.Event()
        self.end: SnavioError | None = None

        async def keys() -> Sequence[Any]:
            return maker.keys

        def chain(tenant: str, end: ChainEnd | None, gaps: bool) -> StreamChain:
            return StreamChain(tenant, keys=keys, clock=ManualClock(), after=end, gaps=gaps)

        relay: Any = None
        super().__init__(
            maker.tenant,
            relay=relay,
            chain=chain,
            frame=lambda seq, body: b"%d:" % seq + body,
            kept=self.kept,
            after=after,
        )

    def seal(self, count: int) -> None:
        for _ in range(count):
            self.maker.next()
        self.more.set()

    async def _pages(self, after: int, scope: StreamScope) -> AsyncGenerator[StreamPage, None]:
        sent = after - BASE
        while True:
            self.more.clear()
            bodies = self.maker.made[sent:]
            numbers = range(BASE + sent + 1, BASE + sent + 1 + len(bodies))
            sent += len(bodies)
            found = [StreamEnvelope(seq=seq, body=body) for seq, body in zip(numbers, bodies, strict=True)]
            yield StreamPage(envelope=found, through=BASE + sent)
            if self.end is not None and sent == len(self.maker.made):
                raise self.end
            await self.more.wait()


async def read(feed: TenantFeed, after: int, count: int, scope: StreamScope | None = None) -> list[int]:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found: list[int] = []
    async with asyncio.timeout(WITHIN_S):
        async for served in feed.read(after, scope or StreamScope(), over=over):
            found.append(served.seq)
            if len(found) == count:
                break
    return found


async def test_readers_share_what_was_verified_once() -> None:
    feed = ScriptedFeed(EnvelopeMaker())
    feed.seal(50)
    feed.start()
    everything = list(range(BASE + 1, BASE + 51))
    first, second = await asyncio.gather(read(feed, BASE, 50), read(feed, BASE + 20, 30))
    assert (first, second) == (everything, everything[20:])
    await feed.stop()
    assert feed.kept.used == 0


async def test_a_reader_that_is_behind_the_tail_catches_up_without_a_gap() -> None:
    feed = ScriptedFeed(EnvelopeMaker(), room=3_000)
    feed.seal(40)
    feed.start()
    assert await read(feed, BASE, 40) == list(range(BASE + 1, BASE + 41))
    assert 0 < feed.kept.used <= 3_000
    waiting = asyncio.ensure_future(read(feed, BASE + 10, 40))
    feed.seal(10)
    assert await waiting == list(range(BASE + 11, BASE + 51))
    await feed.stop()


async def test_a_feed_that_has_ended_gives_its_room_back_and_says_why() -> None:
    feed = ScriptedFeed(EnvelopeMaker())
    feed.seal(5)
    feed.start()
    assert await read(feed, BASE, 5) == list(range(BASE + 1, BASE + 6))
    feed.end = Conflict("gone", reason="last_event_id_outside_replay_window")
    feed.seal(2)
    with pytest.raises(Conflict):
        await read(feed, BASE, 100)
    assert feed.failed
    assert feed.kept.used == 0


async def test_another_tenants_source_is_left_out_whatever_relay_sends() -> None:
    feed = ScriptedFeed(EnvelopeMaker(), room=3_000)
    feed.maker.next(payload={"source": "acme/web", "events": [{"event": "x"}]})
    feed.seal(10)
    feed.start()
    web = StreamScope(frozenset({"acme/web"}))
    assert await read(feed, BASE, 1, web) == [BASE + 1]
    await feed.stop()


async def test_a_reader_is_let_go_when_it_is_over() -> None:
    feed = ScriptedFeed(EnvelopeMaker())
    feed.start()
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(over.set_result, None)
    async with asyncio.timeout(WITHIN_S):
        assert [served async for served in feed.read(BASE, StreamScope(), over=over)] == []
    await feed.stop()
