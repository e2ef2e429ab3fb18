"""Replies of the next hops become answers about the incoming batch, each command once."""

from __future__ import annotations

from typing import Any

import pytest

from snavio.domain.verdict import Verdict
from snavio.native import Ledger, Reply, Sending, batch_header, read_verdicts
from snavio.v1.batch_pb2 import Batch, Verdicts
from tests.support.frames import RunOf, command, said, sent, verdicts

DELIVERED = bytes([Verdict.DELIVERED])


def ledger_of(*counts: int, batch_seq: int = 7) -> Ledger:
    """A ledger with one part per count."""
    topics = [(f"acme/t{number}", [RunOf([command()] * count)]) for number, count in enumerate(counts)]
    return Sending.open(sent(*topics, batch_seq=batch_seq)).ledger


def reply(codes: bytes, **told: Any) -> Reply:
    return read_verdicts(verdicts(codes, **told))


def test_reply_to_whole_batch_is_final() -> None:
    ledger = ledger_of(1000)
    answer = said(ledger.merge(0, 0, reply(DELIVERED * 1000)))
    assert answer.final
    assert answer.batch_seq == 7
    assert answer.decided == dict.fromkeys(range(1000), Verdict.DELIVERED)
    assert ledger.done
    assert ledger.codes == DELIVERED * 1000


def test_batch_is_final_only_with_its_last_part() -> None:
    ledger = ledger_of(2, 3)
    assert not said(ledger.merge(1, 0, reply(DELIVERED * 3))).final
    assert not ledger.done
    answer = said(ledger.merge(0, 0, reply(DELIVERED * 2)))
    assert answer.final
    assert answer.decided == {0: Verdict.DELIVERED, 1: Verdict.DELIVERED}


def test_final_flag_of_a_reply_does_not_end_a_batch_with_open_commands() -> None:
    ledger = ledger_of(2)
    assert not said(ledger.merge(0, 0, read_verdicts(verdicts(DELIVERED, final=True)))).final
    assert not ledger.done


def test_part_may_stand_anywhere_in_the_batch_that_is_answered() -> None:
    ledger = ledger_of(2)
    answer = said(ledger.merge(0, 100, reply(b"\x46" + DELIVERED * 4, first=99)))
    assert answer.decided == {0: Verdict.DELIVERED, 1: Verdict.DELIVERED}


def test_command_is_decided_once_however_often_it_is_answered() -> None:
    ledger = ledger_of(1)
    assert ledger.merge(0, 0, reply(DELIVERED))
    for _ in range(3):
        assert ledger.merge(0, 0, reply(bytes([Verdict.SATURATED]))) == b""
    assert ledger.close(Verdict.OUTCOME_UNKNOWN, 0, "") == b""
    assert ledger.codes == DELIVERED


def test_numbers_out_of_range_decide_nothing() -> None:
    ledger = ledger_of(2)
    assert ledger.merge(5, 0, reply(DELIVERED)) == b""
    assert ledger.merge(0, 2**63, reply(DELIVERED)) == b""
    assert ledger.merge(0, 0, reply(DELIVERED, first=2**32 - 1)) == b""
    assert ledger.close_part(5, 0, 2, Verdict.SATURATED, 0, "") == b""
    assert ledger.close_part(0, 2, 2**63, Verdict.SATURATED, 0, "") == b""
    assert not ledger.done


def test_details_of_a_refusal_travel_with_its_command() -> None:
    ledger = ledger_of(1, 2)
    hint = (11, int(Verdict.RATE_LIMIT_EXCEEDED), 250, 2**62, "quota")
    answer = said(
        ledger.merge(
            1, 10, read_verdicts(verdicts(bytes([1, 64]), first=10, hints=[hint, (0, 64, 1, 1, "other")]))
        )
    )
    assert answer.hints == ((2, Verdict.RATE_LIMIT_EXCEEDED, 250, 2**62, "quota"),)


def test_close_hints_once_for_the_first_command_it_closes() -> None:
    ledger = ledger_of(4)
    ledger.merge(0, 0, reply(DELIVERED))
    answer = said(ledger.close(Verdict.SATURATED, 250, "mailbox full"))
    assert answer.final
    assert answer.decided == dict.fromkeys([1, 2, 3], Verdict.SATURATED)
    assert answer.hints == ((1, Verdict.SATURATED, 250, 0, "mailbox full"),)


def test_closing_a_stretch_of_a_part_leaves_the_rest_open() -> None:
    ledger = ledger_of(3, 5)
    answer = said(ledger.close_part(1, 1, 2, Verdict.DELIVERY_FAILURE, 0, "away"))
    assert answer.decided == {4: Verdict.DELIVERY_FAILURE, 5: Verdict.DELIVERY_FAILURE}
    assert not answer.final


def test_closing_with_a_good_outcome_needs_no_hint() -> None:
    assert said(ledger_of(2).close(Verdict.DELIVERED, 0, "")).hints == ()


def test_undecided_is_no_verdict_to_close_with() -> None:
    with pytest.raises(ValueError, match="decides nothing"):
        ledger_of(1).close(0, 0, "")
    with pytest.raises(ValueError, match="decides nothing"):
        ledger_of(1).close_part(0, 0, 1, 0, 0, "")


def test_batch_without_commands_is_answered_at_once() -> None:
    ledger = ledger_of()
    assert ledger.done
    assert said(ledger.opening()).final


def test_refused_frame_is_answered_with_its_reason() -> None:
    ledger = Sending.open(batch_header(9, 0) + b"\x1a\x05x").ledger
    answer = said(ledger.opening())
    assert (answer.batch_seq, answer.final, answer.decided) == (9, True, {})
    assert [hint[1] for hint in answer.hints] == [Verdict.MALFORMED]


def test_verdicts_are_read_as_protobuf_reads_them() -> None:
    hint = (2**32 - 1, 70, 2**32 - 1, -1, "später")
    read = read_verdicts(
        verdicts(b"\x00\x46", first=2**32 - 1, batch_seq=2**64 - 1, final=True, hints=[hint])
    )
    assert (read.batch_seq, read.first, read.codes, read.final) == (2**64 - 1, 2**32 - 1, b"\x00\x46", True)
    assert read.refusals() == [hint]
    assert not read.is_hello
    greeting = Verdicts()
    greeting.hello.audience = "epoch-1"
    assert read_verdicts(greeting.SerializeToString()).is_hello


@pytest.mark.parametrize(
    "frame", [b"\x10", b"\x22\x05a", b"\x38\x01", b"\x10\x01\x10\x01", b"\x2a\x02\x2a\xff"]
)
def test_bytes_that_are_no_verdicts_are_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match="Verdicts"):
        read_verdicts(frame)


@pytest.mark.parametrize(("batch_seq", "budget_ms"), [(0, 0), (1, 5000), (2**64 - 1, 2**32 - 1)])
def test_header_is_what_protobuf_reads(batch_seq: int, budget_ms: int) -> None:
    read = Batch.FromString(batch_header(batch_seq, budget_ms))
    assert read.HasField("header")
    assert (read.header.batch_seq, read.header.budget_ms) == (batch_seq, budget_ms)
