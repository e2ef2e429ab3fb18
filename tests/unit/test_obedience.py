"""Obedience of a producer: routes that it leaves alone, and the clock that it corrects."""

from __future__ import annotations

import asyncio

import pytest

from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.native import format_timestamp
from snavio.sdk import obedience
from snavio.sdk.obedience import Obedience
from snavio.sdk.pending_sends import AttemptAnswer
from tests.support.telemetry import NOW

ROUTE = ("discord-bot", "notify-user")
SECOND = 1_000_000_000


class Table:
    """An obedience whose corrections and questions are noted."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.shifts: list[int] = []
        self.asked = 0
        self.obeys = Obedience(clock=self.clock, shift=self.shifts.append, renew_keys=self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def hear(self, event: str, **fields: object) -> None:
        self.obeys.heard("acme/billing", [{"event": event, "source": "acme/billing", **fields}])


@pytest.fixture
def table() -> Table:
    return Table()


def limited(until_unix_ns: int) -> AttemptAnswer:
    return AttemptAnswer(Verdict.RATE_LIMIT_EXCEEDED, 0, until_unix_ns)


async def test_a_route_is_left_alone_until_the_time_that_was_told(table: Table) -> None:
    table.obeys.refused(ROUTE, limited(NOW + 30 * SECOND))
    mono = table.clock.mono_ns()
    answer = await table.obeys.turn(ROUTE, mono + 10 * SECOND)
    assert answer is not None and answer.code == Verdict.RATE_LIMIT_EXCEEDED
    assert 29_000 < answer.retry_after_ms <= 30_001
    assert await table.obeys.turn(("discord-bot", "another"), mono + 10 * SECOND) is None
    table.clock.advance(seconds=31.0)
    assert await table.obeys.turn(ROUTE, table.clock.mono_ns() + SECOND) is None
    assert not table.obeys.holds


async def test_a_time_that_is_past_or_unknown_holds_nothing(table: Table) -> None:
    table.obeys.refused(ROUTE, limited(NOW - SECOND))
    table.obeys.refused(ROUTE, limited(0))
    table.hear("snavio.fairness.warm-path-ban", target="t", throttle_until="soon", **{"command.name": "n"})
    table.hear("snavio.command.failed", target="t", reason="acl-deny", **{"command.name": "n"})
    assert not table.obeys.holds


async def test_a_time_in_the_far_future_does_not_silence_a_producer_for_good(table: Table) -> None:
    table.obeys.refused(ROUTE, limited(NOW + 10**18))
    table.clock.advance(seconds=3601.0)
    assert await table.obeys.turn(ROUTE, table.clock.mono_ns() + SECOND) is None


async def test_routes_that_are_left_alone_are_bounded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obedience, "MOST_HOLDS", 8)
    for number in range(100):
        table.obeys.refused(("t", str(number)), limited(NOW + SECOND))
    assert sorted(name for _, name in table.obeys.holds) == [str(number) for number in range(92, 100)]


async def test_telemetry_holds_a_route_too_and_its_sender_waits_for_it(table: Table) -> None:
    until = table.clock.unix_ns() + 20_000_000
    table.hear(
        "snavio.fairness.warm-path-ban",
        target=ROUTE[0],
        throttle_until=format_timestamp(until),
        **{"command.name": ROUTE[1]},
    )
    assert list(table.obeys.holds) == [ROUTE]
    waiting = asyncio.ensure_future(table.obeys.turn(ROUTE, table.clock.mono_ns() + SECOND))
    await asyncio.sleep(0)
    assert not waiting.done()
    table.clock.advance(seconds=0.021)
    assert await asyncio.wait_for(waiting, 30) is None
    assert table.obeys.counters()["held"] == 1


@pytest.mark.parametrize("event", ["snavio.secret.legacy_key_used", "snavio.secret.key_expiry_imminent"])
def test_an_old_key_asks_for_the_new_ones(table: Table, event: str) -> None:
    table.hear(event, version_id="hmac-v1")
    table.obeys.heard("acme/billing", [{"event": event, "source": "acme/another", "version_id": "hmac-v1"}])
    assert (table.asked, table.obeys.counters()["keys_asked"]) == (1, 1)


def test_a_clock_that_is_wrong_is_corrected_within_a_bound(table: Table) -> None:
    table.obeys.greeted(NOW + SECOND)
    assert table.shifts == [], "the way of a message is no skew"
    table.obeys.greeted(NOW + 40 * SECOND)
    assert table.shifts == [40 * SECOND]
    table.obeys.greeted(NOW + 41 * SECOND)
    assert table.shifts == [40 * SECOND], "a correction that is good enough stays"
    table.obeys.greeted(NOW + 301 * SECOND)
    assert table.shifts == [40 * SECOND]
    assert table.obeys.counters()["skew_refused"] == 1
    table.obeys.greeted(NOW)
    assert table.shifts[-1] == 0 == table.obeys.shift_ns


@pytest.mark.parametrize(
    ("detail", "shift"),
    [("61000 ms ahead", -61), ("61000 ms behind", 61), ("500000 ms ahead", 0), ("a day ahead", 0), ("", 0)],
)
def test_a_refusal_that_names_the_skew_corrects_it(table: Table, detail: str, shift: int) -> None:
    assert table.obeys.outside_window(detail) == bool(shift)
    assert table.obeys.shift_ns == shift * SECOND


def test_commands_of_before_a_correction_do_not_correct_once_more(table: Table) -> None:
    before = format_timestamp(table.clock.unix_ns())
    table.clock.advance(seconds=1.0)
    table.hear("snavio.telemetry.skew_near_limit", skew_seconds=50.0, sent_at=before)
    assert table.obeys.shift_ns == 50 * SECOND
    table.hear("snavio.telemetry.skew_near_limit", skew_seconds=50.0, sent_at=before)
    assert table.obeys.shift_ns == 50 * SECOND
    table.clock.advance(seconds=1.0)
    after = format_timestamp(table.clock.unix_ns() + 50 * SECOND)
    table.hear("snavio.telemetry.skew_near_limit", skew_seconds=-10.0, sent_at=after)
    assert table.obeys.shift_ns == 40 * SECOND
    for wrong in ({"skew_seconds": 1e9, "sent_at": after}, {"skew_seconds": "x", "sent_at": after}, {}):
        table.hear("snavio.telemetry.skew_near_limit", **wrong)
    assert table.obeys.shift_ns == 40 * SECOND
