"""Streams in memory: bounded, never ahead of the store's window, and woken by what is appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.relay.stream_tails import StreamTails
from snavio.clock import ManualClock
from snavio.domain.stream import OutsideReplayWindow
from snavio.ports.tenant_streams import StreamEntry, TenantStreams
from snavio.wiring import open_tenant_streams

NOW = 1_794_794_400_000_000_000
NONE: frozenset[str] = frozenset()


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[TenantStreams]:
    opened = await open_tenant_streams(tmp_path / "streams.db", clock=ManualClock(NOW))
    yield opened
    await opened.close()


async def append(streams: TenantStreams, tails: StreamTails, tenant: str, count: int) -> None:
    window = await tails.position(tenant)
    entries = [
        StreamEntry(seq, f"{tenant}-{seq}", f"{tenant}/shop", "command", 1, NOW, f"b3:{seq}", b"x" * 100)
        for seq in range(window.next_seq, window.next_seq + count)
    ]
    moved = await streams.append(tenant, expected=window, fence=1, drafts=[], entries=entries)
    tails.appended(tenant, entries, moved)


async def numbers(tails: StreamTails, tenant: str, after: int) -> list[int]:
    part, _ = await tails.after(tenant, after, sources=NONE, families=NONE, limit=1000, max_bytes=1 << 20)
    return [entry.seq for entry in part.entries]


async def test_memory_is_bounded_for_each_tenant_and_in_all_and_the_store_has_the_rest(
    streams: TenantStreams,
) -> None:
    tails = StreamTails(streams, tenant_bytes=500, all_bytes=1200)
    for tenant in ("a", "b", "c"):
        await append(streams, tails, tenant, 20)
    assert tails.gauges()["bytes"] <= 1200 and tails.gauges()["tenants"] == 2
    low = (await tails.position("c")).low
    every = list(range(low + 1, low + 21))
    assert await numbers(tails, "c", low + 18) == every[18:]
    assert tails.counters() == {"from_memory": 1, "from_disk": 0}
    assert [await numbers(tails, tenant, low) for tenant in ("a", "b", "c")] == [every] * 3
    assert tails.counters() == {"from_memory": 1, "from_disk": 3}


async def test_what_was_pruned_is_outside_the_window_also_for_memory(streams: TenantStreams) -> None:
    tails = StreamTails(streams)
    await append(streams, tails, "a", 5)
    low = (await tails.position("a")).low
    await streams.prune(issued_before_unix_ns=NOW + 1, max_bytes_per_tenant=1 << 20)
    await tails.refresh()
    with pytest.raises(OutsideReplayWindow):
        await numbers(tails, "a", low)


async def test_a_waiting_reader_is_woken_by_an_append_and_by_a_new_epoch(streams: TenantStreams) -> None:
    tails = StreamTails(streams)
    await append(streams, tails, "a", 1)
    high = (await tails.position("a")).high
    for change in ("append", "epoch"):
        waiting = asyncio.create_task(tails.moved("a", (await tails.position("a")).high, within_s=60))
        while not tails.gauges()["waiting"]:
            await asyncio.sleep(0)
        if change == "append":
            await append(streams, tails, "a", 1)
        else:
            tails.appended("a", (), await streams.begin_epoch("a"))
        async with asyncio.timeout(30):
            await waiting
    with pytest.raises(OutsideReplayWindow):
        await numbers(tails, "a", high)
    assert tails.gauges()["waiting"] == 0
