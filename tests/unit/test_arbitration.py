"""Slow gets the keys of what it must decide, and only approved commands go on."""

from __future__ import annotations

import pytest

from snavio.domain.verdict import Verdict
from snavio.native import Arbitration, Dispatch, read_verdicts
from snavio.v1.telemetry_pb2 import TelemetryBlock
from tests.support.frames import RunOf, batch, command, escalated, rows, said, sent, topics_of, verdicts

MISS, STRICT = 1, 4
A, B, C = (command(target="bot", name=name) for name in "abc")


def opened() -> Arbitration:
    return Arbitration.open(
        escalated(
            (MISS, [RunOf([A, B, A]), RunOf([A], source="globex/shop")]),
            (STRICT, [RunOf([C, A])]),
        )
    )


KEYS = [
    ("acme/billing", "bot", "a", MISS),
    ("acme/billing", "bot", "b", MISS),
    ("globex/shop", "bot", "a", MISS),
    ("acme/billing", "bot", "c", STRICT),
    ("acme/billing", "bot", "a", STRICT),
]


def keys_of(arbitration: Arbitration) -> list[tuple[str, str, str, int]]:
    keys = arbitration.keys()
    return [(key.source, key.target, key.name, key.reason) for key in keys]


def test_keys_are_distinct_and_in_order_of_first_appearance() -> None:
    arbitration = opened()
    assert keys_of(arbitration) == KEYS
    assert (arbitration.ledger.count, arbitration.budget_ms, arbitration.frame_code) == (6, 5000, 0)


def test_refusing_a_key_decides_its_commands_and_no_others() -> None:
    arbitration = opened()
    answer = said(arbitration.refuse(0, Verdict.ACL_DENY, 0, "not granted"))
    assert answer.decided == {0: Verdict.ACL_DENY, 2: Verdict.ACL_DENY}
    assert answer.hints == ((0, Verdict.ACL_DENY, 0, 0, "not granted"),)
    assert not answer.final
    assert arbitration.refuse(0, Verdict.ACL_DENY, 0, "") == b""


def test_approved_keys_go_on_and_replies_come_back_in_place() -> None:
    arbitration = opened()
    arbitration.refuse(1, Verdict.ROUTE_MISSING, 0, "")
    sends = arbitration.dispatch(
        [
            (4, 0, "acme/bot", 0),
            (0, 0, "acme/bot", 0),
            (2, 1, "x/y", False),
            (3, 0, "acme/other", False),
        ]
    )
    assert [(send.queue, send.count) for send in sends] == [(0, 4), (1, 1)]
    assert topics_of(bytes(sends[0].body)) == [
        ("acme/bot", [RunOf([A, A]), RunOf([A])]),
        ("acme/other", [RunOf([C])]),
    ]
    assert topics_of(bytes(sends[1].body)) == [("x/y", [RunOf([A], source="globex/shop")])]
    ledger = arbitration.ledger
    answer = said(ledger.merge(0, 0, read_verdicts(verdicts(bytes([1, 2, 70, 71])))))
    assert answer.decided == {0: 1, 2: 2, 5: 70, 4: 71}
    assert said(ledger.merge(1, 0, read_verdicts(verdicts(b"\x01")))).final
    assert ledger.codes == bytes([1, Verdict.ROUTE_MISSING, 2, 1, 71, 70])


def test_key_that_nobody_approved_stays_open() -> None:
    arbitration = opened()
    assert [send.count for send in arbitration.dispatch([(1, 0, "acme/bot", 0)])] == [1]
    arbitration.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01")))
    assert not arbitration.ledger.done
    assert arbitration.ledger.codes == bytes([0, 1, 0, 0, 0, 0])


def test_refused_key_is_not_sent_even_when_approved() -> None:
    arbitration = opened()
    arbitration.refuse(0, Verdict.ACL_DENY, 0, "")
    assert arbitration.dispatch([(0, 0, "acme/bot", 0)]) == []


def test_misuse_is_told() -> None:
    arbitration = opened()
    with pytest.raises(ValueError, match="no such key"):
        arbitration.refuse(5, Verdict.ACL_DENY, 0, "")
    with pytest.raises(ValueError, match="no such key"):
        arbitration.dispatch([(5, 0, "acme/bot", 0)])
    with pytest.raises(ValueError, match="twice"):
        arbitration.dispatch([(0, 0, "acme/bot", 0), (0, 1, "acme/bot", 0)])
    with pytest.raises(ValueError, match="decides nothing"):
        arbitration.refuse(0, 0, 0, "")
    arbitration.dispatch([(0, 0, "acme/bot", 0)])
    with pytest.raises(ValueError, match="before"):
        arbitration.dispatch([(0, 0, "acme/bot", 0)])


def test_malformed_command_is_decided_at_opening() -> None:
    arbitration = Arbitration.open(escalated((MISS, [RunOf([A, b"\xff"])])))
    assert said(arbitration.ledger.opening()).decided == {1: Verdict.MALFORMED}
    assert [send.count for send in arbitration.dispatch([(0, 0, "acme/bot", 0)])] == [1]


def test_bad_frames_are_refused_whole() -> None:
    good = escalated((MISS, [RunOf([A, B])]))
    for frame in (b"\xff", good[:-1], escalated((0, [RunOf([A])])), sent(("acme/bot", [RunOf([A])]))):
        assert Arbitration.open(frame).frame_code == Verdict.MALFORMED
    assert Arbitration.open(good, len(good) - 1).frame_code == Verdict.OVERSIZED
    assert Arbitration.open(good, len(good), 1).frame_code == Verdict.OVERSIZED
    refused = Arbitration.open(good, len(good), 1)
    assert refused.keys() == []
    assert refused.dispatch([]) == []


def test_telemetry_carries_the_reason_and_leaves_undecided_rows_out() -> None:
    arbitration = opened()
    arbitration.refuse(3, Verdict.CONFLICT, 0, "")
    arbitration.refuse(2, Verdict.ACL_DENY, 0, "")
    block = arbitration.telemetry(5)
    assert TelemetryBlock.FromString(block).service == "slow"
    assert [(row.source, row.name, row.verdict, row.escalation) for row in rows(block)] == [
        ("globex/shop", "a", Verdict.ACL_DENY, MISS),
        ("acme/billing", "c", Verdict.CONFLICT, STRICT),
    ]


def test_what_fast_escalates_slow_can_open() -> None:
    plan = Dispatch().plan(batch(RunOf([A, B]), RunOf([A], source="globex/shop")), now_mono_ns=0)
    arbitration = Arbitration.open(b"".join(each.body for each in plan.escalations))
    assert keys_of(arbitration) == KEYS[:3]
    arbitration.dispatch([(0, 0, "acme/bot", 0), (1, 0, "acme/bot", 0), (2, 0, "acme/bot", 0)])
    answer = arbitration.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01\x01\x01")))
    plan.ledger.merge(0, 0, read_verdicts(answer))
    # Each source is a part of its own; both travelled in one batch.
    assert said(plan.ledger.merge(1, 2, read_verdicts(answer))).final
