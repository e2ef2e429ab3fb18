"""The latency histogram: never below the true value, windowed, and of fixed size."""

from __future__ import annotations

import random

import pytest

from snavio.clock import ManualClock
from snavio.telemetry.latency import LatencyWindow, Percentiles


def test_nothing_happened_reads_as_zeroes(clock: ManualClock) -> None:
    assert LatencyWindow(clock=clock).read() == Percentiles()


@pytest.mark.parametrize("us", [0, 1, 3, 4, 7, 8, 9, 100, 999, 12_345, 1_000_000, 60_000_000])
def test_one_duration_is_every_percentile(clock: ManualClock, us: int) -> None:
    window = LatencyWindow(clock=clock)
    window.add(us * 1000)
    assert window.read() == Percentiles(1, us, us, us, us)


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_never_too_low_and_at_most_a_quarter_too_high(clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    durations = sorted(int(chance.lognormvariate(8, 2)) for _ in range(2000))
    window = LatencyWindow(clock=clock)
    for us in durations:
        window.add(us * 1000)
    told = window.read()
    for share, answer in ((0.50, told.p50_us), (0.95, told.p95_us), (0.99, told.p99_us)):
        true = durations[round(share * len(durations)) - 1]
        assert true <= answer <= true * 1.25 + 1
    assert (told.count, told.max_us) == (2000, durations[-1])


def test_a_batch_weighs_as_many_as_it_holds(clock: ManualClock) -> None:
    window = LatencyWindow(clock=clock)
    window.add(1_000_000, count=999)
    window.add(500_000_000)
    told = window.read()
    assert (told.count, told.p99_us < 1300, told.max_us) == (1000, True, 500_000)


def test_what_is_older_than_the_window_is_forgotten(clock: ManualClock) -> None:
    window = LatencyWindow(clock=clock)
    window.add(9_000_000_000)
    clock.advance(seconds=50)
    window.add(1_000_000)
    assert window.read().count == 2
    clock.advance(seconds=20)
    assert window.read() == Percentiles(1, 1000, 1000, 1000, 1000)
    clock.advance(seconds=60)
    assert window.read() == Percentiles()


def test_a_duration_beyond_every_bucket_is_still_counted(clock: ManualClock) -> None:
    window = LatencyWindow(clock=clock)
    window.add(10**18)
    assert window.read().count == 1
    window.add(-5)
    assert window.read().count == 2


def test_histogram_since_the_start_forgets_nothing_and_only_grows(clock: ManualClock) -> None:
    window = LatencyWindow(clock=clock)
    window.add(63_000, count=2)
    window.add(64_000)
    window.add(1_000_000_000)
    clock.advance(seconds=600)
    window.add(3_600_000_000_000)
    ever = window.ever()
    assert ever.count == 5
    assert ever.sum_s == pytest.approx(3601.000190)
    assert (ever.up_to[64e-6], ever.up_to[128e-6], ever.up_to[0.524288]) == (2, 3, 3)
    assert (ever.up_to[1.048576], ever.up_to[33.554432]) == (4, 4)
    assert list(ever.up_to.values()) == sorted(ever.up_to.values())
