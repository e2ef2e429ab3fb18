"""I-6: large deliveries come in chunks of about 64 KiB, to those who ask for it; a frame is another bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.mailbox.wire.receive_stream import CHUNK_BYTES as BOUNDS
from services.mailbox.wire.servicer import MAX_RESPONSE_BYTES
from snavio.domain.chunks import CHUNK_BYTES, MAX_WHOLE_BYTES, Reassembly, in_chunks
from snavio.errors import IntegrityError
from snavio.native import read_leased_batches
from snavio.sdk.consumer import Consumer
from snavio.v1 import mailbox_pb2 as mail
from tests.support.mailbox import (
    SECONDS,
    SERVICE,
    TOPIC,
    MailboxFixture,
    commands,
    running_mailbox,
    send_batch,
)

DONE = b"\x01"
KIB = 1 << 10


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def sent(office: MailboxFixture, count: int, *, size: int) -> None:
    sender = await office.sender()
    for seq, some in enumerate(range(0, count, 3), 1):
        part = commands(min(3, count - some), size=size, mark=f"{some}-")
        assert set(await sender.send(send_batch(seq, (TOPIC, part)))) == set(DONE)


async def opened(office: MailboxFixture, *, credit: int = 1000, **more: Any) -> Any:
    call = office.consumer().channel.stream(SERVICE + "RecvStream")
    wanted = mail.ReceiveRequest(topic=TOPIC, visibility_ms=30_000)
    await call.write(mail.RecvStreamRequest(open=wanted, credit=credit, **more).SerializeToString())
    return call


async def frames(call: Any, messages: int) -> list[bytes]:
    """As they come, until there are so many messages in them."""
    got: list[bytes] = []
    whole, pieces = 0, Reassembly()
    async with asyncio.timeout(SECONDS):
        while whole < messages:
            got.append(await call.read())
            if (response := pieces.take(got[-1])) is not None:
                whole += len(read_leased_batches(response)[1])
    return got


def read_with_nothing_but_protobuf(got: list[bytes]) -> list[Any]:
    """As docs/mailbox.md tells it to somebody who writes in another language."""
    responses, pieces = [], b""
    for frame in got:
        response = mail.ReceiveResponse.FromString(frame)
        if not response.piece:
            responses.append(response)
            continue
        assert not response.batch and not response.boot_epoch
        pieces += response.piece
        if not response.more:
            responses.append(mail.ReceiveResponse.FromString(pieces))
            pieces = b""
    assert not pieces
    return responses


async def test_I_6_large_deliveries_come_in_chunks_and_anybody_can_put_them_together(
    office: MailboxFixture,
) -> None:
    await sent(office, 12, size=60 * KIB)
    got = await frames(await opened(office, chunk_bytes=CHUNK_BYTES), 12)
    assert len(got) >= 12 * 60 // 64
    assert max(map(len, got)) <= CHUNK_BYTES
    responses = read_with_nothing_but_protobuf(got)
    payloads = [len(one) for each in responses for p in each.batch for r in p.run for one in r.command]
    assert len(payloads) == 12 and min(payloads) > 60 * KIB
    assert {each.boot_epoch for each in responses} != {0}


async def test_I_6_without_asking_for_chunks_every_response_comes_whole(office: MailboxFixture) -> None:
    await sent(office, 12, size=60 * KIB)
    got = await frames(await opened(office), 12)
    assert all(not mail.ReceiveResponse.FromString(one).piece for one in got)
    assert max(map(len, got)) > CHUNK_BYTES


async def test_I_6_small_deliveries_are_not_cut(office: MailboxFixture) -> None:
    await sent(office, 3, size=20)
    (got,) = await frames(await opened(office, chunk_bytes=CHUNK_BYTES), 3)
    assert len(read_leased_batches(got)[1]) == 3


async def test_I_6_one_message_larger_than_a_chunk_comes_in_several(office: MailboxFixture) -> None:
    await sent(office, 1, size=250 * KIB)
    got = await frames(await opened(office, chunk_bytes=CHUNK_BYTES), 1)
    assert len(got) == 4 and max(map(len, got)) <= CHUNK_BYTES


async def test_I_6_receive_answers_in_one_frame_of_at_most_a_mebibyte(office: MailboxFixture) -> None:
    await sent(office, 30, size=60 * KIB)
    got = await office.consumer().receive()
    assert 10 < len(got.messages) < 30
    assert len(got.raw) <= MAX_RESPONSE_BYTES + 4 * KIB
    assert not mail.ReceiveResponse.FromString(got.raw).piece


@pytest.mark.parametrize("size", [1, BOUNDS[0] - 1, BOUNDS[1] + 1, (1 << 32) - 1])
async def test_I_6_chunk_beyond_its_bounds_is_refused(office: MailboxFixture, size: int) -> None:
    call = await opened(office, chunk_bytes=size)
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call.read()
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_I_6_chunks_are_agreed_on_once(office: MailboxFixture) -> None:
    call = await opened(office, chunk_bytes=CHUNK_BYTES)
    await call.write(mail.RecvStreamRequest(credit=1, chunk_bytes=CHUNK_BYTES).SerializeToString())
    async with asyncio.timeout(SECONDS):
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_I_6_response_that_a_consumer_leaves_in_the_middle_of_is_given_back(
    office: MailboxFixture,
) -> None:
    await sent(office, 12, size=60 * KIB)
    call = await opened(office, chunk_bytes=BOUNDS[0])
    await call.read()
    call.cancel()
    second = office.consumer(name="second")
    seen: set[int] = set()
    async with asyncio.timeout(SECONDS):
        while len(seen) < 12:
            got = await second.receive(wait_ms=200)
            seen |= {one.msg_id for one in got.messages}
            if (await office.operator().stats())[TOPIC][0] == 0:
                break
    # What had all been written before the consumer left is leased to it; the response in the middle is not.
    assert seen


def test_I_6_frame_chunk_and_response_are_three_bounds() -> None:
    assert BOUNDS[0] < CHUNK_BYTES == 64 * KIB < BOUNDS[1] == MAX_RESPONSE_BYTES < MAX_WHOLE_BYTES


# -- putting together -----------------------------------------------------------------------------------


@given(st.binary(max_size=5000), st.integers(32, 400))
def test_pieces_make_the_whole_again(response: bytes, chunk_bytes: int) -> None:
    whole = b"\x09" + response
    pieces, got = Reassembly(), []
    for frame in in_chunks(whole, chunk_bytes):
        assert len(frame) <= chunk_bytes
        got.append(pieces.take(frame))
    assert got[-1] == whole and set(got[:-1]) <= {None}


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x2a"],
        [b"\x2a\x00"],
        [b"\x2a\x05abc"],
        [b"\x2a\x01a\x30\x02"],
        [b"\x2a\x01ab"],
        [b"\x2a\xff\xff\xff\xff\xff\xff"],
        [b"\x2a\x01a\x30\x01", b"\x09whole"],
        [b"\x2a\x04aaaa\x30\x01", b"\x2a\x04aaaa\x30\x01", b"\x2a\x04aaaa"],
    ],
)
def test_frames_that_cannot_be_pieces_are_refused(frames: list[bytes]) -> None:
    pieces = Reassembly(max_bytes=10)
    with pytest.raises(IntegrityError):
        for frame in frames:
            pieces.take(frame)


# -- the SDK --------------------------------------------------------------------------------------------


def streaming(office: MailboxFixture, **options: Any) -> Consumer:
    files = office.authority.service("acme", "worker")
    return Consumer(
        mailbox=office.address,
        topic=TOPIC,
        certificates=files.certificate.parent,
        stream=True,
        capability=office.mint.capability_provider(files).present(),
        **options,
    )


async def test_I_6_sdk_puts_chunks_together_and_settles(office: MailboxFixture) -> None:
    await sent(office, 20, size=100 * KIB)
    seen: list[bytes] = []
    async with asyncio.timeout(SECONDS), streaming(office, max_unsettled=8) as consumer:
        async for command in consumer:
            seen.append(command.payload)
            await command.ack()
            assert consumer.unsettled <= 8
            if len(seen) == 20:
                break
        await consumer.flush()
    marks = [one.rstrip(b".").partition(b"-") for one in seen]
    assert [int(first) + int(second) for first, _, second in marks] == list(range(20))
    assert (await office.operator().stats())[TOPIC] == (0, 0)


async def test_I_6_streaming_sdk_gives_back_what_it_did_not_hand_out(office: MailboxFixture) -> None:
    await sent(office, 9, size=20)
    async with asyncio.timeout(SECONDS), streaming(office) as consumer:
        await (await anext(consumer)).ack()
        await consumer.flush()
    assert (await office.operator().stats())[TOPIC] == (8, 0)
    got = await office.consumer(name="second").receive()
    assert {one.attempt for one in got.messages} == {1}, "nobody has seen them"


async def test_I_6_streaming_sdk_finds_a_mailbox_again_that_was_away(office: MailboxFixture) -> None:
    await sent(office, 1, size=20)
    async with asyncio.timeout(30), streaming(office) as consumer:
        await (await anext(consumer)).ack()
        await consumer.flush()
        await office.stop()
        office.mesh = office.mesh.model_copy(update={"mailbox": office.address})
        await office.start()
        sender = await office.sender(epoch=2)
        assert await sender.send(send_batch(1, (TOPIC, commands(1, mark="later")))) == DONE
        assert (await anext(consumer)).payload.startswith(b"later")
