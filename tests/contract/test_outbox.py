"""The promises of every outbox: atomic steps, numbers that are never reused, and a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.errors import IntegrityError, Saturated, StateError
from snavio.ports.outbox import Cursor, JournalLife, NewPage, Outbox, PageInfo, RevokedRight
from snavio.wiring import open_outbox

LIFE = JournalLife("fast-0", 7, "fast", 10)


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[Outbox]:
    opened = await open_outbox(tmp_path / "outbox.db", max_bytes=1000)
    yield opened
    await opened.close()


def new(first: int, last: int, body: bytes = b"body") -> NewPage:
    return NewPage("fast-0", 7, first, last, 99, body)


async def again(outbox: Outbox, folder: Path) -> Outbox:
    await outbox.close()
    return await open_outbox(folder / "outbox.db", max_bytes=1000)


async def test_what_was_stored_is_there_after_a_restart(outbox: Outbox, tmp_path: Path) -> None:
    ids = await outbox.store([new(1, 4), new(5, 10, b"more")], [LIFE])
    reopened = await again(outbox, tmp_path)
    assert await reopened.lives() == [LIFE]
    assert await reopened.pages() == [
        PageInfo(ids[0], "fast-0", 7, "fast", 1, 4, 99, 4),
        PageInfo(ids[1], "fast-0", 7, "fast", 5, 10, 99, 4),
    ]
    assert await reopened.bodies(ids[::-1]) == [b"more", b"body"]
    await reopened.close()


async def test_an_export_is_fixed_before_it_begins_and_forgotten_with_its_pages(
    outbox: Outbox, tmp_path: Path
) -> None:
    first, second = await outbox.store([new(1, 4), new(5, 10)], [LIFE])
    export = await outbox.plan(123, "telemetry/date=2026-11-16/hour=05", [first])
    reopened = await again(outbox, tmp_path)
    assert await reopened.planned() == [export]
    (own,) = await reopened.finish(
        export.number, newest_unix_ns=55, pages=[NewPage("relay-0", 1, 1, 1, 5, b"x")], lives=[]
    )
    assert await reopened.planned() == []
    assert [page.page_id for page in await reopened.pages()] == [second, own]
    assert await reopened.hours() == ["telemetry/date=2026-11-16/hour=05"]
    assert await reopened.exported_until_unix_ns() == 55
    await reopened.compacted("telemetry/date=2026-11-16/hour=05")
    assert await reopened.hours() == []
    await reopened.close()


async def test_numbers_of_exports_and_pages_never_come_again(outbox: Outbox, tmp_path: Path) -> None:
    (page,) = await outbox.store([new(1, 1)], [])
    export = await outbox.plan(1, "f", [page])
    await outbox.finish(export.number, newest_unix_ns=0, pages=[], lives=[])
    reopened = await again(outbox, tmp_path)
    assert await reopened.number() == export.number + 1
    assert (await reopened.store([new(2, 2)], []))[0] > page
    await reopened.close()


async def test_a_full_outbox_says_so_and_stores_nothing(outbox: Outbox) -> None:
    await outbox.store([new(1, 1, b"x" * 900)], [LIFE])
    with pytest.raises(Saturated):
        await outbox.store([new(2, 2, b"x" * 200)], [JournalLife("fast-0", 7, "fast", 99)])
    assert (await outbox.lives(), len(await outbox.pages())) == ([LIFE], 1)


async def test_room_comes_back_with_what_was_archived(outbox: Outbox) -> None:
    (page,) = await outbox.store([new(1, 1, b"x" * 900)], [LIFE])
    export = await outbox.plan(1, "f", [page])
    await outbox.finish(export.number, newest_unix_ns=0, pages=[], lives=[])
    await outbox.forget(page)
    await outbox.store([new(2, 2, b"x" * 900)], [LIFE])


@pytest.mark.parametrize("cut_first", [True, False])
async def test_a_page_is_forgotten_when_it_is_archived_and_cut(
    outbox: Outbox, tmp_path: Path, cut_first: bool
) -> None:
    first, second = await outbox.store([new(1, 4), new(5, 10, b"more")], [LIFE])
    export = await outbox.plan(1, "f", [first, second])
    if cut_first:
        await outbox.forget(first)
        assert len(await outbox.pages()) == 2
    await outbox.finish(export.number, newest_unix_ns=0, pages=[], lives=[])
    reopened = await again(outbox, tmp_path)
    assert await reopened.pages() == [], "nobody archives them again"
    left = await reopened.uncut(0, max_bytes=1 << 20)
    if cut_first:
        assert [(page.page_id, page.body) for page in left] == [(second, b"more")]
    else:
        assert [(page.page_id, page.events) for page in left] == [(first, 4), (second, 6)]
    await reopened.forget(second)
    assert await reopened.uncut(0, max_bytes=1 << 20) == []
    assert await reopened.last_page() == second
    await reopened.store([new(11, 11, b"x" * 990)], [LIFE])
    await reopened.close()


async def test_the_cutter_gets_pages_in_order_within_its_bytes_and_knows_a_damaged_one(
    outbox: Outbox, tmp_path: Path
) -> None:
    ids = await outbox.store([new(1, 1), new(2, 2, b"soft"), new(3, 3)], [LIFE])
    assert [page.page_id for page in await outbox.uncut(0, max_bytes=8)] == ids[:2]
    assert [page.page_id for page in await outbox.uncut(ids[0], max_bytes=1)] == [ids[1]]
    await outbox.close()
    with connect(tmp_path / "outbox.db") as connection:
        connection.execute("UPDATE page SET body = ? WHERE id = ?", (b"rott", ids[1]))
    connection.close()
    reopened = await open_outbox(tmp_path / "outbox.db", max_bytes=1000)
    assert [page.body for page in await reopened.uncut(0, max_bytes=1000)] == [b"body", None, b"body"]
    await reopened.close()


async def test_a_damaged_page_is_found_out(outbox: Outbox, tmp_path: Path) -> None:
    good, bad = await outbox.store([new(1, 1), new(2, 2, b"soft")], [LIFE])
    await outbox.close()
    with connect(tmp_path / "outbox.db") as connection:
        connection.execute("UPDATE page SET body = ? WHERE id = ?", (b"rott", bad))
    connection.close()
    reopened = await open_outbox(tmp_path / "outbox.db", max_bytes=1000)
    assert await reopened.bodies([good]) == [b"body"]
    with pytest.raises(IntegrityError):
        await reopened.bodies([good, bad])
    await reopened.close()


async def test_revoked_rights_are_remembered_with_how_far_the_changes_are_known(
    outbox: Outbox, tmp_path: Path
) -> None:
    old, young = RevokedRight("a/b", "t", "n", 3, 100), RevokedRight("a/b", "t", "n", 5, 200)
    assert (await outbox.cursor(), await outbox.revoked_rights()) == (Cursor(), [])
    await outbox.remember_revoked([old, young], Cursor(2, 5), forget_before_unix_ns=0)
    reopened = await again(outbox, tmp_path)
    assert (await reopened.cursor(), await reopened.revoked_rights()) == (Cursor(2, 5), [old, young])
    await reopened.remember_revoked([], Cursor(2, 6), forget_before_unix_ns=150)
    assert (await reopened.cursor(), await reopened.revoked_rights()) == (Cursor(2, 6), [young])
    await reopened.close()


async def test_closed_lives_are_forgotten_after_a_while_and_open_ones_never(outbox: Outbox) -> None:
    for epoch in range(1, 40):
        await outbox.store([], [JournalLife("fast-0", epoch, "fast", 1, closed=epoch > 1)])
    epochs = [life.epoch for life in await outbox.lives()]
    assert epochs[0] == 1 and len(epochs) <= 18 and epochs[-1] == 39


async def test_a_second_owner_is_refused(outbox: Outbox, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="in use"):
        await open_outbox(tmp_path / "outbox.db", max_bytes=1000)


async def test_lives_that_nobody_was_heard_of_are_forgotten_unless_pages_of_them_are_left(
    outbox: Outbox, tmp_path: Path
) -> None:
    await outbox.store([new(1, 4)], [JournalLife("fast-0", 7, "fast", 4, heard_unix_ns=10)])
    for number in range(40):
        await outbox.store([], [JournalLife(f"fast-pod-{number}", 1, "fast", 1, heard_unix_ns=100 + number)])
    assert await outbox.forget_lives(before_unix_ns=130) == 30
    reopened = await again(outbox, tmp_path)
    kept = {(life.instance, life.heard_unix_ns) for life in await reopened.lives()}
    assert kept == {("fast-0", 10), *((f"fast-pod-{number}", 100 + number) for number in range(30, 40))}
    await reopened.close()


async def test_an_outbox_of_0_1_0_opens_with_its_lives_and_revoked_rights(tmp_path: Path) -> None:
    opened = await open_outbox(tmp_path / "outbox.db", max_bytes=1000)
    await opened.store([new(1, 4)], [LIFE])
    right = RevokedRight("a/b", "t", "n", 3, 100)
    await opened.remember_revoked([right], Cursor(2, 5), forget_before_unix_ns=0)
    await opened.close()
    before = connect(tmp_path / "outbox.db")
    before.execute("ALTER TABLE life DROP COLUMN heard_unix_ns")
    before.execute("DROP TABLE archived")
    before.execute("ALTER TABLE revoked RENAME TO grave")
    before.execute("PRAGMA user_version = 1")
    before.close()
    again_opened = await open_outbox(tmp_path / "outbox.db", max_bytes=1000)
    [life] = await again_opened.lives()
    assert life == LIFE and life.heard_unix_ns > 1_600_000_000 * 10**9, "as if it had been heard of just now"
    assert len(await again_opened.pages()) == 1
    assert await again_opened.revoked_rights() == [right]
    await again_opened.close()
