"""Fast dispatches what it knows to be allowed and escalates everything else."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from snavio.domain.verdict import Verdict
from snavio.native import Dispatch, Plan, read_verdicts
from snavio.v1.batch_pb2 import Batch
from snavio.v1.slow_pb2 import EscalationReason
from snavio.v1.telemetry_pb2 import (
    CACHE_PHASE_FRESH,
    CACHE_PHASE_STALE,
    GRANT_KIND_PREFETCHED,
    GRANT_KIND_SHADOW,
    GRANT_KIND_UNLIMITED,
    TelemetryBlock,
)
from tests.support.frames import (
    NAME,
    SOURCE,
    TARGET,
    TIMESTAMP_UNIX_NS,
    TOPIC,
    RunOf,
    batch,
    command,
    escalations_of,
    rows,
    said,
    topics_of,
    verdicts,
)

SECOND_NS = 1_000_000_000
READ_NS = 50 * SECOND_NS
CACHE_MISS = EscalationReason.ESCALATION_REASON_CACHE_MISS
ACL_EXPIRED = EscalationReason.ESCALATION_REASON_ACL_EXPIRED
ROUTE_EXPIRED = EscalationReason.ESCALATION_REASON_ROUTE_EXPIRED
DEDUPE_REQUIRED = EscalationReason.ESCALATION_REASON_DEDUPE_REQUIRED
SYNC = EscalationReason.ESCALATION_REASON_SYNC
LOW, CRITICAL, MODERATE, SYNC_PROFILE = 3, 1, 2, 4


def dispatch_with(*, profile: int = LOW, strict: bool = False, renewed: bool = True) -> Dispatch:
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=profile, strict=strict)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    if renewed:
        dispatch.renewed(READ_NS)
    return dispatch


def plan_one(dispatch: Dispatch, *, age_ns: int = 0, source: str = SOURCE, **told: Any) -> Plan:
    return dispatch.plan(batch(RunOf([command(**told)], source=source)), now_mono_ns=READ_NS + age_ns)


def reason_of(plan: Plan) -> int:
    """The escalation reason of a batch of one; 0 when it was sent."""
    if plan.escalated == 0:
        assert [send.count for send in plan.sends] == [1]
        return 0
    assert plan.sends == []
    [escalation] = plan.escalations
    [(reason, _)] = escalations_of(escalation.body)
    return reason


def test_known_and_allowed_command_is_sent_untouched() -> None:
    run = RunOf([command(payload=b"\x00\xff" * 100), command()])
    plan = dispatch_with().plan(batch(run), now_mono_ns=READ_NS)
    [send] = plan.sends
    assert (send.queue, send.count) == (0, 2)
    assert topics_of(bytes(send.body)) == [(TOPIC, [run])]
    assert (plan.escalated, plan.escalations, plan.budget_ms, plan.frame_code) == (0, [], 5000, 0)
    assert plan.ledger.opening() == b""


def test_unknown_route_is_for_slow_to_decide() -> None:
    assert reason_of(plan_one(dispatch_with(), target="other")) == CACHE_MISS
    assert reason_of(plan_one(dispatch_with(), name="other")) == CACHE_MISS
    assert reason_of(plan_one(Dispatch())) == CACHE_MISS


def test_missing_acl_entry_is_neither_allowed_nor_refused() -> None:
    plan = plan_one(dispatch_with(), source="acme/stranger")
    assert reason_of(plan) == CACHE_MISS
    assert plan.ledger.codes == b"\x00"


def test_acl_of_one_command_allows_no_other() -> None:
    dispatch = dispatch_with()
    dispatch.put_route(TARGET, "other", queue=0, topic=TOPIC, profile=LOW, strict=False)
    dispatch.put_route("other", NAME, queue=0, topic=TOPIC, profile=LOW, strict=False)
    assert reason_of(plan_one(dispatch, name="other")) == CACHE_MISS
    assert reason_of(plan_one(dispatch, target="other")) == CACHE_MISS
    assert reason_of(plan_one(dispatch)) == 0


def test_words_moved_between_fields_are_another_key() -> None:
    dispatch = Dispatch()
    dispatch.put_route("ab", "c", queue=0, topic=TOPIC, profile=LOW, strict=False)
    dispatch.put_route("a", "bc", queue=0, topic=TOPIC, profile=LOW, strict=False)
    dispatch.allow(SOURCE, "ab", "c", 1)
    dispatch.renewed(READ_NS)
    assert reason_of(plan_one(dispatch, target="ab", name="c")) == 0
    assert reason_of(plan_one(dispatch, target="a", name="bc")) == CACHE_MISS


def test_directory_that_was_never_read_is_expired() -> None:
    assert reason_of(plan_one(dispatch_with(renewed=False))) == ROUTE_EXPIRED


@pytest.mark.parametrize(
    ("profile", "fresh_s", "stale_s"), [(CRITICAL, 2, 4), (MODERATE, 10, 20), (LOW, 30, 90), (0, 30, 90)]
)
def test_acl_is_used_until_its_profile_says_expired(profile: int, fresh_s: int, stale_s: int) -> None:
    dispatch = dispatch_with(profile=profile)

    def at(age_ns: int) -> tuple[int, bool]:
        plan = plan_one(dispatch, age_ns=age_ns)
        return reason_of(plan), plan.stale_used

    assert at(fresh_s * SECOND_NS - 1) == (0, False)
    assert at(fresh_s * SECOND_NS) == (0, True)
    assert at(stale_s * SECOND_NS - 1) == (0, True)
    assert at(stale_s * SECOND_NS) == (ACL_EXPIRED, False)
    assert at(180 * SECOND_NS) == (ROUTE_EXPIRED, False)
    counters = dispatch.counters()
    assert (counters["usage.fresh"], counters["usage.stale"], counters["usage.expired"]) == (1, 2, 2)


def test_renewal_never_moves_back() -> None:
    dispatch = dispatch_with(profile=CRITICAL)
    dispatch.renewed(READ_NS - 100 * SECOND_NS)
    assert reason_of(plan_one(dispatch, age_ns=SECOND_NS)) == 0
    dispatch.renewed(READ_NS + 100 * SECOND_NS)
    assert reason_of(plan_one(dispatch, age_ns=101 * SECOND_NS)) == 0


def test_sync_profile_and_profiles_of_the_future_always_go_to_slow() -> None:
    assert reason_of(plan_one(dispatch_with(profile=SYNC_PROFILE))) == SYNC
    assert reason_of(plan_one(dispatch_with(profile=99))) == SYNC


def test_strict_route_goes_to_slow() -> None:
    assert reason_of(plan_one(dispatch_with(strict=True))) == DEDUPE_REQUIRED


def test_revoked_dropped_and_cleared_entries_send_nothing() -> None:
    dispatch = dispatch_with()
    dispatch.deny(SOURCE, TARGET, NAME)
    dispatch.deny(SOURCE, TARGET, NAME)
    assert reason_of(plan_one(dispatch)) == CACHE_MISS
    dispatch.allow(SOURCE, TARGET, NAME, 2)
    assert reason_of(plan_one(dispatch)) == 0
    dispatch.drop_route(TARGET, NAME)
    assert reason_of(plan_one(dispatch)) == CACHE_MISS
    dispatch = dispatch_with()
    dispatch.clear()
    assert (dispatch.counters()["routes"], dispatch.counters()["acls"]) == (0, 0)
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=LOW, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    # Told again, but not yet read as a whole: the old reading was of another directory.
    assert reason_of(plan_one(dispatch)) == ROUTE_EXPIRED


def test_one_cold_command_does_not_hold_the_warm_ones() -> None:
    cold = command(name="cold")
    warm = [command() for _ in range(999)]
    plan = dispatch_with().plan(batch(RunOf([*warm[:500], cold, *warm[500:]])), now_mono_ns=READ_NS)
    assert [send.count for send in plan.sends] == [999]
    answer = said(plan.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01" * 999))))
    assert len(answer.decided) == 999
    assert 500 not in answer.decided
    answer = said(plan.ledger.merge(1, 0, read_verdicts(verdicts(b"\x41"))))
    assert (answer.decided, answer.final) == ({500: Verdict.ACL_DENY}, True)


def test_sources_never_share_a_run() -> None:
    dispatch = dispatch_with()
    dispatch.allow("globex/shop", TARGET, NAME, 1)
    told = [RunOf([command()]), RunOf([command()], source="globex/shop"), RunOf([command(), command()])]
    [send] = dispatch.plan(batch(*told), now_mono_ns=READ_NS).sends
    assert topics_of(bytes(send.body)) == [(TOPIC, told)]


def test_bad_command_costs_only_itself() -> None:
    bad = b"\x0a\xff"
    plan = dispatch_with().plan(batch(RunOf([command(), bad, command()])), now_mono_ns=READ_NS)
    assert [send.count for send in plan.sends] == [2]
    opening = said(plan.ledger.opening())
    assert (opening.decided, opening.final) == ({1: Verdict.MALFORMED}, False)
    assert said(plan.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01\x01")))).final


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff",
        batch(RunOf([command()]))[:-1],
        batch(RunOf([command()])) + b"\x20\x01",
        batch(RunOf([command()])) + batch(),
        batch(RunOf([command()], source="")),
        Batch(hello={"wire_version": 1}).SerializeToString(),
    ],
    ids=["no field", "truncated", "unknown field", "two headers", "no source", "hello"],
)
def test_frame_that_cannot_be_attributed_is_refused_whole(frame: bytes) -> None:
    plan = dispatch_with().plan(frame, now_mono_ns=READ_NS)
    assert plan.frame_code == Verdict.MALFORMED
    assert (plan.sends, plan.escalated, plan.ledger.count) == ([], 0, 0)
    assert plan.telemetry(1) == b""


def test_frame_over_a_limit_is_refused_with_its_number() -> None:
    frame = batch(RunOf([command()] * 3), batch_seq=41)
    for limited in (Dispatch(max_batch_bytes=len(frame) - 1), Dispatch(max_batch_commands=2)):
        plan = limited.plan(frame, now_mono_ns=READ_NS)
        assert plan.frame_code == Verdict.OVERSIZED
        assert said(plan.ledger.opening()).batch_seq == 41
    assert (
        Dispatch(max_batch_bytes=len(frame), max_batch_commands=3).plan(frame, now_mono_ns=0).frame_code == 0
    )


def test_telemetry_tells_what_fast_settled_and_leaves_the_rest_to_slow() -> None:
    first, second = "00112233-4455-6677-8899-aabbccddeeff", "018f0000-0000-7000-8000-000000000001"
    run = RunOf([command(command_id=first), command(name="cold"), b"\xff", command(command_id=second)])
    plan = dispatch_with().plan(batch(run), now_mono_ns=READ_NS)
    plan.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01\x46")))
    block = plan.telemetry(99)
    told = rows(block)
    assert (TelemetryBlock.FromString(block).service, TelemetryBlock.FromString(block).settled_unix_ns) == (
        "fast",
        99,
    )
    assert [row.verdict for row in told] == [Verdict.DELIVERED, Verdict.MALFORMED, Verdict.SATURATED]
    assert [row.command_id for row in told] == [first, "00000000-0000-0000-0000-000000000000", second]
    assert {(row.source, row.admitted_unix_ns, row.escalation) for row in told} == {
        (SOURCE, run.admitted_unix_ns, 0)
    }
    assert [(row.target, row.name) for row in told] == [(TARGET, NAME), ("", ""), (TARGET, NAME)]
    assert [row.sent_unix_ns for row in told] == [TIMESTAMP_UNIX_NS, 0, TIMESTAMP_UNIX_NS]
    assert {row.key_version for row in told} == {"hmac-v1"}
    assert [(row.topic, row.phase, row.acl_version, row.grant) for row in told] == [
        (TOPIC, CACHE_PHASE_FRESH, 1, GRANT_KIND_UNLIMITED),
        ("", 0, 0, 0),
        (TOPIC, CACHE_PHASE_FRESH, 1, GRANT_KIND_UNLIMITED),
    ]


def test_telemetry_tells_how_old_the_right_was() -> None:
    plan = dispatch_with().plan(batch(RunOf([command()])), now_mono_ns=READ_NS + 31_500 * 1_000_000)
    plan.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01")))
    (row,) = rows(plan.telemetry(99))
    assert (row.acl_age_ms, row.phase) == (31_500, CACHE_PHASE_STALE)


def test_telemetry_tells_by_which_permit_a_command_went_and_why_it_was_refused() -> None:
    dispatch = dispatch_with()
    for name in ("holds", "watches"):
        watches = name == "watches"
        dispatch.put_route(
            TARGET, name, queue=0, topic=TOPIC, profile=LOW, strict=False, limited=True, shadow=watches
        )
        dispatch.allow(SOURCE, TARGET, name, 9)
        dispatch.grant(TARGET, name, permits=1, interval=1, ends_mono_ns=READ_NS + 9, now_mono_ns=READ_NS)
    lanes = [command(name="holds"), command(name="watches")]
    for frame, told in ((lanes, [GRANT_KIND_PREFETCHED] * 2), (lanes[1:], [GRANT_KIND_SHADOW])):
        plan = dispatch.plan(batch(RunOf(frame)), now_mono_ns=READ_NS)
        plan.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01" * len(frame))))
        # Only what went without a permit is the shadow's.
        assert [(row.grant, row.acl_version) for row in rows(plan.telemetry(1))] == [
            (kind, 9) for kind in told
        ]
    unknown = batch(RunOf([command(target="nowhere"), command(target="nowhere")]))
    plan = dispatch.plan(unknown, now_mono_ns=READ_NS)
    plan.ledger.merge(0, 0, read_verdicts(verdicts(bytes([Verdict.ROUTE_MISSING] * 2))))
    dispatch.learn(plan, now_mono_ns=READ_NS)
    block = dispatch.plan(unknown, now_mono_ns=READ_NS).telemetry(1)
    assert [row.verdict for row in rows(block)] == [Verdict.ROUTE_MISSING] * 2
    [detail] = TelemetryBlock.FromString(block).details
    assert (detail.row, detail.alike, bool(detail.detail)) == (0, True, True)


def test_telemetry_tells_by_which_right_a_duplicate_was_answered() -> None:
    dispatch = dispatch_with(strict=True)
    frame = batch(RunOf([command()]))
    first = dispatch.plan(frame, now_mono_ns=READ_NS)
    first.ledger.merge(0, 0, read_verdicts(verdicts(b"\x01")))
    dispatch.learn(first, now_mono_ns=READ_NS)
    (row,) = rows(dispatch.plan(frame, now_mono_ns=READ_NS + 1).telemetry(1))
    assert row.verdict == Verdict.DUPLICATE
    assert (row.acl_version, row.phase, row.topic, row.grant) == (1, CACHE_PHASE_FRESH, "", 0)


def test_counters_count_commands() -> None:
    dispatch = dispatch_with()
    dispatch.plan(batch(RunOf([command(), command(), command(name="x"), b"\xff"])), now_mono_ns=READ_NS)
    counters = dispatch.counters()
    assert (counters["dispatched"], counters["refused"], counters["escalated.cache_miss"]) == (2, 1, 1)
    assert (counters["routes"], counters["acls"], counters["usage.fresh"]) == (1, 1, 2)


def test_directory_may_change_while_batches_are_planned() -> None:
    dispatch = dispatch_with()
    frame = batch(RunOf([command()] * 200))
    plans: list[Plan] = []

    def plan_many() -> None:
        plans.extend(dispatch.plan(frame, now_mono_ns=READ_NS) for _ in range(50))

    planners = [threading.Thread(target=plan_many) for _ in range(2)]
    for planner in planners:
        planner.start()
    for number in range(2000):
        dispatch.allow(f"acme/s{number}", TARGET, NAME, 1)
        dispatch.deny(SOURCE, TARGET, NAME) if number % 2 else dispatch.allow(SOURCE, TARGET, NAME, 1)
    for planner in planners:
        planner.join(timeout=60)
    assert len(plans) == 100
    # A batch sees one directory: all of it was sent, or none of it.
    assert {sum(send.count for send in plan.sends) + plan.escalated for plan in plans} == {200}
    assert {plan.escalated for plan in plans} <= {0, 200}


def test_fresh_longer_than_stale_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="route_fresh_ms"):
        Dispatch(route_fresh_ms=2, route_stale_ms=1)
