"""The producer against a Shield and a Signer that use the real wire and answer as scripted."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Unavailable
from snavio.hop.client import BatchClient, ClientLimits
from snavio.host.shares import ShareLimit
from snavio.native import Judgement
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.pending_sends import BulkSend, submission_field
from snavio.sdk.producer import Producer
from snavio.sdk.settings import Endpoints
from snavio.sdk.signing import MAX_PAYLOAD_BYTES
from snavio.v1.batch_pb2 import VERDICT_ACL_DENY, VERDICT_OVERSIZED, Limits, Refusal, Verdicts
from snavio.v1.command_pb2 import Command
from snavio.v1.shield_pb2 import Submission
from tests.support.docs import example
from tests.support.neighbours import eventually
from tests.support.scripted import Stage, deliver, hang_up, key_version, refuse, say_nothing, stage

TARGET, NAME = "discord-bot", "notify-user"


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as staged:
        yield staged


def producer_of(scripted: Stage, **options: Any) -> Producer:
    return Producer(
        shield=scripted.shield_server.address,
        signer=scripted.signer_server.address,
        certificates=scripted.certificates,
        **options,
    )


def commands_of(scripted: Stage) -> list[Command]:
    """Every command that reached Shield, in order."""
    return [
        Command.FromString(raw)
        for frame in scripted.shield.frames
        for raw in Submission.FromString(frame).command
    ]


async def test_a_command_is_signed_so_that_shield_admits_it(scripted: Stage) -> None:
    scripted.shield.keep_frames = True
    async with producer_of(scripted) as producer:
        assert producer.source == "acme/billing"
        outcome = await producer.send(TARGET, NAME, b"hello", content_type="text/plain")
    assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 1)
    (command,) = commands_of(scripted)
    assert (command.id, command.payload) == (outcome.command_id, b"hello")
    assert (command.audience, command.content_type) == ("shield-1", "text/plain")


async def test_a_payload_over_the_bound_is_told_with_the_bound(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        assert (await producer.send(TARGET, NAME, bytes(MAX_PAYLOAD_BYTES))).delivered
        with pytest.raises(BadRequest, match="at most 262,144 bytes"):
            await producer.send(TARGET, NAME, bytes(MAX_PAYLOAD_BYTES + 1))


async def test_sends_of_the_same_moment_share_batches(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"%d" % n) for n in range(2500)))
    assert all(outcome.delivered for outcome in outcomes)
    assert len({outcome.command_id for outcome in outcomes}) == 2500
    assert sum(scripted.shield.batches) == 2500
    assert max(scripted.shield.batches) <= 1000
    assert len(scripted.shield.batches) < 100


async def test_commands_of_every_length_are_framed_rightly(scripted: Stage) -> None:
    scripted.shield.keep_frames = True
    lengths = [0, 1, 100, 127, 128, 300, 16_000, 16_384, 200_000, 256 << 10]
    async with producer_of(scripted) as producer:
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"x" * length) for length in lengths))
    assert all(outcome.delivered for outcome in outcomes)
    assert sorted(len(command.payload) for command in commands_of(scripted)) == lengths


async def test_a_batch_comes_back_in_order_with_the_refused_among_the_delivered(scripted: Stage) -> None:
    def odd_ones_out(judgement: Judgement) -> list[bytes]:
        codes = bytes(1 if n % 2 == 0 else Verdict.ACL_DENY for n in range(judgement.accepted))
        refusal = Refusal(index=1, reason=VERDICT_ACL_DENY, detail="no")
        seq = judgement.ledger.batch_seq
        return [Verdicts(batch_seq=seq, codes=codes, refusal=[refusal], final=True).SerializeToString()]

    scripted.shield.scripts.append(odd_ones_out)
    async with producer_of(scripted) as producer:
        outcomes = await producer.send_batch([(TARGET, NAME, b"%d" % n) for n in range(10)])
    assert [outcome.verdict for outcome in outcomes] == [Verdict.DELIVERED, Verdict.ACL_DENY] * 5
    # A hint that stands once speaks for those after it with the same reason.
    assert outcomes[9].detail == "no"


async def test_a_long_batch_is_cut_to_what_shield_takes(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        outcomes = await producer.send_batch([(TARGET, NAME, b"x" * 2000) for _ in range(2200)])
    assert all(outcome.delivered for outcome in outcomes)
    assert sum(scripted.shield.batches) == 2200
    assert max(scripted.shield.batches) <= 1000


async def test_no_frame_is_larger_than_a_shield_says_that_it_takes(scripted: Stage) -> None:
    scripted.shield.keep_frames = True
    scripted.shield.limits = Limits(
        max_batch_bytes=20_000, max_batch_commands=7, max_payload_bytes=4000, window_ms=60_000
    )
    payloads = [b"x" * length for length in (0, 10, 3999, 4000)] * 20
    async with producer_of(scripted) as producer:
        outcomes = list(await asyncio.gather(*(producer.send(TARGET, NAME, each) for each in payloads)))
        outcomes += await producer.send_batch([(TARGET, NAME, each) for each in payloads])
    assert all(outcome.delivered for outcome in outcomes)
    assert max(scripted.shield.batches) == 7
    assert max(map(len, scripted.shield.frames)) <= 20_000


async def test_a_refusal_of_a_whole_frame_holds_for_every_command_of_it(scripted: Stage) -> None:
    def too_large(judgement: Judgement) -> list[bytes]:
        refusal = Refusal(index=0, reason=VERDICT_OVERSIZED, detail="too many")
        seq = judgement.ledger.batch_seq
        return [Verdicts(batch_seq=seq, refusal=[refusal], final=True).SerializeToString()]

    scripted.shield.otherwise = too_large
    async with producer_of(scripted) as producer:
        outcomes = list(await asyncio.gather(*(producer.send(TARGET, NAME, b"") for _ in range(2))))
        outcomes += await producer.send_batch([(TARGET, NAME, b"")] * 2)
    # Known not to be delivered, and so not in doubt; the same would be refused again, and so not tried again.
    told = [(outcome.verdict, outcome.attempts, outcome.detail) for outcome in outcomes]
    assert told == [(Verdict.OVERSIZED, 1, "too many")] * 4


async def test_partial_answers_reach_each_sender_as_they_come(scripted: Stage) -> None:
    held: list[Judgement] = []

    def first_half(judgement: Judgement) -> list[bytes]:
        held.append(judgement)
        return [Verdicts(batch_seq=judgement.ledger.batch_seq, codes=b"\1\1").SerializeToString()]

    scripted.shield.scripts.append(first_half)
    async with producer_of(scripted, max_attempts=1) as producer:
        sends = [asyncio.ensure_future(producer.send(TARGET, NAME, b"%d" % n)) for n in range(4)]
        assert (await sends[0]).delivered
        assert (await sends[1]).delivered
        assert not sends[2].done()
        await scripted.shield_server.server.drain(0)
        outcomes = await asyncio.gather(*sends)
    assert [outcome.verdict for outcome in outcomes[2:]] == [Verdict.OUTCOME_UNKNOWN] * 2


async def test_a_final_answer_that_leaves_a_command_out_does_not_leave_its_sender_waiting(
    scripted: Stage,
) -> None:
    def forget_the_last(judgement: Judgement) -> list[bytes]:
        return [Verdicts(batch_seq=judgement.ledger.batch_seq, codes=b"\1", final=True).SerializeToString()]

    scripted.shield.scripts.append(forget_the_last)
    async with producer_of(scripted, max_attempts=1) as producer:
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"") for _ in range(2)))
    assert [outcome.verdict for outcome in outcomes] == [Verdict.DELIVERED, Verdict.OUTCOME_UNKNOWN]


async def test_a_verdict_from_the_future_is_no_delivery(scripted: Stage) -> None:
    def newer(judgement: Judgement) -> list[bytes]:
        return [Verdicts(batch_seq=judgement.ledger.batch_seq, codes=b"\x7e", final=True).SerializeToString()]

    scripted.shield.scripts.append(newer)
    async with producer_of(scripted, max_attempts=1) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert outcome.verdict is Verdict.OUTCOME_UNKNOWN


async def test_a_refusal_that_a_retry_cannot_change_is_not_retried(scripted: Stage) -> None:
    scripted.shield.otherwise = refuse(Verdict.ACL_DENY, detail="not granted")
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert (outcome.verdict, outcome.attempts, outcome.detail) == (Verdict.ACL_DENY, 1, "not granted")
    assert outcome.reason == "acl-deny"
    assert len(scripted.shield.batches) == 1


async def test_a_retry_keeps_the_id_and_signs_anew(scripted: Stage) -> None:
    scripted.shield.keep_frames = True
    scripted.shield.scripts.extend([refuse(Verdict.SATURATED, retry_after_ms=5), deliver])
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"again")
    assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 2)
    first, second = commands_of(scripted)
    assert first.id == second.id == outcome.command_id
    assert first.hmac != second.hmac and first.timestamp != second.timestamp


async def test_a_callers_own_id_is_used(scripted: Stage) -> None:
    own = "01890000-0000-7000-8000-000000000001"
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"", command_id=own)
    assert (outcome.delivered, outcome.command_id) == (True, own)


async def test_attempts_end_with_the_time_and_not_with_a_count(scripted: Stage) -> None:
    scripted.shield.scripts.extend([refuse(Verdict.SATURATED, retry_after_ms=5)] * 7 + [deliver])
    async with producer_of(scripted, timeout_s=60.0) as producer:
        outcome = await producer.send(TARGET, NAME, b"seven refusals")
    assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 8)


async def test_attempts_end_with_the_last_refusal_and_its_hint(scripted: Stage) -> None:
    scripted.shield.otherwise = refuse(Verdict.RATE_LIMIT_EXCEEDED, retry_after_ms=3)
    async with producer_of(scripted, max_attempts=3) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert (outcome.verdict, outcome.attempts) == (Verdict.RATE_LIMIT_EXCEEDED, 3)
    assert outcome.retry_after_ms == 3


async def test_a_hint_beyond_the_timeout_is_answered_at_once(scripted: Stage) -> None:
    scripted.shield.otherwise = refuse(Verdict.RATE_LIMIT_EXCEEDED, retry_after_ms=60_000)
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert (outcome.attempts, outcome.retry_after_ms) == (1, 60_000)


async def test_a_mesh_that_refuses_everything_is_not_hammered(scripted: Stage) -> None:
    scripted.shield.otherwise = refuse(Verdict.DELIVERY_FAILURE)
    async with producer_of(scripted) as producer:
        await asyncio.gather(*(producer.send(TARGET, NAME, b"") for _ in range(1000)))
    # The first 1000, a tenth of them again, and the little that a producer may always retry.
    assert sum(scripted.shield.batches) < 1000 + 400


async def test_a_shield_with_another_audience_is_learned_from_its_refusal(scripted: Stage) -> None:
    async with producer_of(scripted, timeout_s=5.0) as producer:
        assert (await producer.send(TARGET, NAME, b"before")).attempts == 1
        scripted.shield.restart("shield-2")
        # More than the retry budget holds: a lesson costs no token.
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"%d" % n) for n in range(800)))
        assert {(outcome.verdict, outcome.attempts) for outcome in outcomes} == {(Verdict.DELIVERED, 2)}
        assert (await producer.send(TARGET, NAME, b"after")).attempts == 1


async def test_an_unknown_key_version_fetches_the_keys_once_for_all(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        scripted.signer.keys = [key_version(2)]
        scripted.shield.know(scripted.signer.keys)
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"%d" % n) for n in range(500)))
    assert {(outcome.verdict, outcome.attempts) for outcome in outcomes} == {(Verdict.DELIVERED, 2)}
    assert scripted.signer.asked == 2


async def test_a_revoked_key_is_replaced_by_its_successor(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        scripted.signer.keys = [key_version(1, revoked=True), key_version(2)]
        scripted.shield.know(scripted.signer.keys)
        outcome = await producer.send(TARGET, NAME, b"")
    assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 2)


async def test_a_shield_that_hears_of_a_key_after_its_producer_refuses_nobody_for_good(
    scripted: Stage,
) -> None:
    scripted.shield.know([key_version(9)])
    async with producer_of(scripted) as producer:
        # More than the retry budget holds.
        sent = asyncio.gather(*(producer.send(TARGET, NAME, b"%d" % n) for n in range(500)))
        # All of them were refused.
        await eventually(lambda: sum(scripted.shield.batches) >= 500)
        scripted.shield.know(scripted.signer.keys)
        outcomes = await sent
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}
    assert max(outcome.attempts for outcome in outcomes) > 1


async def test_a_key_that_shield_never_learns_does_not_flood_signer(scripted: Stage) -> None:
    scripted.shield.know([key_version(9)])
    async with producer_of(scripted) as producer:
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"") for _ in range(200)))
    assert {outcome.verdict for outcome in outcomes} == {Verdict.UNKNOWN_KEY_VERSION}
    # Once per pause of all of them together, within their ten seconds.
    assert scripted.signer.asked <= 10


async def test_a_broken_stream_is_outcome_unknown_and_tried_again_under_the_same_id(scripted: Stage) -> None:
    scripted.shield.keep_frames = True
    scripted.shield.scripts.append(hang_up)
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert (outcome.verdict, outcome.attempts) == (Verdict.DELIVERED, 2)
    assert {command.id for command in commands_of(scripted)} == {outcome.command_id}
    assert scripted.shield.greetings == 2


async def test_a_refusal_after_an_unanswered_attempt_stays_unknown(scripted: Stage) -> None:
    scripted.shield.scripts.append(hang_up)
    scripted.shield.otherwise = refuse(Verdict.ACL_DENY)
    async with producer_of(scripted) as producer:
        outcome = await producer.send(TARGET, NAME, b"")
    assert outcome.verdict is Verdict.OUTCOME_UNKNOWN
    assert "acl-deny" in outcome.detail


async def test_silence_ends_as_outcome_unknown_for_the_impatient_and_the_patient(scripted: Stage) -> None:
    scripted.shield.otherwise = say_nothing
    async with producer_of(scripted, max_attempts=1) as producer:
        patient = asyncio.ensure_future(producer.send(TARGET, NAME, b"", timeout_s=3.0))
        hasty = asyncio.ensure_future(producer.send(TARGET, NAME, b"", timeout_s=0.1))
        assert (await hasty).verdict is Verdict.OUTCOME_UNKNOWN
        assert not patient.done()
        assert (await patient).verdict is Verdict.OUTCOME_UNKNOWN


async def test_a_shield_that_is_away_is_a_delivery_failure_within_the_timeout(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        await scripted.shield_server.server.drain(0)
        assert producer._mesh is not None
        link = producer._mesh.dispatcher.link
        await eventually(lambda: not link.connected.is_set())
        outcome = await producer.send(TARGET, NAME, b"", timeout_s=0.3)
    assert outcome.verdict is Verdict.DELIVERY_FAILURE


async def test_a_cancelled_send_takes_nobody_else_along(scripted: Stage) -> None:
    async with producer_of(scripted) as producer:
        sends = [asyncio.ensure_future(producer.send(TARGET, NAME, b"%d" % n)) for n in range(3)]
        await asyncio.sleep(0)
        sends[1].cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert all(outcome.delivered for outcome in (outcomes[0], outcomes[2]))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("target", "name", "options", "field"),
    [
        ("no spaces", NAME, {}, "target"),
        (TARGET, "Line\nbreak", {}, "name"),
        (TARGET, NAME, {"content_type": "a\nb"}, "content_type"),
        (TARGET, NAME, {"command_id": "not-a-uuid"}, "id"),
        (TARGET, NAME, {"traceparent": "zz"}, "traceparent"),
    ],
)
async def test_an_ill_formed_field_is_named_before_anything_is_sent(
    scripted: Stage, target: str, name: str, options: dict[str, str], field: str
) -> None:
    async with producer_of(scripted) as producer:
        with pytest.raises(BadRequest, match=field):
            await producer.send(target, name, b"", **options)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="payload"):
            await producer.send_batch([(TARGET, NAME, b""), (TARGET, NAME, b"x" * ((256 << 10) + 1))])
    assert scripted.shield.batches == []


async def test_a_closed_producer_refuses_to_send(scripted: Stage) -> None:
    producer = producer_of(scripted)
    async with producer:
        pass
    with pytest.raises(Unavailable, match="not open"):
        await producer.send(TARGET, NAME, b"")


async def test_closing_leaves_no_task_behind(scripted: Stage) -> None:
    before = asyncio.all_tasks()
    async with producer_of(scripted) as producer:
        await producer.send(TARGET, NAME, b"")
    mine = {
        task
        for task in asyncio.all_tasks() - before
        if "link" in task.get_name() or "producer" in task.get_name()
    }
    assert mine == set()


async def test_an_idle_stream_that_grew_old_is_opened_anew_and_goes_on_serving(scripted: Stage) -> None:
    clock = SystemClock()
    audiences: list[str] = []
    files = CertificateFiles.in_folder(scripted.certificates)
    channel = MeshChannel(scripted.shield_server.address, files=files, service="shield")
    link = BatchClient(
        channel,
        "/snavio.v1.Shield/SubmitStream",
        clock=clock,
        limits=ClientLimits(max_age_s=0.05),
        on_hello=lambda hello: audiences.append(hello.audience),
    )
    await link.start()
    async with asyncio.timeout(30):
        while len(audiences) < 3:
            await asyncio.sleep(0.01)
        lot = BulkSend(
            1,
            submission_field(b"nonsense") + b"nonsense",
            deadline_mono_ns=clock.mono_ns() + 10**10,
            done=asyncio.get_running_loop().create_future(),
        )
        link.put(lot)
        await lot.done
    assert lot.codes == bytes([Verdict.MALFORMED])
    await link.close()
    await channel.close()


async def test_the_guides_example_of_sending_works(scripted: Stage) -> None:
    endpoints = Endpoints(shield=scripted.shield_server.address, signer=scripted.signer_server.address)
    outcome = await example("send").names()["remind"](endpoints, scripted.certificates)
    assert outcome.delivered
    assert scripted.shield.batches == [1]


async def test_a_producer_that_is_refused_says_what_was_refused_and_why(scripted: Stage) -> None:
    streams = scripted.shield_server.server._guard._shares.streams
    streams.limit = ShareLimit(streams.limit.total, 1)
    async with producer_of(scripted):
        second = producer_of(scripted)
        second._patience = dataclasses.replace(second._patience, start_s=1.0)
        with pytest.raises(Unavailable) as refused:
            await second.__aenter__()
    assert refused.value.reason == "tenant-share"
    assert "acme has its share of open streams: 1 of 1." in str(refused.value)
    assert "could not be reached" not in str(refused.value)
