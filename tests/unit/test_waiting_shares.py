"""Waiting for a part of a bound."""

from __future__ import annotations

import asyncio

from snavio.host.shares import ShareLimit, Shares
from snavio.host.waiting_shares import WaitingShares


async def test_whoever_needs_nothing_waits_for_nothing_and_keeps_nobody_waiting() -> None:
    room = WaitingShares(Shares("bytes", ShareLimit(100, 25, 10)))
    nothing = asyncio.create_task(room.take("acme", 0, within_s=5.0))
    await asyncio.sleep(0)
    assert room.take_now("acme", 10) == 10, "a frame of no bytes stands before all others of its tenant"
    async with asyncio.timeout(1.0):
        assert await nothing == 0
    room.give_back("acme", 0)
    room.give_back("acme", 10)
    assert room.shares.used == room.shares.tenants == 0


async def test_nothing_is_given_at_once_also_where_all_is_held() -> None:
    room = WaitingShares(Shares("bytes", ShareLimit(100, 25, 10)))
    assert await room.take("acme", 25, within_s=0.1) == 25
    async with asyncio.timeout(1.0):
        assert await room.take("acme", 0, within_s=5.0) == 0
