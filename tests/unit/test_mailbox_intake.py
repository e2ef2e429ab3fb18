"""The mailbox's answer to a send: once, complete, and not before the disk has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.intake.batch_intake import Sender
from services.mailbox.settings import MailboxSettings
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.native import read_verdicts
from snavio.v1.batch_pb2 import Verdicts
from tests.support.bare_mailbox import BareMailbox
from tests.support.mailbox import TOPIC, commands, running_mailbox, send_batch

PEER = Sender("fast/fast-0", 1)
NO_TOPIC, NOR_THIS = "acme/" + "x" * 300, "acme/" + "y" * 300
DELIVERED, FAILED = bytes([Verdict.DELIVERED]), bytes([Verdict.DELIVERY_FAILURE])


@pytest.fixture
async def bare() -> AsyncIterator[BareMailbox]:
    one = BareMailbox()
    one.commits.start()
    yield one
    await one.close()


class Answers:
    """Every answer to a sender about a batch."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.came = asyncio.Event()

    def __call__(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.came.set()

    async def only(self) -> Any:
        async with asyncio.timeout(10):
            await self.came.wait()
        (frame,) = self.frames
        assert read_verdicts(frame).final, "and whoever reads it strictly can"
        return Verdicts.FromString(frame)


async def test_refusal_of_one_topic_is_told_when_the_others_are_on_disk_and_not_before(
    bare: BareMailbox,
) -> None:
    bare.disk.open.clear()
    answers = Answers()
    frame = send_batch(1, (NO_TOPIC, commands(2)), (TOPIC, commands(3)), (NOR_THIS, commands(1)))
    await bare.intake.take(frame, PEER, final=answers)
    await asyncio.sleep(0.05)
    assert answers.frames == []
    bare.disk.open.set()
    told = await answers.only()
    assert told.codes == FAILED * 2 + DELIVERED * 3 + FAILED
    assert [(one.index, one.detail) for one in told.refusal] == [
        (0, "Not the name of a topic."),
        (5, "Not the name of a topic."),
    ]
    again = Answers()
    await bare.intake.take(frame, PEER, final=again)
    assert (await again.only()).codes == told.codes, "as it was told, so it is recalled"


async def test_send_of_which_nothing_is_stored_has_one_answer_and_leaves_nothing(bare: BareMailbox) -> None:
    answers = Answers()
    frame = send_batch(1, (NO_TOPIC, commands(2)), (NOR_THIS, commands(1)))
    await bare.intake.take(frame, PEER, final=answers)
    told = await answers.only()
    assert told.codes == FAILED * 3 and [one.index for one in told.refusal] == [0, 2]
    assert bare.disk.groups == []


async def test_refusals_are_told_with_the_rest_when_the_disk_refuses_that(bare: BareMailbox) -> None:
    bare.disk.fault = Saturated("full", retry_after_ms=70)
    answers = Answers()
    await bare.intake.take(send_batch(1, (NO_TOPIC, commands(1)), (TOPIC, commands(2))), PEER, final=answers)
    told = await answers.only()
    assert told.codes == FAILED + bytes([Verdict.SATURATED]) * 2
    assert [(one.index, one.retry_after_ms) for one in told.refusal] == [(0, 0), (1, 70)]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (lambda frame: frame[:-1], Verdict.MALFORMED),
        (lambda frame: frame[: frame.index(b"acme/billing")] + b"\x00" * 12, Verdict.MALFORMED),
    ],
)
async def test_frame_that_cannot_be_read_is_refused_and_what_is_behind_it_goes_on(
    tmp_path: Path, damaged: Any, reason: Verdict
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings()) as office:
        sender = await office.sender()
        await sender.write(damaged(send_batch(1, (TOPIC, commands(2)))))
        told = await sender.read()
        assert (told.batch_seq, told.codes, told.final) == (1, b"", True)
        assert [one.reason for one in told.refusal] == [reason]
        assert await sender.send(send_batch(2, (TOPIC, commands(2)))) == DELIVERED * 2


async def test_number_that_no_batch_has_is_refused_and_what_is_behind_it_goes_on(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings()) as office:
        sender = await office.sender()
        assert await sender.send(send_batch(1 << 63, (TOPIC, commands(2)))) == FAILED * 2
        assert await sender.send(send_batch(2, (TOPIC, commands(2)))) == DELIVERED * 2
