"""The native plan and ledger agree with their plain Python twins on random batches and random replies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from snavio import native
from tests.support.dispatch_twin import (
    SECOND_NS,
    CommandTwin,
    DispatchTwin,
    LedgerTwin,
    PlanTwin,
    RouteTwin,
)
from tests.support.frames import RunOf, batch, command, escalations_of, rows, said, topics_of, verdicts

SOURCES = ["acme/billing", "acme/shop", "globex/shop"]
TARGETS = ["bot", "mailer", "bo"]
NAMES = ["delete", "t", "bot"]
READ_NS = 1_000 * SECOND_NS

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
routes = st.dictionaries(
    st.tuples(targets, names),
    st.builds(
        RouteTwin,
        queue=st.integers(0, 2),
        topic=st.sampled_from(["acme/bot", "acme/mailer", "globex/bot"]),
        profile=st.integers(0, 4),
        strict=st.sampled_from([False, False, True]),
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


def natively(twin: DispatchTwin) -> native.Dispatch:
    """The same directory on the native side."""
    dispatch = native.Dispatch()
    for (target, name), route in twin.routes.items():
        # Whatever was there before is replaced.
        dispatch.put_route(target, name, queue=9, topic="x/y", profile=3, strict=False)
        dispatch.put_route(
            target, name, queue=route.queue, topic=route.topic, profile=route.profile, strict=route.strict
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


@settings(max_examples=120, deadline=None)
@given(told=runs, routes=routes, acls=acls, age=ages, read=st.sampled_from([READ_NS, READ_NS, READ_NS, None]))
def test_plan_is_what_the_twin_plans(
    told: Runs,
    routes: dict[tuple[str, str], RouteTwin],
    acls: set[tuple[str, str, str]],
    age: int,
    read: int | None,
) -> None:
    plan, expected = planned(DispatchTwin(routes, acls, read), told, READ_NS + age)
    assert plan.frame_code == 0
    assert plan.budget_ms == 77
    assert plan.ledger.count == expected.count
    assert {queue: topics_of(topics) for queue, _, topics in plan.sends} == expected.sends
    assert [queue for queue, _, _ in plan.sends] == list(expected.sends)
    assert [count for _, count, _ in plan.sends] == [len(part) for part in expected.parts[:-1]]
    assert escalations_of(plan.escalations) == expected.escalations
    assert plan.escalated == len(expected.parts[-1])
    assert plan.stale_used == expected.stale_used
    assert dict(enumerate(plan.ledger.codes)) == {
        index: expected.refused.get(index, 0) for index in range(expected.count)
    }
    if expected.refused:
        opening = said(plan.ledger.opening())
        assert opening.decided == expected.refused
        assert opening.final == (len(expected.refused) == expected.count)
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


@settings(max_examples=120, deadline=None)
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
    twin = LedgerTwin(3, expected.count, expected.parts, dict(expected.refused))
    for part, offset, first, reply_codes, reply_hints in replies:
        reply = native.read_verdicts(verdicts(bytes(reply_codes), first=first, hints=reply_hints))
        answer = ledger.merge(part, offset, reply)
        told_by_twin = twin.merge(part, offset, first, reply_codes, reply_hints)
        assert (said(answer) if answer else None) == told_by_twin
        assert ledger.done == (len(twin.decided) == twin.count)
    answer = ledger.close_part(0, 1, 3, 70, 250, "full")
    assert (said(answer) if answer else None) == twin.close(expected.parts[0][1:4], 70, 250, "full")
    answer = ledger.close(closing, 0, "late")
    assert (said(answer) if answer else None) == twin.close(range(twin.count), closing, 0, "late")
    assert ledger.done
    assert ledger.close(69, 0, "") == b""
    settled = [index for index in range(twin.count) if index not in expected.parts[-1]]
    assert [row.verdict for row in rows(plan.telemetry(9))] == [twin.decided[index] for index in settled]
