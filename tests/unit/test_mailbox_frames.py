"""A consumer gets the stored messages byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snavio.domain.verdict import Verdict
from snavio.native import Sending, read_leased_batches, read_verdicts, slice_runs
from snavio.v1.mailbox_pb2 import LeasedBatch, ReceiveResponse, SendBatch
from tests.support.frames import RunOf, command, run_of, said, sent, verdicts
from tests.support.mailbox import fields_of

COMMANDS = [command(payload=b"%d" % number) for number in range(10)]


def stored(*runs: RunOf) -> bytes:
    """Runs as the mailbox stores them."""
    fields: bytes = LeasedBatch(run=[run.message() for run in runs]).SerializeToString()
    return fields


def runs_in(fields: bytes) -> list[RunOf]:
    return [run_of(run) for run in LeasedBatch.FromString(fields).run]


def response(*batches: LeasedBatch, boot_epoch: int = 7) -> bytes:
    frame: bytes = ReceiveResponse(boot_epoch=boot_epoch, batch=batches).SerializeToString()
    return frame


def test_topics_come_with_their_runs_as_fields_of_a_leased_batch() -> None:
    first, second = RunOf(COMMANDS[:2]), RunOf(COMMANDS[2:3], source="globex/shop")
    sending = Sending.open(sent(("acme/bot", [first, second]), ("acme/mailer", [first])))
    assert [(topic, count) for topic, count, _ in sending.topics] == [("acme/bot", 3), ("acme/mailer", 2)]
    assert runs_in(sending.topics[0][2]) == [first, second]
    assert runs_in(sending.topics[1][2]) == [first]
    assert (sending.frame_code, sending.budget_ms, sending.ledger.batch_seq) == (0, 5000, 7)


def test_each_topic_is_a_part() -> None:
    ledger = Sending.open(sent(("acme/a", [RunOf(COMMANDS[:2])]), ("acme/b", [RunOf(COMMANDS[:3])]))).ledger
    answer = said(ledger.merge(1, 0, read_verdicts(verdicts(b"\x01" * 3))))
    assert (answer.decided, answer.final) == ({2: 1, 3: 1, 4: 1}, False)
    assert said(ledger.close_part(0, 0, 2, Verdict.SATURATED, 100, "full")).final


def test_runs_without_commands_are_not_stored() -> None:
    sending = Sending.open(sent(("acme/bot", [RunOf([]), RunOf(COMMANDS[:1]), RunOf([])])))
    assert runs_in(sending.topics[0][2]) == [RunOf(COMMANDS[:1])]


def test_bad_and_oversized_frames_are_refused_whole() -> None:
    good = sent(("acme/bot", [RunOf(COMMANDS[:2])]), ("acme/mailer", [RunOf(COMMANDS[:2])]))
    no_topic = sent(("", [RunOf(COMMANDS[:1])]))
    no_source = sent(("acme/bot", [RunOf(COMMANDS[:1], source="")]))
    hello = SendBatch(hello={"wire_version": 1}).SerializeToString()
    for frame in (b"\x00", good[:-1], no_topic, no_source, hello):
        sending = Sending.open(frame)
        assert (sending.frame_code, sending.topics) == (Verdict.MALFORMED, [])
    assert Sending.open(good, len(good) - 1).frame_code == Verdict.OVERSIZED
    assert Sending.open(good, len(good), 3).frame_code == Verdict.OVERSIZED
    assert Sending.open(good, len(good), 4).frame_code == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 20), st.integers(0, 20))
def test_slice_holds_exactly_the_commands_asked_for(sizes: list[int], first: int, count: int) -> None:
    runs = [RunOf(COMMANDS[:size], source=f"acme/s{number}") for number, size in enumerate(sizes)]
    every = [(run.source, one) for run in runs for one in run.commands]
    if first + count > len(every):
        with pytest.raises(ValueError, match="fewer commands"):
            slice_runs(stored(*runs), first, count)
        return
    sliced = runs_in(slice_runs(stored(*runs), first, count))
    assert [(run.source, one) for run in sliced for one in run.commands] == every[first : first + count]
    assert all(run.commands for run in sliced)


def test_slice_of_everything_changes_nothing() -> None:
    fields = stored(RunOf(COMMANDS[:4]), RunOf(COMMANDS[4:], source="globex/shop"))
    assert slice_runs(fields, 0, 10) == fields


@pytest.mark.parametrize("fields", [b"\x2a", b"\x12\x00", b"\x2a\x00", b"\x28\x01"])
def test_damaged_runs_are_never_sliced(fields: bytes) -> None:
    with pytest.raises(ValueError, match="not stored runs"):
        slice_runs(fields, 0, 0)


def test_leased_batches_open_into_messages() -> None:
    told = command(
        command_id="00112233-4455-6677-8899-aabbccddeeff",
        timestamp="2026-11-16T02:00:00Z",
        target="bot",
        name="say",
        content_type="text/plain",
        payload=b"\x00hello",
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    )
    leased = LeasedBatch(
        batch_id=3, first=5, attempt=2, stored_unix_ns=99, run=[RunOf([told, COMMANDS[0]]).message()]
    )
    epoch, messages = read_leased_batches(response(leased, boot_epoch=2**64 - 1))
    assert epoch == 2**64 - 1
    assert [message.msg_id for message in messages] == [3 * 1024 + 5, 3 * 1024 + 6]
    assert fields_of(messages[0]) == (
        3 * 1024 + 5,
        2,
        99,
        "acme/billing",
        "00112233-4455-6677-8899-aabbccddeeff",
        "2026-11-16T02:00:00Z",
        "bot",
        "say",
        "text/plain",
        b"\x00hello",
        "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        1_794_794_400_500_000_000,
        "",
        (),
        0,
        False,
    )
    assert (messages[1].name, messages[1].payload, messages[1].traceparent) == ("delete-user", b"0", "")


def test_each_message_keeps_its_own_source() -> None:
    one = LeasedBatch(batch_id=1, attempt=1, run=[RunOf(COMMANDS[:1]).message()])
    two = LeasedBatch(
        batch_id=2,
        attempt=4,
        run=[RunOf(COMMANDS[1:2], source="globex/shop").message(), RunOf(COMMANDS[2:3]).message()],
    )
    _, messages = read_leased_batches(response(one, two))
    assert [(message.msg_id, message.attempt, message.source) for message in messages] == [
        (1024, 1, "acme/billing"),
        (2048, 4, "globex/shop"),
        (2049, 4, "acme/billing"),
    ]


def test_empty_response_has_no_messages() -> None:
    assert read_leased_batches(b"") == (0, [])
    assert read_leased_batches(response()) == (7, [])


def test_damaged_responses_are_refused() -> None:
    good = response(LeasedBatch(batch_id=1, attempt=1, run=[RunOf(COMMANDS[:2]).message()]))
    broken_command = response(LeasedBatch(batch_id=1, run=[RunOf([COMMANDS[0], b"\xff"]).message()]))
    beyond_the_batch = response(LeasedBatch(batch_id=1, first=1023, run=[RunOf(COMMANDS[:2]).message()]))
    overflowing = response(LeasedBatch(batch_id=2**60, run=[RunOf(COMMANDS[:1]).message()]))
    for frame in (good[:-1], good + b"\x78", broken_command, beyond_the_batch, overflowing, b"\x08\x01"):
        with pytest.raises(ValueError, match="not a ReceiveResponse"):
            read_leased_batches(frame)


def test_a_field_of_a_later_mailbox_is_passed_over() -> None:
    good = response(LeasedBatch(batch_id=1, attempt=1, run=[RunOf(COMMANDS[:2]).message()]))
    assert [fields_of(one) for one in read_leased_batches(good + b"\x78\x01")[1]] == [
        fields_of(one) for one in read_leased_batches(good)[1]
    ]
