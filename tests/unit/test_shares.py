"""Shares of one bound: no tenant takes another's part, and all tenants together do not take the mesh's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.config import MeshSettings
from snavio.errors import Saturated
from snavio.host.shares import BOUNDS, MESH, ShareLimit, Shares

LIMIT = ShareLimit(total=10, per_tenant=4, reserve=2)


def test_a_tenant_with_its_share_is_refused_while_another_is_served() -> None:
    calls = Shares("calls", LIMIT)
    calls.take("acme", 4)
    with pytest.raises(Saturated) as refused:
        calls.take("acme")
    assert refused.value.reason == "tenant-share"
    assert "acme has its share of calls being served: 4 of 4" in str(refused.value)
    calls.take("globex", 4)


def test_all_tenants_together_leave_the_reserve_to_the_mesh() -> None:
    calls = Shares("calls", LIMIT)
    calls.take("acme", 4)
    calls.take("globex", 4)
    with pytest.raises(Saturated) as refused:
        calls.take("initech")
    assert refused.value.reason == "saturated"
    calls.take(MESH, 2)
    with pytest.raises(Saturated):
        calls.take(MESH)


def test_what_is_given_back_can_be_taken_again_and_an_idle_tenant_is_forgotten() -> None:
    calls = Shares("calls", LIMIT)
    with calls.holding("acme", 4):
        assert calls.holders() == {"acme": 4}
    assert calls.holders() == {} and calls.used == 0
    calls.give_back("acme", 7)
    assert calls.used == 0


def test_what_a_store_holds_already_counts_even_beyond_the_share() -> None:
    topics = Shares("topics", LIMIT)
    topics.found("acme", 9)
    assert not topics.room("acme") and not topics.room("globex") and topics.room(MESH)
    topics.found("acme", 3)
    assert topics.used == 3 and topics.room("acme")


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 5), st.booleans()), max_size=60)
)
def test_no_order_of_taking_and_giving_breaks_a_bound(steps: list[tuple[str, int, bool]]) -> None:
    shares, twin = Shares("bytes", LIMIT), dict.fromkeys(["", "a", "b", "c"], 0)
    for tenant, amount, giving in steps:
        if giving:
            twin[tenant] = max(0, twin[tenant] - amount)
            shares.give_back(tenant, amount)
            continue
        everybody = sum(twin.values()) + amount
        fits = everybody <= 10 if not tenant else twin[tenant] + amount <= 4 and everybody <= 8
        assert shares.room(tenant, amount) is fits
        if fits:
            shares.take(tenant, amount)
            twin[tenant] += amount
    assert shares.holders() == {tenant: held for tenant, held in twin.items() if held}
    assert shares.used == sum(twin.values())


@pytest.mark.parametrize(
    ("total", "tenant", "reserve"), [(1, 25, 10), (3, 0.1, 50), (1000, 100, 10), (7, 25, 99)]
)
def test_every_limit_leaves_something_to_a_tenant(total: int, tenant: float, reserve: float) -> None:
    limit = ShareLimit.of(total, tenant_percent=tenant, reserve_percent=reserve)
    assert 1 <= limit.per_tenant <= limit.total - limit.reserve


def test_the_configuration_names_a_share_for_all_bounds_and_for_single_ones() -> None:
    mesh = MeshSettings(tenant_share_percent=20, reserve_percent=10, tenant_shares="topics=50; calls=5")
    assert mesh.share("certificates", 1000) == ShareLimit(1000, 200, 100)
    assert mesh.share("topics", 1000) == ShareLimit(1000, 500, 100)
    assert mesh.share("calls", 1000) == ShareLimit(1000, 50, 100)


@pytest.mark.parametrize(
    "text", ["topic=5", "topics", "topics=0", "topics=101", "topics=5; topics=6", "topics=²"]
)
def test_a_share_that_cannot_be_is_refused_at_start(text: str) -> None:
    with pytest.raises(ValueError, match="tenant_shares"):
        MeshSettings(tenant_shares=text)


def test_every_bound_has_words() -> None:
    assert all(BOUNDS.values())
