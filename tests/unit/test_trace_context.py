"""Trace contexts: what a station may read, and which traces are kept when there are too many."""

from __future__ import annotations

import secrets

import pytest

from snavio.domain.trace_context import TraceBudget, begin_trace, parse_traceparent, span_at

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECOND_NS = 1_000_000_000


def test_a_context_is_read_and_written_as_it_was() -> None:
    context = parse_traceparent(TRACE)
    assert context is not None and context.sampled and context.traceparent == TRACE
    begun = begin_trace("0190b5c2-8f6e-7cc1-9d3e-2b8c1e5a7f10")
    assert parse_traceparent(begun.traceparent) == begun


@pytest.mark.parametrize(
    "text",
    [
        *("", "00", TRACE.upper(), TRACE[:-1], TRACE + "0", "01" + TRACE[2:]),
        TRACE.replace("4bf9", "4bg9"),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
    ],
)
def test_what_is_no_context_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_each_station_and_each_attempt_has_a_span_of_its_own() -> None:
    seen = {
        span_at(station, trace, command, timestamp)
        for station in ("shield", "fast", "slow", "mailbox")
        for trace in ("a", "b")
        for command in ("c", "d")
        for timestamp in ("1", "2")
    }
    assert len(seen) == 32
    assert span_at("fast", "a", "c", "1") == span_at("fast", "a", "c", "1")


def test_few_traces_are_all_kept_and_of_many_at_most_the_bound_in_any_second() -> None:
    budget = TraceBudget(per_second=20)
    assert all(budget.take(secrets.token_hex(16), mono_ns=5 * SECOND_NS) for _ in range(20))
    assert not budget.take(secrets.token_hex(16), mono_ns=5 * SECOND_NS)
    for second in range(6, 12):
        kept = sum(
            budget.take(secrets.token_hex(16), mono_ns=second * SECOND_NS + number) for number in range(2000)
        )
        assert kept <= 20
    assert budget.left_out > 10_000


def test_two_stations_that_see_the_same_traffic_in_another_order_keep_the_same_traces() -> None:
    """Otherwise a trace would have holes in it as soon as there are more than the bound."""
    stations = TraceBudget(per_second=20), TraceBudget(per_second=20)
    both = either = 0
    for second in range(1, 60):
        ids = [secrets.token_hex(16) for _ in range(500)]
        kept = [
            {each for each in order if station.take(each, mono_ns=second * SECOND_NS)}
            for station, order in zip(stations, (ids, sorted(ids)), strict=True)
        ]
        if second > 1:
            both += len(kept[0] & kept[1])
            either += len(kept[0] | kept[1])
    assert both > 0.8 * either
