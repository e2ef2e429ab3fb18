"""Writes of the directory and Signer that outlive their callers: bounded per tenant."""

from __future__ import annotations

import asyncio

import pytest

from services.registry.signer.joint_writes import MOST, JointWrites
from snavio.errors import Saturated
from snavio.host.shares import MESH


async def test_calls_that_are_cancelled_leave_no_more_work_behind_than_a_share() -> None:
    joint_writes, going_on = JointWrites(), asyncio.Event()
    refused = 0
    for _ in range(4 * MOST):
        calling = asyncio.create_task(joint_writes.whole(going_on.wait(), tenant="rival"))
        await asyncio.sleep(0)
        if calling.done() and isinstance(calling.exception(), Saturated):
            refused += 1
        calling.cancel()
    assert refused == 3 * MOST + MOST * 3 // 4
    assert joint_writes.shares.held("rival") == MOST // 4
    with pytest.raises(Saturated) as full:
        await joint_writes.whole(going_on.wait(), tenant="rival")
    assert full.value.reason == "tenant-share"
    others = [asyncio.create_task(joint_writes.whole(going_on.wait(), tenant=who)) for who in ("acme", MESH)]
    await asyncio.sleep(0)
    going_on.set()
    assert await asyncio.gather(*others) == [True, True]
    await joint_writes.finish(1.0)
    assert joint_writes.shares.used == 0
