"""A topic that hands out nothing says why, and timers of what ended early do not pile up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from services.mailbox.oversight import metrics
from services.mailbox.oversight.change_requests import RequestedChange
from services.mailbox.settle.changes import MessageOperation
from services.mailbox.state.delivery import NackTerms
from services.mailbox.state.leases import RangeLease
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.topics import Limits
from services.mailbox.wire import receive_stream as streaming
from snavio.native import read_leased_batches
from snavio.sdk import Consumer
from snavio.v1 import mailbox_pb2 as mail
from tests.support.bare_mailbox import ME, BareMailbox, bare_mailbox
from tests.support.mailbox import SECONDS, TOPIC, ReceivingStream, commands, running_mailbox, send_batch

HALF_A_DAY_MS = 43_200_000


patient_mailbox = partial(bare_mailbox, policies=Policies(Policy(max_attempts=1000)))


async def sent(bare: BareMailbox, count: int, seq: int = 1) -> None:
    answer = await bare.take(send_batch(seq, (TOPIC, commands(count))))
    assert set(await asyncio.wait_for(answer, 10)) == {1}


async def received(bare: BareMailbox, most: int = 5000) -> tuple[list[int], list[int]]:
    messages = read_leased_batches(await bare.receiving.receive(bare.wanted(most)))[1]
    return [one[0] for one in messages], [one[1] for one in messages]


async def given_back(bare: BareMailbox, ids: list[int], attempts: list[int], delay_ms: int) -> None:
    nack = NackTerms(delay_ms=delay_ms)
    await bare.settlements.settle(TOPIC, 1, ids, attempts, holder=ME, final=False, nack=nack)


async def why(bare: BareMailbox) -> int:
    """The standstill reason of an empty receive."""
    taken = await bare.receiving.take(replace(bare.wanted(10), explain=True))
    answer = mail.ReceiveResponse.FromString(taken.response)
    assert not answer.batch and answer.standstill == taken.standstill
    assert read_leased_batches(taken.response)[1] == []
    return int(answer.standstill)


@pytest.mark.parametrize("stream", [True, False])
async def test_B9_consumer_of_the_sdk_says_why_nothing_comes(tmp_path: Path, stream: bool) -> None:
    async with running_mailbox(tmp_path) as office:
        sender, holder = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(3))))
        got = await holder.receive()
        files = office.authority.service("acme", "worker")
        async with Consumer(
            mailbox=office.address,
            topic=TOPIC,
            certificates=files.certificate.parent,
            capability=office.mint.capability_provider(files).present(),
            stream=stream,
        ) as consumer:
            async with asyncio.timeout(SECONDS):
                while consumer.standstill != "leased":
                    await asyncio.sleep(0.01)
                await holder.nack(got.receipts())
                assert (await anext(consumer)).attempt == 2
            assert consumer.standstill == ""


async def test_B9_timers_of_delays_that_were_cut_short_are_swept() -> None:
    async with patient_mailbox() as bare:
        await sent(bare, 100)
        for _ in range(60):
            ids, attempts = await received(bare)
            assert len(ids) == 100
            one_by_one = zip(ids, attempts, strict=True)
            await asyncio.gather(
                *(given_back(bare, [one], [attempt], HALF_A_DAY_MS) for one, attempt in one_by_one)
            )
            assert (
                await bare.oversight.carry_out(RequestedChange(TOPIC, MessageOperation.REQUEUE, ids=ids))
            ).changed == 100
        assert len(bare.delivery.window.timers) <= 4097, "not one for every delay there ever was"


async def test_B9_what_is_still_delayed_survives_the_sweep() -> None:
    async with patient_mailbox() as bare:
        await sent(bare, 4)
        ids, attempts = await received(bare, 2)
        await given_back(bare, ids, attempts, 60_000)
        (topic,) = [bare.delivery.topics.topic(TOPIC)]
        assert topic is not None
        batch = next(iter(topic.batches.values()))
        for _ in range(20_000):
            spent = RangeLease(batch, 0, 0, 1, ME, bare.clock.mono_ns() + 10**12, 0)
            bare.delivery.window.timers.arm(spent.deadline_mono_ns, spent)
        assert len(bare.delivery.window.timers) <= 4097
        bare.clock.advance(seconds=61)
        assert sorted((await received(bare))[0])[:2] == sorted(ids)


async def test_B9_an_empty_answer_says_why() -> None:
    async with patient_mailbox() as bare:
        assert await why(bare) == mail.STANDSTILL_UNSPECIFIED
        await sent(bare, 4)
        ids, attempts = await received(bare)
        assert await why(bare) == mail.STANDSTILL_LEASED
        await given_back(bare, ids, attempts, HALF_A_DAY_MS)
        assert await why(bare) == mail.STANDSTILL_DELAYED
        told = metrics.gauges(bare.delivery)
        assert told[f'standstill{{topic="{TOPIC}",reason="delayed"}}'] == 1
        silent = await bare.receiving.take(bare.wanted(10))
        assert mail.ReceiveResponse.FromString(silent.response).standstill == 0, "not to who did not ask"


@pytest.mark.parametrize(
    ("limits", "reason", "label"),
    [
        (Limits(topic_spans=20), mail.STANDSTILL_RETRIES, "retries"),
        (Limits(all_spans=20), mail.STANDSTILL_TENANT_SHARE, "tenant-share"),
        (Limits(resident_batches=3, window_batches=2), mail.STANDSTILL_MEMORY, "memory"),
    ],
)
async def test_B9_messages_that_hold_up_others_are_the_reason(
    limits: Limits, reason: int, label: str
) -> None:
    async with patient_mailbox(limits=limits) as bare:
        for seq in range(1, 9):
            await sent(bare, 20, seq)
        while True:
            ids, attempts = await received(bare, 20)
            if not ids:
                break
            for msg_id, attempt in zip(ids[::2], attempts[::2], strict=True):
                await given_back(bare, [msg_id], [attempt], HALF_A_DAY_MS)
        assert await why(bare) == reason
        assert metrics.gauges(bare.delivery)[f'standstill{{topic="{TOPIC}",reason="{label}"}}'] == 1


async def test_B9_receive_and_stream_tell_the_reason_on_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LOOK_SECONDS", 0.05)
    async with running_mailbox(tmp_path) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(2))))
        got = await consumer.receive()
        await consumer.nack(got.receipts(), delay_ms=60_000)
        answer = mail.ReceiveResponse.FromString((await consumer.receive(explain=True)).raw)
        assert answer.standstill == mail.STANDSTILL_DELAYED
        assert mail.ReceiveResponse.FromString((await consumer.receive()).raw).standstill == 0
        stream = await ReceivingStream(consumer, credit=10, explain=True).open()
        told = mail.ReceiveResponse.FromString((await stream.read()).raw)
        assert told.standstill == mail.STANDSTILL_DELAYED and not told.batch
        office.clock.advance(seconds=61)  # type: ignore[attr-defined]
        assert [len(one.messages) for one in await stream.some(2)][-1] > 0
        stream.cancel()
