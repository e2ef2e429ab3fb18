"""Ids are remembered from when they were first seen, for their time, up to the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.clock import ManualClock
from snavio.errors import BadRequest
from snavio.sdk.nonce_set import NonceSet


class SlowNonceSet:
    """A list that is searched each time."""

    def __init__(self, clock: ManualClock, ttl_s: int, most: int) -> None:
        self.clock, self.ttl_ns, self.most = clock, ttl_s * 10**9, most
        self.seen: list[tuple[str, int]] = []

    def add(self, nonce: str) -> bool:
        now = self.clock.mono_ns()
        self.seen = [(each, at) for each, at in self.seen if now - at < self.ttl_ns]
        if any(each == nonce for each, _ in self.seen):
            return False
        self.seen = [*self.seen, (nonce, now)][-self.most :]
        return True


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 4)), max_size=60))
def test_it_is_the_slow_twins_set(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    nonces, twin = NonceSet(clock=clock, ttl_s=10, most=4), SlowNonceSet(clock, 10, 4)
    for nonce, pause_s in steps:
        clock.advance(seconds=pause_s)
        assert nonces.add(nonce) == twin.add(nonce)
        assert len(nonces) <= 4


def test_looking_at_an_id_does_not_keep_it_alive() -> None:
    clock = ManualClock()
    nonces = NonceSet(clock=clock, ttl_s=10)
    nonces.add("a")
    clock.advance(seconds=6)
    assert "a" in nonces and not nonces.add("a")
    clock.advance(seconds=5)
    assert "a" not in nonces
    assert nonces.add("a")
    assert nonces.replays == 1


@pytest.mark.parametrize(("ttl_s", "most"), [(0, 5), (-1, 5), (5, 0)])
def test_a_set_without_time_or_room_is_refused(ttl_s: float, most: int) -> None:
    with pytest.raises(BadRequest):
        NonceSet(clock=ManualClock(), ttl_s=ttl_s, most=most)
