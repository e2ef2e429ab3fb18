"""The promises of every store of tenant streams: atomic cuts and appends, numbers that never come again, a window."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.store_renewal import renew
from snavio.clock import ManualClock
from snavio.domain.stream import OutsideReplayWindow, Position
from snavio.errors import Conflict, IntegrityError, StateError
from snavio.ports.tenant_streams import NewDraft, Pruned, SpokenOf, StreamEntry, TenantStreams
from snavio.wiring import open_tenant_streams

NOW = 1_794_794_400_000_000_000
MINUTE_S = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def streams(tmp_path: Path, clock: ManualClock) -> AsyncIterator[TenantStreams]:
    opened = await open_tenant_streams(tmp_path / "streams.db", clock=clock)
    yield opened
    await opened.close()


async def again(streams: TenantStreams, folder: Path, clock: ManualClock) -> TenantStreams:
    await streams.close()
    return await open_tenant_streams(folder / "streams.db", clock=clock)


def draft(number: int, tenant: str = "acme", *, cut_unix_ns: int = NOW, body: bytes = b"[{}]") -> NewDraft:
    return NewDraft(f"id-{number}", tenant, f"{tenant}/shop", "command", cut_unix_ns, 1, body)


def entry(seq: int, *, source: str = "acme/shop", family: str = "command", at: int = NOW) -> StreamEntry:
    return StreamEntry(seq, f"envelope-{seq}", source, family, 1, at, f"b3:{seq}", b"x" * 100)


async def filled(streams: TenantStreams, count: int, **fields: object) -> Position:
    window = await streams.window("acme")
    entries = [entry(window.next_seq + step, **fields) for step in range(count)]  # type: ignore[arg-type]
    return await streams.append("acme", expected=window, fence=1, drafts=[], entries=entries)


async def test_drafts_and_the_page_they_were_cut_from_are_stored_together(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    assert await streams.cut_through() == 0
    life = SpokenOf("fast-0", 7, "acme")
    await streams.cut(5, [draft(1), draft(2, "globex"), draft(3)], spoken=[life, life])
    with pytest.raises(Conflict):
        await streams.cut(5, [draft(4)])
    with pytest.raises(Exception, match=r".+"):
        await streams.cut(6, [draft(5), draft(1)])
    reopened = await again(streams, tmp_path, clock)
    assert (await reopened.cut_through(), await reopened.waiting()) == (5, {"acme": 2, "globex": 1})
    assert [one.new for one in await reopened.drafts("acme", limit=10, max_bytes=1000)] == [
        draft(1),
        draft(3),
    ]
    assert len(await reopened.drafts("acme", limit=10, max_bytes=1)) == 1
    assert await reopened.spoken_of("fast-0", 7) == ["acme"]
    assert await reopened.spoken_of("fast-0", 8) == []
    await reopened.rewind()
    assert await reopened.cut_through() == 0
    await reopened.close()


async def test_an_append_takes_the_drafts_with_it_or_does_nothing(streams: TenantStreams) -> None:
    await streams.cut(1, [draft(1), draft(2)])
    start = await streams.window("acme")
    ids = [one.draft_id for one in await streams.drafts("acme", limit=10, max_bytes=1000)]
    moved = await streams.append(
        "acme", expected=start, fence=3, drafts=ids[:1], entries=[entry(start.next_seq)]
    )
    assert moved == Position(start.epoch, start.low, start.high + 1, f"b3:{start.next_seq}")
    assert await streams.window("acme") == moved
    attempts = [
        (start, 3, ids[1:], [entry(start.next_seq)]),  # one that lives in the past
        (moved, 2, ids[1:], [entry(moved.next_seq)]),  # a Relay that was replaced
        (moved, 3, ids[1:], [entry(moved.next_seq + 1)]),  # a gap
        (moved, 3, ids[:1], [entry(moved.next_seq)]),  # a draft that was sealed already
        (Position(moved.epoch, moved.low, moved.high, "b3:other"), 3, ids[1:], [entry(moved.next_seq)]),
    ]
    for expected, fence, drafts, entries in attempts:
        with pytest.raises(Conflict) as raised:
            await streams.append("acme", expected=expected, fence=fence, drafts=drafts, entries=entries)
        assert raised.value.reason == "moved-on"
    assert await streams.window("acme") == moved
    assert await streams.waiting() == {"acme": 1}


async def test_readers_get_what_they_ask_for_in_order(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    start = await streams.window("acme")
    sources = ["acme/shop", "acme/till", "acme/shop", "acme/shop"]
    entries = [
        entry(start.next_seq + step, source=source, family="audit" if step == 3 else "command")
        for step, source in enumerate(sources)
    ]
    await streams.append("acme", expected=start, fence=1, drafts=[], entries=entries)
    reopened = await again(streams, tmp_path, clock)
    everything = await reopened.read("acme", after=start.high, limit=10, max_bytes=10_000)
    assert (list(everything.entries), everything.through) == (entries, entries[-1].seq)
    some = await reopened.read("acme", after=start.high, limit=2, max_bytes=10_000)
    assert (list(some.entries), some.through) == (entries[:2], entries[1].seq)
    assert len((await reopened.read("acme", after=start.high, limit=10, max_bytes=1)).entries) == 1
    of_shop = await reopened.read(
        "acme", after=start.high, sources=frozenset({"acme/shop"}), limit=2, max_bytes=10_000
    )
    assert (list(of_shop.entries), of_shop.through) == ([entries[0], entries[2]], entries[2].seq)
    audit = await reopened.read(
        "acme", after=start.high, families=frozenset({"audit"}), limit=9, max_bytes=10_000
    )
    assert list(audit.entries) == entries[3:]
    nothing = await reopened.read(
        "acme", after=start.high, families=frozenset({"secret"}), limit=9, max_bytes=9999
    )
    assert (nothing.entries, nothing.through) == ((), entries[-1].seq)
    ahead = await reopened.read("acme", after=(1 << 64) - 1, limit=9, max_bytes=9999)
    assert ahead.entries == ()
    assert await reopened.counts("acme") == {"audit": 1, "command": 3}
    assert await reopened.tenants() == ["acme"]
    await reopened.close()


async def test_pruning_moves_the_window_and_says_what_went_early(
    streams: TenantStreams, clock: ManualClock
) -> None:
    start = await filled(streams, 3, at=NOW - 100)
    window = await filled(streams, 5)
    assert await streams.prune(issued_before_unix_ns=NOW, max_bytes_per_tenant=10_000) == Pruned(3)
    after = await streams.window("acme")
    assert (after.low, after.high, after.head) == (start.high, window.high, window.head)
    with pytest.raises(OutsideReplayWindow):
        await streams.read("acme", after=after.low - 1, limit=9, max_bytes=9999)
    kept = await streams.read("acme", after=after.low, limit=9, max_bytes=9999)
    assert [one.seq for one in kept.entries] == list(range(after.low + 1, after.high + 1))
    assert await streams.prune(issued_before_unix_ns=NOW, max_bytes_per_tenant=250) == Pruned(3, early=3)
    # An empty stream goes on behind its last number, and the newest bookmark still holds.
    assert await streams.prune(issued_before_unix_ns=NOW + 1, max_bytes_per_tenant=0) == Pruned(2)
    empty = await streams.window("acme")
    assert (empty.low, empty.high, empty.head) == (window.high, window.high, window.head)
    assert (await filled(streams, 1)).high == window.high + 1


async def test_a_new_epoch_begins_above_every_earlier_number(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    before = await filled(streams, 2)
    fresh = await streams.begin_epoch("acme")
    assert fresh.epoch > before.epoch and fresh.low == fresh.high > before.high and fresh.head == ""
    with pytest.raises(OutsideReplayWindow):
        await streams.read("acme", after=before.high, limit=9, max_bytes=9999)
    assert (await filled(streams, 1)).epoch == fresh.epoch
    other = await streams.window("globex")
    assert (await streams.window("globex")) == other, "a reader may wait at it"


async def test_a_store_that_was_lost_begins_above_the_numbers_of_the_lost_one(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    before = await filled(streams, 2)
    await streams.close()
    clock.advance(seconds=MINUTE_S)
    fresh = await open_tenant_streams(tmp_path / "another.db", clock=clock)
    assert (await fresh.window("acme")).low > before.high
    await fresh.close()


async def test_a_restored_store_tells_readers_of_the_lost_time_so(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    before = await filled(streams, 2)
    await streams.cut(9, [draft(1)])
    await streams.close()
    renew(tmp_path / "streams.db", "relay/streams.db", now_ns=clock.unix_ns())
    restored = await open_tenant_streams(tmp_path / "streams.db", clock=clock)
    window = await restored.window("acme")
    assert window.epoch > before.epoch and window.low == window.high and window.head == ""
    assert (await restored.window("globex")).epoch == window.epoch
    with pytest.raises(OutsideReplayWindow):
        await restored.read("acme", after=before.high + 1000, limit=9, max_bytes=9999)
    assert await restored.waiting() == {"acme": 1}, "what was not sealed yet is sealed in the new epoch"
    assert await restored.queued_through() == {"acme": window.high}
    await restored.close()


async def test_an_older_copy_in_the_place_of_the_store_begins_all_streams_anew(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    await filled(streams, 2)
    opened = await again(streams, tmp_path, clock)
    await opened.close()
    copy = (tmp_path / "streams.db").read_bytes()
    opened = await again(opened, tmp_path, clock)
    lost = await filled(opened, 3)
    await opened.close()
    (tmp_path / "streams.db").write_bytes(copy)
    opened = await again(opened, tmp_path, clock)
    window = await opened.window("acme")
    assert window.epoch > lost.epoch
    with pytest.raises(OutsideReplayWindow):
        await opened.read("acme", after=lost.high, limit=9, max_bytes=9999)
    more = await filled(opened, 1)
    # Opened again as it is, it goes on.
    opened = await again(opened, tmp_path, clock)
    assert await opened.window("acme") == more
    await opened.close()


async def test_drafts_that_nobody_could_sign_are_dropped_by_age_and_by_bytes(streams: TenantStreams) -> None:
    drafts = [draft(number, cut_unix_ns=NOW + number, body=b"x" * 100) for number in range(5)]
    await streams.cut(1, [*drafts, draft(9, "globex", cut_unix_ns=NOW + 9)])
    dropped = await streams.drop_drafts(cut_before_unix_ns=NOW + 2, max_bytes_per_tenant=1000)
    assert {tenant: (one.events, one.oldest_unix_ns) for tenant, one in dropped.items()} == {"acme": (2, NOW)}
    dropped = await streams.drop_drafts(cut_before_unix_ns=NOW, max_bytes_per_tenant=200)
    assert {tenant: one.events for tenant, one in dropped.items()} == {"acme": 1}
    assert await streams.waiting() == {"acme": 2, "globex": 1}
    assert await streams.drop_drafts(cut_before_unix_ns=NOW, max_bytes_per_tenant=200) == {}


async def test_how_far_the_queue_is_filled_is_remembered(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    window = await filled(streams, 2)
    assert await streams.queued_through() == {"acme": window.high - 2}
    await streams.queued("acme", window.high)
    reopened = await again(streams, tmp_path, clock)
    assert await reopened.queued_through() == {"acme": window.high}
    await reopened.close()


async def test_a_damaged_envelope_or_draft_is_not_handed_out(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    window = await filled(streams, 1)
    await streams.cut(1, [draft(1)])
    await streams.close()
    with connect(tmp_path / "streams.db") as connection:
        connection.execute("UPDATE entry SET body = ?", (b"y" * 100,))
        connection.execute("UPDATE draft SET body = ?", (b"[[]]",))
    connection.close()
    reopened = await open_tenant_streams(tmp_path / "streams.db", clock=clock)
    with pytest.raises(IntegrityError):
        await reopened.read("acme", after=window.low, limit=9, max_bytes=9999)
    with pytest.raises(IntegrityError):
        await reopened.drafts("acme", limit=9, max_bytes=9999)
    await reopened.close()


async def test_a_second_owner_of_the_streams_is_refused(
    streams: TenantStreams, tmp_path: Path, clock: ManualClock
) -> None:
    with pytest.raises(StateError, match="in use"):
        await open_tenant_streams(tmp_path / "streams.db", clock=clock)
