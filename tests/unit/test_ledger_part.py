"""A batch part answers every command, also when the next hop does not."""

from __future__ import annotations

import pytest

from snavio.domain.verdict import Verdict
from snavio.hop.ledger_part import LedgerPart
from snavio.native import Ledger, Sending, read_verdicts
from snavio.v1.batch_pb2 import VERDICT_OVERSIZED, BatchHeader, Refusal, Run, Verdicts
from snavio.v1.mailbox_pb2 import SendBatch, TopicRuns


@pytest.fixture
def ledger() -> Ledger:
    topic = TopicRuns(topic="acme/bot", run=[Run(source="acme/billing", command=[b"a", b"b", b"c"])])
    frame = SendBatch(header=BatchHeader(batch_seq=5), topic=[topic]).SerializeToString()
    return Sending.open(frame).ledger


@pytest.fixture
def answers() -> list[bytes]:
    return []


@pytest.fixture
def batch_part(ledger: Ledger, answers: list[bytes]) -> LedgerPart:
    return LedgerPart(ledger, 0, count=3, body=b"", deadline_mono_ns=0, answer=answers.append)


def test_a_frame_that_the_next_hop_refuses_as_a_whole_was_not_delivered(
    batch_part: LedgerPart, ledger: Ledger, answers: list[bytes]
) -> None:
    whole = Verdicts(batch_seq=9, refusal=[Refusal(reason=VERDICT_OVERSIZED)], final=True)
    batch_part.settle(0, read_verdicts(whole.SerializeToString()))
    assert ledger.codes == bytes([Verdict.DELIVERY_FAILURE] * 3)
    assert read_verdicts(answers[-1]).final


def test_commands_that_a_final_answer_leaves_open_have_an_unknown_outcome(
    batch_part: LedgerPart, ledger: Ledger, answers: list[bytes]
) -> None:
    partial = Verdicts(batch_seq=9, codes=bytes([Verdict.DELIVERED, 0, Verdict.ACL_DENY]), final=True)
    batch_part.settle(0, read_verdicts(partial.SerializeToString()))
    assert ledger.codes == bytes([Verdict.DELIVERED, Verdict.OUTCOME_UNKNOWN, Verdict.ACL_DENY])
    assert [read_verdicts(answer).final for answer in answers] == [False, True]


@pytest.mark.parametrize(
    ("written", "verdict"), [(True, Verdict.OUTCOME_UNKNOWN), (False, Verdict.DELIVERY_FAILURE)]
)
def test_what_is_lost_is_only_unknown_if_it_was_written(
    batch_part: LedgerPart, ledger: Ledger, written: bool, verdict: Verdict
) -> None:
    batch_part.lost(written=written, cause="the connection broke")
    assert ledger.codes == bytes([verdict] * 3)
