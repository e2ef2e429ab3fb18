"""Bits that flip between the mailbox and a consumer: noticed by the SDK, never handed to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.admin.queue import QueueClient
from snavio.clock import SystemClock
from snavio.errors import Code, IntegrityError
from snavio.sdk import Consumer
from snavio.sdk.message_source import ReceiveStream
from snavio.v1.mailbox_pb2 import ReceiveResponse
from tests.support.mailbox import SECONDS, TOPIC, MailboxFixture, commands, running_mailbox, send_batch

Tamper = Callable[[bytes], bytes]


def flip_payload(response: bytes) -> bytes:
    """One bit of the payload that holds x2, other than it was."""
    at = response.index(b"x2.")
    return response[:at] + bytes([response[at] ^ 1]) + response[at + 1 :]


def change_hashes(name: str) -> Tamper:
    def change(response: bytes) -> bytes:
        told = ReceiveResponse.FromString(response)
        for batch in told.batch:
            column = bytearray(getattr(batch, name))
            column[2 * 32] ^= 1
            setattr(batch, name, bytes(column))
        serialised: bytes = told.SerializeToString()
        return serialised

    return change


def strip_hashes(response: bytes) -> bytes:
    """As a mailbox of before these fields would answer."""
    told = ReceiveResponse.FromString(response)
    for batch in told.batch:
        batch.ClearField("payload_hash")
        batch.ClearField("hash_chain")
    serialised: bytes = told.SerializeToString()
    return serialised


def half_strip(response: bytes) -> bytes:
    told = ReceiveResponse.FromString(response)
    for batch in told.batch:
        batch.ClearField("hash_chain")
    serialised: bytes = told.SerializeToString()
    return serialised


def repeat_batch(response: bytes) -> bytes:
    told = ReceiveResponse.FromString(response)
    told.batch.append(told.batch[0])
    serialised: bytes = told.SerializeToString()
    return serialised


def tampering(monkeypatch: pytest.MonkeyPatch, tamper: Tamper, *, times: int) -> None:
    """Change the next so many responses with messages on their way to the SDK."""
    receive = ReceiveStream.receive
    left = times

    async def changed(self: ReceiveStream, room: int) -> bytes:
        nonlocal left
        response = await receive(self, room)
        if not left or not ReceiveResponse.FromString(response).batch:
            return response
        left -= 1
        return tamper(response)

    monkeypatch.setattr(ReceiveStream, "receive", changed)


def consumer_of(office: MailboxFixture, **options: Any) -> Consumer:
    return Consumer(
        mailbox=office.address,
        topic=TOPIC,
        certificates=office.authority.service("acme", "bot").certificate.parent,
        signer=office.mesh.signer,
        **options,
    )


async def take(consumer: Consumer, count: int) -> list[tuple[bytes, int, bool]]:
    taken = []
    for _ in range(count):
        command = await anext(consumer)
        taken.append((command.payload.partition(b".")[0], command.attempt, command.verified))
        await command.ack()
    await consumer.flush()
    return taken


@pytest.mark.parametrize("tamper", [flip_payload, change_hashes("payload_hash"), change_hashes("hash_chain")])
async def test_I_12_message_that_changed_underway_comes_again_and_the_others_are_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tamper: Tamper
) -> None:
    tampering(monkeypatch, tamper, times=1)
    async with running_mailbox(
        tmp_path, settings=MailboxSettings(backoff_base_ms=1), clock=SystemClock()
    ) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(5, size=60))))
        async with asyncio.timeout(SECONDS), consumer_of(office) as consumer:
            taken = await take(consumer, 5)
            assert consumer.integrity_failures == 1
        assert sorted(taken) == [(f"x{n}".encode(), 2 if n == 2 else 1, True) for n in range(5)]


async def test_I_12_message_that_changes_in_every_attempt_is_in_the_dlq_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flip_if_there(response: bytes) -> bytes:
        return flip_payload(response) if b"x2." in response else response

    tampering(monkeypatch, flip_if_there, times=1000)
    async with running_mailbox(
        tmp_path, settings=MailboxSettings(backoff_base_ms=1, max_attempts=2), clock=SystemClock()
    ) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3, size=60))))
        async with asyncio.timeout(SECONDS), consumer_of(office) as consumer:
            assert [mark for mark, _, _ in await take(consumer, 2)] == [b"x0", b"x1"]
            waiting = asyncio.ensure_future(anext(consumer))
            while consumer.integrity_failures < 2:
                await asyncio.sleep(0.02)
            await consumer.flush()
            waiting.cancel()
            await asyncio.wait({waiting})
        (dead,) = [one async for one in QueueClient.over(office.operator().channel).dlq(TOPIC)]
        assert dead.last_error.startswith("E_INTEGRITY")


async def test_mailbox_without_hashes_is_served_and_nothing_passes_as_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering(monkeypatch, strip_hashes, times=1000)
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3, size=60))))
        async with asyncio.timeout(SECONDS), consumer_of(office) as consumer:
            assert await take(consumer, 3) == [(f"x{n}".encode(), 1, False) for n in range(3)]


async def test_response_with_half_of_its_hashes_is_an_integrity_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering(monkeypatch, half_strip, times=1)
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3, size=60))))
        async with asyncio.timeout(SECONDS), consumer_of(office) as consumer:
            with pytest.raises(IntegrityError) as refused:
                await anext(consumer)
            assert refused.value.code is Code.E_INTEGRITY


async def test_response_that_names_a_message_twice_is_an_integrity_error_and_hands_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tampering(monkeypatch, repeat_batch, times=1)
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3, size=60))))
        async with asyncio.timeout(SECONDS), consumer_of(office) as consumer:
            with pytest.raises(IntegrityError) as refused:
                await anext(consumer)
            assert refused.value.code is Code.E_INTEGRITY
            assert consumer.unsettled == 0


async def test_stream_of_chunks_is_verified_too(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(500, size=400))))
        async with asyncio.timeout(SECONDS), consumer_of(office, stream=True) as consumer:
            taken = await take(consumer, 500)
            assert {verified for _, _, verified in taken} == {True}
            assert consumer.integrity_failures == 0
