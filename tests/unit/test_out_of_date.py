"""Shield with outdated keys or suspensions: refusals are counted and reported, at a limited rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.relay.app import RelayApp
from services.relay.settings import RelaySettings
from services.shield.cache_freshness import CacheFreshness
from snavio.clock import ManualClock
from snavio.telemetry.events import CacheExpired
from tests.support.neighbours import Bench

SECOND = 1_000_000_000


class Held:
    """Keys or suspensions, of a given age."""

    def __init__(self) -> None:
        self.age: int | None = 0

    def age_ns(self) -> int | None:
        return self.age

    def nudge(self) -> None: ...

    def counters(self) -> dict[str, int]:
        return {}


async def test_refusals_for_old_keys_are_counted_and_told_at_once_then_by_the_minute_and_at_the_end() -> None:
    keys, suspensions, clock = Held(), Held(), ManualClock()
    events: list[Any] = []
    meter: Any = None
    standing = CacheFreshness(
        keys=keys,  # type: ignore[arg-type]
        suspensions=suspensions,  # type: ignore[arg-type]
        fresh_ms=60_000,
        stale_ms=180_000,
        meter=meter,
        clock=clock,
        record=events.append,
    )
    assert standing.usable()
    keys.age = 200 * SECOND
    for _ in range(10):
        assert not standing.usable()
        standing.turned_away(3)
        clock.advance(seconds=10)
    told = [(event.cache_type, event.count, event.reason) for event in events]
    assert told == [("HMAC", 3, "out-of-date"), ("HMAC", 18, "out-of-date")]
    assert isinstance(events[0], CacheExpired)
    assert (events[0].age_seconds, events[0].stale_ttl) == (200.0, 180.0)
    keys.age = 0
    assert standing.usable() and standing.usable()
    assert [event.count for event in events] == [3, 18, 9], "the rest is told when it is over"
    assert standing.counters()["refused_out_of_date"] == 30
    suspensions.age = None
    assert not standing.usable()
    standing.turned_away(1)
    assert (events[-1].cache_type, events[-1].age_seconds) == ("Suspensions", None)


@pytest.mark.parametrize("stale_s", [5.0, 7200.0])
async def test_relay_lets_nobody_in_once_revocations_were_unknown_for_as_long_as_the_mesh_says(
    tmp_path: Path, stale_s: float
) -> None:
    bench = Bench(tmp_path)
    mesh = bench.mesh("relay").model_copy(update={"denylist_stale_s": stale_s})
    gate = RelayApp(mesh, RelaySettings(), bench.clock).host.gate
    gate.heard(bench.clock.mono_ns())
    bench.clock.advance(seconds=stale_s - 1)
    assert gate._fresh()
    bench.clock.advance(seconds=2)
    assert not gate._fresh()
    await bench.close()
