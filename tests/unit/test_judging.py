"""The sequential test: what adds up, what is forgiven, and that a judge who was interrupted says the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from snavio.audit.proposals import MAX_EVIDENCE, read_lines
from spark.judging import (
    DOMINANCE_MANY,
    DOMINANCE_ONE,
    Alarm,
    Crowding,
    Judge,
    Refusals,
    Run,
    WindowRows,
    by_window,
    fold,
    judged,
    proposal_id,
    together,
)
from spark.policy import BURSTS, DetectionPolicy

POLICY = DetectionPolicy()
START = 1_794_823_200
W = POLICY.window_seconds
SOURCE = "acme/big"


def crowding(window: int, *, source: str = SOURCE, target: str = "bot", **given: Any) -> Crowding:
    numbers = {"taken": 90, "volume": 100, "rivals": 2, "rivals_offered": 40, "rivals_hurt": 30}
    numbers |= {"rivals_waited": 0, "least_milli": 700}
    return Crowding(
        window=START + window * W,
        source=source,
        target=target,
        command_name="say",
        victims=(("acme/small", 30),),
        **{**numbers, **given},
    )


def refusals(window: int, bad: int, *, kind: str = "burst-invalid-hmac", sent: int = 0) -> Refusals:
    allowed = POLICY.burst_allowance(kind) + sent * POLICY.burst_tolerance_milli(kind) // 1000
    return Refusals(START + window * W, SOURCE, kind, bad, bad - allowed, sent)


def alarms(*rows: Crowding, kept_off: tuple[int, ...] = ()) -> list[Alarm]:
    off = [(START + window * W, SOURCE, "bot") for window in kept_off]
    return judged(POLICY, rows, off, ())


def windows(found: list[Alarm]) -> list[int]:
    return [(one.window - START) // W for one in found]


def test_four_windows_in_a_row_are_an_alarm_and_three_are_not() -> None:
    assert alarms(*map(crowding, range(3))) == []
    (found,) = alarms(*map(crowding, range(4)))
    assert (found.kind, found.source, windows([found])) == (DOMINANCE_ONE, SOURCE, [3])
    # After it a new account is opened: four more are another alarm.
    assert windows(alarms(*map(crowding, range(8)))) == [3, 7]


def test_who_comes_again_and_again_is_found_and_a_burst_now_and_then_is_forgiven() -> None:
    every_third = [crowding(window) for window in range(0, 30, 3)]
    assert windows(alarms(*every_third)) == [9, 21]
    # Two windows, and then four minutes of rest: what is left of them is never enough.
    rare = [crowding(window) for start in range(0, 400, 20) for window in (start, start + 1)]
    assert alarms(*rare) == []


def test_a_ban_that_works_does_not_clear_whom_it_keeps_off() -> None:
    before, after = [crowding(0), crowding(1), crowding(2)], [crowding(23)]
    assert alarms(*before, *after) == []
    assert windows(alarms(*before, *after, kept_off=tuple(range(3, 23)))) == [23]
    # And it does not condemn: nothing but being kept off is no offence.
    assert alarms(*before, kept_off=tuple(range(3, 200))) == []


def test_a_share_below_what_the_route_allows_is_no_hit() -> None:
    assert alarms(*(crowding(window, taken=70) for window in range(9))) == []
    assert alarms(*(crowding(window, taken=90, least_milli=950) for window in range(9))) == []
    assert len(alarms(*(crowding(window, taken=71) for window in range(4)))) == 1


def test_several_targets_add_up_and_one_target_alone_is_not_several() -> None:
    moving = [crowding(window, target=f"bot-{window % 4}", taken=60) for window in range(4)]
    (found,) = alarms(*moving)
    assert (found.kind, sorted(found.run.targets)) == (DOMINANCE_MANY, ["bot-0", "bot-1", "bot-2", "bot-3"])
    assert alarms(*(crowding(window, taken=60) for window in range(20))) == []
    # Who waits for a second target carries no more than an alarm's worth to it.
    late = [crowding(window, taken=60) for window in range(20)] + [crowding(60, target="pay", taken=60)]
    assert alarms(*late) == []


def test_two_targets_at_once_are_one_proposal_for_both() -> None:
    rows = [crowding(window, target=target) for window in range(4) for target in ("bot", "pay")]
    made = {one["kind"]: one for one in together(alarms(*rows), POLICY)}
    assert set(made) == {DOMINANCE_ONE, DOMINANCE_MANY}
    assert made[DOMINANCE_ONE]["affected_targets"] == ["bot", "pay"]


def test_a_proposal_says_who_suffered_since_when_and_how_it_went() -> None:
    (made,) = together(alarms(*map(crowding, (0, 1, 3, 4))), POLICY)
    evidence = json.loads(made["evidence"])
    assert evidence["since"] == "2026-11-16T10:00:00Z"
    assert (evidence["source_share"], evidence["permits"], evidence["of_permits"]) == (0.9, 360, 400)
    assert (evidence["others_offered"], evidence["others_refused"]) == (160, 120)
    assert evidence["suffered"] == {"acme/small": 120}
    assert evidence["share_course"] == [90, 90, 0, 90, 90]
    assert evidence["harm_course"] == [75, 75, 0, 75, 75]
    assert made["proposal_id"] == proposal_id(POLICY, DOMINANCE_ONE, SOURCE, START)


def test_the_longest_evidence_is_one_that_registry_takes() -> None:
    """And the carrier reads the line."""
    long = "t" * 63 + "/" + "s" * 63
    run = Run(points=25, last=START, since=START - 10**6, windows=10**9, taken=10**15, volume=10**15 + 1)
    run.rivals_offered = run.rivals_hurt = run.rivals_waited = 10**15
    run.victims = {f"{long[:-2]}{number:02d}": 10**12 for number in range(20)}
    run.course = [(START - number * W, 100, 100) for number in range(40)]
    made = Alarm(DOMINANCE_ONE, long, START, run).proposal(POLICY)
    assert len(made["evidence"]) <= MAX_EVIDENCE and made["evidence"].isprintable()
    read = read_lines([json.dumps(made, default=lambda time: time.isoformat()).encode()])
    assert (len(read.proposals), read.unreadable) == (1, 0)


@pytest.mark.parametrize("kind", sorted(BURSTS))
def test_a_burst_is_found_at_once_and_neither_good_traffic_nor_a_slow_pace_hides_it(kind: str) -> None:
    alarm, allowed = POLICY.burst_alarm(kind), POLICY.burst_allowance(kind)

    def judge(*rows: Refusals) -> list[int]:
        return windows(judged(POLICY, (), (), [row for row in rows if row.excess > 0]))

    assert judge(refusals(0, alarm + allowed, kind=kind)) == [0]
    assert judge(refusals(0, alarm + allowed - 1, kind=kind)) == []
    # Among ten times as much good traffic, and spread over windows that are each below the threshold.
    assert judge(*(refusals(at, alarm // 2, kind=kind, sent=10 * alarm) for at in range(6))) != []
    # What everybody may have does not add up, however long it lasts.
    assert judge(*(refusals(at, allowed, kind=kind) for at in range(5000))) == []
    # What is beyond it does, with pauses that take the allowance away again.
    trickle = [refusals(at, 4 * allowed, kind=kind) for at in range(0, 1000, 2)]
    assert judge(*trickle) != []


def test_an_alarm_near_the_edge_of_its_period_has_the_name_beside_it_too() -> None:
    seconds = POLICY.period_minutes * 60
    inside = Alarm(DOMINANCE_ONE, SOURCE, START + 5 * 60, Run(windows=1)).proposal(POLICY)
    assert inside["also"] == []
    first = Alarm(DOMINANCE_ONE, SOURCE, START + W, Run(windows=1)).proposal(POLICY)
    assert first["also"] == [proposal_id(POLICY, DOMINANCE_ONE, SOURCE, START - seconds)]
    last = Alarm(DOMINANCE_ONE, SOURCE, START + seconds - W, Run(windows=1)).proposal(POLICY)
    assert last["also"] == [proposal_id(POLICY, DOMINANCE_ONE, SOURCE, START + seconds)]


def test_a_judge_who_is_interrupted_at_any_window_says_the_same() -> None:
    draw = random.Random(15)
    rows = by_window(
        [
            crowding(window, source=f"acme/s{draw.randrange(4)}", target=f"bot-{draw.randrange(3)}")
            for window in range(200)
            if draw.random() < 0.5
        ],
        [(START + window * W, f"acme/s{draw.randrange(4)}", "bot-0") for window in range(0, 200, 7)],
        [refusals(window, draw.randrange(6, 90)) for window in range(0, 200, 3)],
    )
    whole = together(fold(Judge(POLICY), rows), POLICY)
    assert len(whole) > 5
    for cut in range(0, 200, 9):
        first = Judge(POLICY)
        at = START + cut * W
        early = fold(first, {window: each for window, each in rows.items() if window < at})
        kept = Judge.loaded(POLICY, json.loads(json.dumps(first.dumped())))
        late = fold(kept, {window: each for window, each in rows.items() if window >= at})
        assert together([*early, *late], POLICY) == whole, cut


def test_the_ledger_says_how_near_a_ban_is() -> None:
    judge = Judge(POLICY)
    fold(judge, by_window([crowding(0), crowding(1)], (), ()))
    (one,) = judge.ledger(START + W)[:1]
    assert (one["source"], one["target"], one["points"], one["near"]) == (SOURCE, "bot", 16, True)
    # Two windows more.
    assert (one["seconds_to_ban"], one["permits_used"], one["others_refused"]) == (60, 180, 60)
    # Ten quiet windows later there is less to tell, and after twenty nothing.
    assert judge.ledger(START + 11 * W)[0]["near"] is False
    judge.crowded(START + 20 * W, [])
    assert judge.ledger(START + 20 * W) == []


def test_a_warning_comes_before_the_ban_and_has_a_name_of_its_own() -> None:
    judge = Judge(POLICY)
    judge.crowded(START, [crowding(0)])
    assert judge.near(START) == []
    judge.crowded(START + W, [crowding(1)])
    (near,) = judge.near(START + W)
    told = near.warning(POLICY)
    assert (near.kind, told["warning"], told["also"]) == (DOMINANCE_ONE, True, [])
    assert told["proposal_id"] != near.proposal(POLICY)["proposal_id"]
    (read,) = read_lines([json.dumps(told, default=lambda time: time.isoformat()).encode()]).proposals
    assert read.warning
    # Who has stopped is not warned again.
    assert judge.near(START + 4 * W) == []


def test_a_crowd_of_suspects_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.judging.MOST_RUNS", 10)
    judge = Judge(POLICY)
    for window in range(3):
        judge.crowded(START + window * W, [crowding(window)])
    rows = [crowding(3, source=f"crowd/s{number}", target=f"t{number}") for number in range(100)]
    judge.crowded(START + 3 * W, rows)
    assert len(judge.runs) == 10
    # Those who are nearest the alarm stay.
    assert (DOMINANCE_ONE, SOURCE, "bot") in judge.runs


def test_an_empty_window_is_nothing() -> None:
    assert fold(Judge(POLICY), {START: WindowRows()}) == []
