"""EventStream against a gateway that lies, stalls, ends and forgets: nothing unbelievable is handed out, and the
bookmark stays where the reader was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from snavio.clock import ManualClock
from snavio.domain.stream import Position
from snavio.errors import IntegrityError, NotAllowed, NotFound, SnavioError
from snavio.sdk import event_stream
from snavio.sdk.bookmark import MemoryBookmark, StreamPlace
from snavio.sdk.event_stream import MOST_REFUSALS, EventStream, ReceivedEvents, StreamReset
from snavio.signed.stream_chain import EnvelopeRefused
from tests.support.envelopes import EnvelopeMaker
from tests.support.hostile_gateway import (
    WITHIN_S,
    HostileGateway,
    framed,
    hostile_gateway,
    refuse,
    respond,
    serve,
)
from tests.support.pki import Authority


@pytest.fixture
async def gateway(authority: Authority) -> AsyncIterator[HostileGateway]:
    async with hostile_gateway(authority.mesh("gateway")) as hostile:
        yield hostile


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds: what is tested is what happens between them."""
    monkeypatch.setattr(event_stream, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(event_stream, "LONGEST_PAUSE_S", 0.002)


@pytest.fixture
async def stream(gateway: HostileGateway, authority: Authority) -> AsyncIterator[EventStream]:
    folder = Path(authority.principal("acme", "ci").certificate).parent
    opened = EventStream(
        gateway=gateway.address,
        signer="127.0.0.1:1",
        tenant="acme",
        certificates=folder,
        bookmark=MemoryBookmark(),
    )

    async def keys() -> Any:
        return gateway.maker.keys

    opened._keys = keys
    yield opened
    await opened.close()


async def take(stream: EventStream, count: int) -> list[ReceivedEvents | StreamReset]:
    found: list[ReceivedEvents | StreamReset] = []
    async with asyncio.timeout(WITHIN_S):
        async for item in stream:
            found.append(item)
            if len(found) == count:
                break
    return found


def seqs(items: list[ReceivedEvents | StreamReset]) -> list[int]:
    return [item.seq for item in items if isinstance(item, ReceivedEvents)]


def made(maker: EnvelopeMaker, count: int) -> list[tuple[int, bytes]]:
    return [(maker.seq, body) for body in (maker.next() for _ in range(count))]


def place(stream: EventStream) -> StreamPlace | None:
    return stream._bookmark.read()


async def test_the_bookmark_moves_when_the_reader_comes_back(
    gateway: HostileGateway, stream: EventStream
) -> None:
    bodies = made(gateway.maker, 3)
    gateway.scripts = [serve(*bodies)]
    items = stream.__aiter__()
    async with asyncio.timeout(WITHIN_S):
        await anext(items)
        assert place(stream) is None
        await anext(items)
        assert (found := place(stream)) is not None and found.seq == bodies[0][0]
        await anext(items)
    # The third was handed out and never came back as handled.
    await stream.close()
    assert (found := place(stream)) is not None and found.seq == bodies[1][0]


async def test_a_clean_end_goes_on_after_the_last_one(gateway: HostileGateway, stream: EventStream) -> None:
    bodies = made(gateway.maker, 4)
    gateway.scripts = [serve(*bodies[:2], stays=False), serve(stays=False), serve(*bodies[2:])]
    assert seqs(await take(stream, 4)) == [seq for seq, _ in bodies]
    assert gateway.asked == [None, str(bodies[1][0]), str(bodies[1][0])]


@pytest.mark.parametrize("lie", ["signature", "order", "left out", "other id", "truncated", "huge", "no id"])
async def test_a_lie_is_counted_and_the_bookmark_stays(
    gateway: HostileGateway, stream: EventStream, lie: str
) -> None:
    bodies = made(gateway.maker, 3)
    (first, one), (second, two), (third, three) = bodies
    forged = {
        "signature": framed(two.replace(b'"signature":"', b'"signature":"00', 1)[:-2] + b'"}', seq=second),
        "order": framed(one, seq=first),
        "left out": framed(three, seq=third),
        "other id": framed(two, event_id="18446744073709551615"),
        "truncated": framed(two[: len(two) // 2], seq=second),
        "huge": b"data: " + b"x" * (5 << 20),
        "no id": b"data: " + two + b"\n\n",
    }[lie]

    async def lying(_gateway: HostileGateway, request: web.Request) -> web.StreamResponse:
        return await respond(request, framed(one, seq=first), forged, stays=True)

    gateway.scripts = [lying, serve(*bodies[1:])]
    if lie == "order":
        # A replay of what was seen changes nothing, and the stream goes on.
        async def repeating(_gateway: HostileGateway, request: web.Request) -> web.StreamResponse:
            frames = [framed(one, seq=first), forged, framed(two, seq=second), framed(three, seq=third)]
            return await respond(request, *frames, stays=True)

        gateway.scripts = [repeating]
    assert seqs(await take(stream, 3)) == [first, second, third]
    counters = stream.counters()
    if lie == "order":
        assert counters["sse_nonce_replay_total"] == 1
        return
    assert sum(count for name, count in counters.items() if name.startswith("sse_envelope_verification")) == 1
    # It asked again from the one before the lie.
    assert gateway.asked == [None, str(first)]


async def test_a_gateway_that_lies_for_ever_is_left(gateway: HostileGateway, stream: EventStream) -> None:
    bodies = made(gateway.maker, 3)
    gateway.scripts = [serve(bodies[0], bodies[2], stays=False), serve(bodies[2], stays=False)]
    with pytest.raises(EnvelopeRefused):
        await take(stream, 2)
    assert (found := place(stream)) is not None and found.seq == bodies[0][0]


async def test_410_hands_out_the_signed_state_and_goes_on_from_it(
    gateway: HostileGateway, stream: EventStream
) -> None:
    maker = gateway.maker
    old = made(maker, 2)
    gone, later = made(maker, 5), Position(0, 0, 0)
    later = maker.position(low=gone[-1][0] - 1)
    gateway.state = maker.state_statement(later)
    fresh = made(maker, 2)
    statement = _json(maker.position_statement(later))
    gateway.scripts = [
        serve(*old, stays=False),
        refuse(410, "last_event_id_outside_replay_window", position=statement),
        serve(*fresh),
    ]
    items = await take(stream, 5)
    assert seqs(items) == [seq for seq, _ in (*old, *fresh)]
    (reset,) = [item for item in items if isinstance(item, StreamReset)]
    assert reset.state.document["events"] == {"command": 1}
    assert gateway.asked == [None, str(old[-1][0]), str(later.high)]


@pytest.mark.parametrize("lie", ["unsigned", "forged", "not gone", "none", "older state"])
async def test_a_410_that_does_not_prove_itself_moves_nothing(
    gateway: HostileGateway, stream: EventStream, lie: str
) -> None:
    maker = gateway.maker
    bodies = made(maker, 6)
    low = maker.position(low=bodies[4][0])
    gateway.state = maker.state_statement(low)
    position: Any = _json(maker.position_statement(low))
    if lie == "unsigned":
        position = {**position, "signature": ""}
    elif lie == "forged":
        position = _json(maker.position_statement(low, seed=b"\x66" * 32))
    elif lie == "not gone":
        position = _json(maker.position_statement(maker.position()))
    elif lie == "none":
        position = None
    elif lie == "older state":
        gateway.state = maker.state_statement(Position(3, bodies[0][0] - 1, bodies[0][0], ""))
    gateway.scripts = [
        serve(*bodies[:2], stays=False),
        refuse(410, "last_event_id_outside_replay_window", position=position),
    ]
    with pytest.raises((IntegrityError, SnavioError)):
        await take(stream, 3)
    assert (found := place(stream)) is not None and found.seq == bodies[1][0]
    assert len(gateway.asked) == 1 + event_stream.MOST_REFUSALS


async def test_a_gateway_that_says_410_for_ever_is_left_where_the_signed_state_was(
    gateway: HostileGateway, stream: EventStream
) -> None:
    maker = gateway.maker
    old = made(maker, 2)
    gone = made(maker, 5)
    position = maker.position(low=gone[-1][0] - 1)
    gateway.state = maker.state_statement(position)
    statement = _json(maker.position_statement(position))
    gateway.scripts = [
        serve(*old, stays=False),
        refuse(410, "last_event_id_outside_replay_window", position=statement),
    ]
    items: list[ReceivedEvents | StreamReset] = []
    with pytest.raises(IntegrityError):
        async with asyncio.timeout(WITHIN_S):
            async for item in stream:
                items.append(item)
    # The first was true; the same statement once more says nothing about the place after it.
    assert [type(item) for item in items] == [ReceivedEvents, ReceivedEvents, StreamReset]
    assert (found := place(stream)) is not None and found.seq == position.high
    assert stream.counters()["sse_reset_failures_total"] == MOST_REFUSALS - 1


async def test_a_refusal_of_the_reader_itself_is_raised(gateway: HostileGateway, stream: EventStream) -> None:
    gateway.scripts = [refuse(403, "not-your-tenant")]
    with pytest.raises(NotAllowed) as refused:
        await take(stream, 1)
    assert refused.value.reason == "not-your-tenant"


async def test_a_gateway_that_is_away_or_full_is_asked_again(
    gateway: HostileGateway, stream: EventStream
) -> None:
    bodies = made(gateway.maker, 1)
    gateway.scripts = [refuse(503, "unavailable"), refuse(429, "tenant-share"), serve(*bodies)]
    assert seqs(await take(stream, 1)) == [bodies[0][0]]
    assert len(gateway.asked) == 3


async def test_a_rotated_key_is_fetched_in_mid_stream(gateway: HostileGateway, stream: EventStream) -> None:
    before = made(gateway.maker, 1)
    gateway.maker.seed, gateway.maker.key_id = b"\x11" * 32, "key-2"
    after = made(gateway.maker, 1)

    async def keys() -> Any:
        old = EnvelopeMaker()
        return [*old.keys, *gateway.maker.keys]

    stream._keys = keys
    gateway.scripts = [serve(*before, *after)]
    assert seqs(await take(stream, 2)) == [before[0][0], after[0][0]]


def _json(body: bytes) -> Any:
    import orjson

    return orjson.loads(body)


async def test_closing_ends_the_iteration_of_a_task_that_waits(
    gateway: HostileGateway, stream: EventStream
) -> None:
    bodies = made(gateway.maker, 2)
    gateway.scripts = [serve(*bodies)]
    found: list[ReceivedEvents | StreamReset] = []
    second = asyncio.Event()

    async def follow() -> str:
        async for item in stream:
            found.append(item)
            if len(found) == 2:
                second.set()
        return "ended"

    async with asyncio.timeout(WITHIN_S):
        task = asyncio.create_task(follow())
        await second.wait()
        await asyncio.sleep(0)
        await stream.close()
        assert await task == "ended"
        assert [item async for item in stream] == []
        await stream.close()
    # Both were handled: the loop came back for a third.
    assert (at := place(stream)) is not None and at.seq == bodies[1][0]


async def test_a_task_that_is_cancelled_while_the_stream_closes_is_cancelled(
    gateway: HostileGateway, stream: EventStream
) -> None:
    gateway.scripts = [serve(*made(gateway.maker, 1))]
    items = aiter(stream)

    async def wait() -> None:
        async for _ in items:
            pass

    async with asyncio.timeout(WITHIN_S):
        await anext(items)
        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(stream.close())
        await asyncio.sleep(0)
        task.cancel()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_tenant_that_was_created_a_moment_ago_is_asked_for_again(
    gateway: HostileGateway, stream: EventStream
) -> None:
    bodies = made(gateway.maker, 1)
    unknown = refuse(404, "unknown-tenant")
    gateway.scripts = [unknown, unknown, serve(*bodies)]
    assert seqs(await take(stream, 1)) == [bodies[0][0]]


async def test_a_tenant_that_stays_unknown_is_told_after_a_while(
    gateway: HostileGateway, stream: EventStream
) -> None:
    clock = ManualClock()
    stream._clock = clock
    unknown = refuse(404, "unknown-tenant")

    async def later(hostile: HostileGateway, request: web.Request) -> web.StreamResponse:
        clock.advance(seconds=2)
        return await unknown(hostile, request)

    gateway.scripts = [later]
    with pytest.raises(NotFound):
        await take(stream, 1)
    assert len(gateway.asked) == 4


async def test_a_path_that_is_not_there_is_told_at_once(gateway: HostileGateway, stream: EventStream) -> None:
    gateway.scripts = [refuse(404, "not-found")]
    with pytest.raises(NotFound):
        await take(stream, 1)
    assert len(gateway.asked) == 1
