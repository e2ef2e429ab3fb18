"""The suite of `test_coordination.py` over DynamoDB, and DynamoDB's own: conditional writes and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from snavio.adapters.aws.dynamo_coordination import DynamoCoordination
from snavio.adapters.aws.header_clock import HeaderClock
from snavio.clock import ManualClock, SystemClock
from snavio.domain.quota import LimitRule
from snavio.errors import Unavailable
from snavio.ports.coordination import PermitAsk
from tests.contract.test_coordination import *  # noqa: F403 the suite itself
from tests.support.coordination import TERMS, Servers, Shop
from tests.support.moto import MotoServer, credentials
from tests.support.redis import RedisServer


@pytest.fixture(scope="module")  # type: ignore[no-redef]
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    moto = MotoServer()
    with credentials():
        asyncio.run(moto.start())
        try:
            yield Servers(RedisServer(tmp_path_factory.mktemp("redis")), moto)
        finally:
            moto.kill()


@pytest.fixture  # type: ignore[no-redef]
def shop(tmp_path: Path, servers: Servers) -> Shop:
    return Shop("dynamo", tmp_path, servers)


async def test_time_is_the_tables_and_not_ours(shop: Shop) -> None:
    """A Slow whose wall clock is an hour off counts the same intervals as the others."""
    hour, key = LimitRule(max=10, interval_ms=3_600_000), ("a", "b")
    stores = [
        DynamoCoordination(
            session=shop.servers.session,
            table=shop.name,
            endpoint_url=shop.servers.moto.url,
            known_epoch=None,
            fresh_epoch="e",
            terms=TERMS,
            clock=clock,
            timeout_s=5.0,
        )
        for clock in (SystemClock(), _Skewed(3600), _Skewed(-3600))
    ]
    try:
        await stores[0].prepare()
        taken = [(await store.take([PermitAsk(key, hour, 4)]))[0] for store in stores]
        assert [permits.count for permits in taken] == [4, 4, 2]
        assert len({permits.interval for permits in taken}) == 1
    finally:
        for store in stores:
            await store.close()


async def test_a_table_that_cannot_be_reached_is_unavailable(shop: Shop) -> None:
    store = DynamoCoordination(
        session=shop.servers.session,
        table=shop.name,
        endpoint_url="http://127.0.0.1:9",
        known_epoch=None,
        fresh_epoch="e",
        terms=TERMS,
        clock=SystemClock(),
        timeout_s=1.0,
    )
    with pytest.raises(Unavailable):
        await store.take([PermitAsk(("a", "b"), LimitRule(10, 1000), 1)])
    await store.close()


def test_bounds_of_a_clock_of_whole_seconds_hold_the_true_time_and_narrow() -> None:
    here = ManualClock()
    there_ns = 1_800_000_000_123_456_789 - here.unix_ns()
    clock = HeaderClock(here)
    width = 10_000
    for turn in range(40):
        asked_ms = clock.mono_ms()
        here.advance(ns=3_000_000)
        clock.heard(formatdate((here.unix_ns() + there_ns) // 1_000_000_000, usegmt=True), asked_ms=asked_ms)
        here.advance(ns=4_000_000)
        bounds = clock.now_ms()
        assert bounds is not None
        low, high = bounds
        assert low <= (here.unix_ns() + there_ns) / 1e6 <= high
        assert high - low <= width
        width = high - low
        here.advance(ns=37_000_000 * (turn % 3 + 1))
    assert width < 100


class _Skewed(SystemClock):
    def __init__(self, seconds: int) -> None:
        super().__init__()
        self._offset += seconds * 1_000_000_000
