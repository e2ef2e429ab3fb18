"""The native plan and ledger agree with their plain Python twins on random batches and random replies."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from snavio import native
from tests.support.dispatch_twin import (
    SECOND_NS,
    CommandTwin,
    DispatchTwin,
    LedgerTwin,
    OwnTwin,
    PlanTwin,
    RouteTwin,
)
from tests.support.frames import RunOf, batch, command, escalations_of, rows, said, topics_of, verdicts

SOURCES = ["acme/billing", "acme/shop", "globex/shop"]
TARGETS = ["bot", "mailer", "bo"]
NAMES = ["delete", "t", "bot"]
READ_NS = 1_000 * SECOND_NS
EXAMPLES = 500 if os.environ.get("SNAVIO_FULL") else 50

sources, targets, names = (st.sampled_from(values) for values in (SOURCES, TARGETS, NAMES))
good = st.builds(
    lambda target, name, size: CommandTwin(
        command(target=target, name=name, payload=b"p" * size), (target, name)
    ),
    targets,
    names,
    st.integers(0, 300),
)
whole = command(target="bot", name="delete")
bad = st.sampled_from(
    [
        b"",
        whole[:-1],
        b"\xff",
        whole + whole,
        whole + b"\x62\x00",
        whole + b"\x72\x01x",
        b"\x3a\x03bot",
        b"\x3a\x01\xff\x42\x01t",
        b"\x3a\x83\x00bot\x42\x01t",
        b"\x38\x01\x42\x01t",
    ]
).map(lambda body: CommandTwin(body, None))
commands = st.lists(st.one_of(good, good, good, bad), max_size=10)
runs = st.lists(
    st.tuples(sources, commands, st.sampled_from(["", "hmac-v1", "hmac-v2"]), st.integers(-1, 2**62)).map(
        lambda told: (
            RunOf([one.body for one in told[1]], told[0], told[2], "ab12", told[3]),
            told[1],
        )
    ),
    min_size=1,
    max_size=6,
)
# Small enough that a few commands make a source dominant, and short enough that a test's clock passes it.
FAIRNESS = [(30, 0.8, 0.1, 2, 50, 30), (5, 0.6, 0.2, 1, 3, 7), (10, 0.5, 1.0, 2, 1, 3)]
routes = st.dictionaries(
    st.tuples(targets, names),
    st.builds(
        RouteTwin,
        queue=st.integers(0, 2),
        topic=st.sampled_from(["acme/bot", "acme/mailer", "globex/bot"]),
        profile=st.integers(0, 4),
        strict=st.sampled_from([False, False, True]),
        cold_only=st.sampled_from([False, False, False, True]),
        limit=st.sampled_from(["none", "none", "holds", "watches"]),
        fairness=st.sampled_from(FAIRNESS),
    ),
    min_size=5,
)
EVERYTHING = set(itertools.product(SOURCES, TARGETS, NAMES))
acls = st.one_of(st.just(EVERYTHING), st.sets(st.sampled_from(sorted(EVERYTHING)), min_size=5))
# Every edge of every phase, and the last moment before it.
ages = st.sampled_from([edge * SECOND_NS for edge in (0, 2, 4, 10, 20, 30, 60, 90, 180)]).flatmap(
    lambda edge: st.sampled_from([edge, edge, max(edge - 1, 0), edge + 1])
)
Runs = Sequence[tuple[RunOf, Sequence[CommandTwin]]]


def natively(twin: DispatchTwin, **bounds: int) -> native.Dispatch:
    """The same directory on the native side."""
    dispatch = native.Dispatch(**bounds)  # type: ignore[arg-type]
    for (target, name), route in twin.routes.items():
        # Whatever was there before is replaced.
        dispatch.put_route(target, name, queue=9, topic="x/y", profile=3, strict=False)
        dispatch.put_route(
            target,
            name,
            queue=route.queue,
            topic=route.topic,
            profile=route.profile,
            strict=route.strict,
            cold_only=route.cold_only,
            limited=route.limit != "none",
            shadow=route.limit == "watches",
            fairness=route.fairness,
        )
    for source in SOURCES:
        for target in TARGETS:
            for name in NAMES:
                dispatch.allow(source, target, name, 1)
                if (source, target, name) not in twin.acls:
                    dispatch.deny(source, target, name)
    if twin.read_mono_ns is not None:
        dispatch.renewed(twin.read_mono_ns)
        dispatch.renewed(twin.read_mono_ns - 5 * SECOND_NS)
    return dispatch


def planned(twin: DispatchTwin, told: Runs, now: int) -> tuple[native.Plan, PlanTwin]:
    """Both plans of one batch."""
    frame = batch(*(run for run, _ in told), batch_seq=3, budget_ms=77)
    return natively(twin).plan(frame, now_mono_ns=now), twin.plan(told, now)


@settings(max_examples=EXAMPLES, deadline=None)
@given(told=runs, routes=routes, acls=acls, age=ages, read=st.sampled_from([READ_NS, READ_NS, READ_NS, None]))
def test_plan_is_what_the_twin_plans(
    told: Runs,
    routes: dict[tuple[str, str], RouteTwin],
    acls: set[tuple[str, str, str]],
    age: int,
    read: int | None,
) -> None:
    plan, expected = planned(DispatchTwin(routes, acls, read), told, READ_NS + age)
    assert plan.budget_ms == 77
    compare(plan, expected)


def compare(plan: native.Plan, expected: PlanTwin) -> None:
    """Check that both plans of one batch agree."""
    assert plan.frame_code == 0
    assert plan.ledger.count == expected.count
    assert {send.queue: topics_of(bytes(send.body)) for send in plan.sends} == expected.sends
    assert [send.queue for send in plan.sends] == list(expected.sends)
    escalations = plan.escalations
    assert {each.source: escalations_of(each.body) for each in escalations} == expected.escalations
    assert [each.source for each in escalations] == list(expected.escalations)
    counts = [send.count for send in plan.sends] + [each.count for each in escalations]
    assert counts == [len(part) for part in expected.parts]
    assert plan.escalated == sum(each.count for each in escalations)
    assert plan.stale_used == expected.stale_used
    assert dict(enumerate(plan.ledger.codes)) == {
        index: expected.settled.get(index, 0) for index in range(expected.count)
    }
    assert [
        ((ban.source, ban.target, ban.name), ban.source_share, ban.competing_share, ban.volume)
        for ban in plan.warm_bans
    ] == expected.warm_bans
    if expected.settled:
        opening = said(plan.ledger.opening())
        assert opening.decided == expected.settled
        assert opening.final == (len(expected.settled) == expected.count)
    elif expected.count:
        assert plan.ledger.opening() == b""


codes = st.sampled_from([0, 1, 2, 65, 70])
hints = st.lists(
    st.tuples(
        st.integers(0, 24),
        st.just(70),
        st.integers(0, 9),
        st.integers(0, 9),
        st.text("ab", max_size=2),
    ),
    max_size=4,
)
replies = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.lists(codes, max_size=16), hints),
    min_size=1,
    max_size=8,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(told=runs, routes=routes, acls=acls, replies=replies, closing=st.sampled_from([1, 69]))
def test_ledger_answers_what_the_twin_answers(
    told: Runs,
    routes: dict[tuple[str, str], RouteTwin],
    acls: set[tuple[str, str, str]],
    replies: list[tuple[int, int, int, list[int], list[tuple[int, int, int, int, str]]]],
    closing: int,
) -> None:
    plan, expected = planned(DispatchTwin(routes, acls, READ_NS), told, READ_NS)
    ledger = plan.ledger
    twin = LedgerTwin(3, expected.count, expected.parts, dict(expected.settled))
    for part, offset, first, reply_codes, reply_hints in replies:
        reply = native.read_verdicts(verdicts(bytes(reply_codes), first=first, hints=reply_hints))
        answer = ledger.merge(part, offset, reply)
        told_by_twin = twin.merge(part, offset, first, reply_codes, reply_hints)
        assert (said(answer) if answer else None) == told_by_twin
        assert ledger.done == (len(twin.decided) == twin.count)
    by_hops = set(twin.decided)
    answer = ledger.close_part(0, 1, 3, 70, 250, "full")
    members = expected.parts[0] if expected.parts else []
    assert (said(answer) if answer else None) == twin.close(members[1:4], 70, 250, "full")
    answer = ledger.close(closing, 0, "late")
    assert (said(answer) if answer else None) == twin.close(range(twin.count), closing, 0, "late")
    assert ledger.done
    assert ledger.close(69, 0, "") == b""
    cold = {index for part in expected.parts[len(expected.sends) :] for index in part}
    # Slow reports its own decisions; commands settled here are reported here only.
    settled = [index for index in range(twin.count) if index not in cold or index not in by_hops]
    assert [row.verdict for row in rows(plan.telemetry(9))] == [twin.decided[index] for index in settled]


# -- many batches in a row: permits, windows, lists, unknown routes and duplicates ------------------------------

ROUTES = list(itertools.product(TARGETS, NAMES))
IDS = [f"018f0000-0000-7000-8000-{number:012x}" for number in range(6)]
identified = st.builds(
    lambda route, command_id: CommandTwin(
        command(target=route[0], name=route[1], command_id=command_id), route, command_id
    ),
    st.sampled_from(ROUTES),
    st.sampled_from(IDS),
)
# Long runs of one lane, so that a source becomes dominant.
stretches = st.tuples(sources, identified, st.integers(1, 6)).map(
    lambda told: (RunOf([told[1].body] * told[2], told[0]), [told[1]] * told[2])
)
batches = st.lists(stretches, min_size=1, max_size=4)
moments = st.sampled_from([0, 1, SECOND_NS, 2 * SECOND_NS - 1, 2 * SECOND_NS, 5 * SECOND_NS, 31 * SECOND_NS])
keys = st.sampled_from(sorted(EVERYTHING))
# Ends around the moments that the steps pass through, on a clock of the authority that starts where ours does.
ends = st.sampled_from([0, 0, 1, 2, 5, 31]).map(lambda seconds: seconds and READ_NS + seconds * SECOND_NS)
lists = st.tuples(st.sampled_from([1, 2]), sources, st.one_of(st.sampled_from(ROUTES), st.just(("", ""))))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), batches, st.sampled_from([1, 1, 66, 70])),
        st.tuples(st.just("plan"), batches, st.sampled_from([1, 1, 66, 70])),
        st.tuples(st.just("grant"), st.sampled_from(ROUTES), st.integers(1, 9), moments),
        st.tuples(st.just("grant-source"), keys, st.integers(1, 9), moments),
        st.tuples(st.just("allow"), keys, st.integers(0, 4), ends),
        st.tuples(st.just("deny"), keys),
        st.tuples(st.just("limit"), keys, st.sampled_from(["none", "holds", "holds", "watches"])),
        st.tuples(st.just("clock"), st.sampled_from([-31, -1, 0, 0, 1])),
        st.tuples(st.just("ban"), lists, moments),
        st.tuples(st.just("lift"), lists),
        st.tuples(st.just("wait"), moments),
        st.tuples(st.just("cold"), st.booleans()),
        st.tuples(st.just("sweep")),
    ),
    min_size=3,
    max_size=25,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(routes=routes, acls=acls, steps=steps, share=st.sampled_from([1, 3, 1024]))
def test_a_history_of_batches_is_what_the_twin_makes_of_it(
    routes: dict[tuple[str, str], RouteTwin],
    acls: set[tuple[str, str, str]],
    steps: list[tuple[Any, ...]],
    share: int,
) -> None:
    now = READ_NS
    twin = DispatchTwin(routes, acls, now, unknown_per_source=share)
    dispatch = natively(twin, unknown_routes_per_source=share)
    for step in steps:
        match step:
            case ("plan", told, code):
                frame = batch(*(run for run, _ in told), batch_seq=3, budget_ms=77)
                plan, expected = dispatch.plan(frame, now_mono_ns=now), twin.plan(told, now)
                compare(plan, expected)
                answers = bytes([code]) * expected.count
                for part in range(len(expected.parts)):
                    plan.ledger.merge(part, 0, native.read_verdicts(verdicts(answers)))
                assert plan.ledger.done
                assert plan.teaches == bool(expected.unknown or expected.strict)
                dispatch.learn(plan, now_mono_ns=now)
                twin.learn(expected, plan.ledger.codes, now)
            case ("grant", route, number, life):
                held = dispatch.grant(
                    *route, permits=number, interval=1, ends_mono_ns=now + life, now_mono_ns=now
                )
                # A limit that watches pays its debts first; the twin does not know debts.
                if twin.routes.get(route, RouteTwin(0, "", 0, False)).limit == "holds":
                    assert held == twin.grant(route, number, now + life, now)
            case ("grant-source", key, number, life):
                held = dispatch.grant(
                    *key[1:],
                    permits=number,
                    interval=1,
                    ends_mono_ns=now + life,
                    now_mono_ns=now,
                    source=key[0],
                )
                if twin.source_limits.get(key) == "holds":
                    assert held == twin.grant(key, number, now + life, now)
                elif key not in twin.source_limits:
                    assert not held
            case ("allow", key, profile, end):
                source, target, name = key
                dispatch.allow(source, target, name, 7, profile=profile, ends_unix_ns=end)
                twin.acls = twin.acls | {key}
                twin.own[key] = OwnTwin(profile, end)
            case ("deny", key):
                dispatch.deny(*key)
                twin.acls = twin.acls - {key}
            case ("limit", key, how):
                dispatch.limit_source(*key, limited=how != "none", shadow=how == "watches")
                twin.source_limits.pop(key, None)
                twin.permits.pop(key, None)
                if how != "none":
                    twin.source_limits[key] = how
            case ("clock", seconds):
                dispatch.heard_time(now + seconds * SECOND_NS, now)
                twin.heard_time(now + seconds * SECOND_NS, now)
            case ("ban", (number, source, route), life):
                if number == 2 or route[0]:
                    dispatch.put_ban(number, source, *route, until_mono_ns=now + life)
                    twin.bans[number, source, *route] = now + life
            case ("lift", (number, source, route)):
                dispatch.lift_ban(number, source, *route)
                twin.bans.pop((number, source, *route), None)
            case ("wait", ns):
                now += ns
                dispatch.renewed(now)
                twin.read_mono_ns = now
            case ("cold", everything):
                dispatch.set_cold_only(everything)
                twin.everything_cold = everything
            case ("sweep",):
                dispatch.sweep(now_mono_ns=now)
