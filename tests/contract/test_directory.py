"""The promises of every `Directory`."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import apsw
import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.directory_rows import record_line
from snavio.adapters.embedded.sqlite_directory import SqliteDirectory
from snavio.clock import ManualClock
from snavio.domain.directory import (
    AclEntry,
    DirectoryView,
    Draft,
    Overlay,
    Profile,
    Route,
    Service,
    Suspension,
    Target,
    Tenant,
    Value,
)
from snavio.errors import Conflict, IntegrityError, StateError
from snavio.ports.directory import Directory, Written
from snavio.ports.survey import Survey
from tests.support import directories
from tests.support.directories import ACTOR

clock, path, directory = directories.clock, directories.path, directories.directory
ROUTE = Route("bot", "Ping", profile=Profile.CRITICAL).addressed_to("acme")
ACL = AclEntry("acme/billing", "bot", "Ping")


async def put(directory: Directory, value: Value) -> Written:
    return await directory.write(lambda _view: Draft(value), actor=ACTOR)


async def delete(directory: Directory, value: Value) -> Written:
    return await directory.write(lambda _view: Draft(value, deleted=True), actor=ACTOR)


async def test_write_is_seen_by_reads_and_logged(directory: Directory, clock: ManualClock) -> None:
    written = await put(directory, ROUTE)
    assert written == Written(1, changed=True)
    assert await directory.read(lambda view: view.find(Route, "bot", "Ping")) == (1, ROUTE)
    page = await directory.changes(since=0, epoch=0, limit=10)
    (change,) = page.changes
    assert (change.version, change.at_ns, change.actor) == (1, clock.unix_ns(), ACTOR)
    assert change.value == ROUTE
    assert not change.deleted


async def test_same_write_again_changes_nothing_and_keeps_the_version(directory: Directory) -> None:
    await put(directory, Tenant("acme"))
    for _ in range(3):
        assert await put(directory, Tenant("acme")) == Written(1, changed=False)
    assert (await directory.changes(since=0, epoch=0, limit=10)).version == 1


async def test_delete_leaves_a_tombstone_with_its_time(directory: Directory, clock: ManualClock) -> None:
    await put(directory, ACL)
    clock.advance(seconds=5)
    assert await delete(directory, ACL) == Written(2, changed=True)
    assert (await directory.read(lambda view: view.find(AclEntry, *ACL.key)))[1] is None
    page = await directory.changes(
        since=1, epoch=(await directory.changes(since=0, epoch=0, limit=1)).directory_epoch, limit=10
    )
    (tombstone,) = page.changes
    assert tombstone.deleted
    assert tombstone.value == ACL
    assert tombstone.at_ns == clock.unix_ns()
    assert await delete(directory, ACL) == Written(2, changed=False)


async def test_refused_decision_writes_nothing(directory: Directory) -> None:
    def refuse(_view: DirectoryView) -> Draft:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await directory.write(refuse, actor=ACTOR)
    assert (await directory.changes(since=0, epoch=0, limit=10)).version == 0
    assert await put(directory, Tenant("acme")) == Written(1, changed=True)


async def test_decisions_at_the_same_time_see_each_other(directory: Directory) -> None:
    def claim(tenant: str, view: DirectoryView) -> Draft:
        taken = view.find(Target, "bot")
        if taken is not None and taken.tenant != tenant:
            raise Conflict("taken")
        return Draft(Target("bot", tenant))

    results = await asyncio.gather(
        *(directory.write(partial(claim, f"t{n}"), actor=ACTOR) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Written) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7


async def test_counts_are_by_kind_and_parent(directory: Directory) -> None:
    for value in (Tenant("acme"), Service("acme", "a"), Service("acme", "b"), Service("rival", "a")):
        await put(directory, value)
    version, count = await directory.read(lambda view: view.count(Service, "acme"))
    assert (version, count) == (4, 2)


async def test_values_beyond_a_key_and_with_an_ending_are_found_in_order(directory: Directory) -> None:
    rights = [
        AclEntry(source, target, name)
        for source in ("a/b", "a/b-c")
        for target in ("bot", "bot.x")
        for name in ("A", "B")
    ]
    for right in reversed(rights):
        await put(directory, right)

    def walked(view: DirectoryView, size: int) -> list[AclEntry]:
        found: list[AclEntry] = []
        while page := view.beginning(AclEntry, "a/b", limit=size, after=found[-1].key if found else ()):
            found += page
        return found

    for size in (1, 3):
        _, found = await directory.read(partial(walked, size=size))
        assert found == rights[:4]
    _, under = await directory.read(
        lambda view: view.under(AclEntry, "bot", limit=9, after=("a/b", "bot", "A"), ending="A")
    )
    assert list(under) == [AclEntry("a/b-c", "bot", "A")]
    _, overlaid = await directory.read(
        lambda view: _with_one_less(view, rights[0]).under(AclEntry, "bot", limit=9, ending="A")
    )
    assert list(overlaid) == [AclEntry("a/b-c", "bot", "A")]


def _with_one_less(view: DirectoryView, value: Value) -> Overlay:
    overlay = Overlay(view)
    overlay.add(Draft(value, deleted=True))
    return overlay


async def test_pages_lead_through_the_whole_log_in_order(directory: Directory) -> None:
    for number in range(5):
        await put(directory, Tenant(f"t{number}"))
    epoch = (await directory.changes(since=0, epoch=0, limit=1)).directory_epoch
    seen: list[int] = []
    since, more = 0, True
    while more:
        page = await directory.changes(since=since, epoch=epoch, limit=2)
        seen += [change.version for change in page.changes]
        since, more = page.version, page.more
    assert seen == [1, 2, 3, 4, 5]
    idle = await directory.changes(since=5, epoch=epoch, limit=2)
    assert (idle.version, idle.changes, idle.more) == (5, (), False)


async def test_reader_of_another_epoch_gets_everything_from_the_start(directory: Directory) -> None:
    await put(directory, Tenant("acme"))
    await put(directory, Tenant("rival"))
    page = await directory.changes(since=1, epoch=12345, limit=10)
    assert [change.version for change in page.changes] == [1, 2]
    assert page.directory_epoch != 12345


async def test_reader_who_is_ahead_gets_a_new_epoch_and_everything(directory: Directory) -> None:
    await put(directory, Tenant("acme"))
    epoch = (await directory.changes(since=0, epoch=0, limit=1)).directory_epoch
    page = await directory.changes(since=2**64 - 1, epoch=epoch, limit=10)
    assert page.directory_epoch != epoch
    assert [change.version for change in page.changes] == [1]
    assert (await directory.changes(since=1, epoch=page.directory_epoch, limit=10)).changes == ()


async def test_everything_is_there_after_reopening(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    for value in (Tenant("acme"), Target("bot", "acme"), ROUTE, ACL):
        await put(directory, value)
    before = await directory.changes(since=0, epoch=0, limit=10)
    await directory.close()
    again = await SqliteDirectory.open(path, clock=clock)
    assert await again.changes(since=0, epoch=0, limit=10) == before
    assert await again.read(lambda view: view.find(Route, "bot", "Ping")) == (4, ROUTE)
    await again.close()


async def test_second_owner_is_refused(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    with pytest.raises(StateError) as refusal:
        await SqliteDirectory.open(path, clock=clock)
    assert refusal.value.reason == "store-locked"
    await directory.close()


def edit(path: Path, *statements: str) -> None:
    connection = connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


async def test_newer_store_is_refused(path: Path, clock: ManualClock) -> None:
    await (await SqliteDirectory.open(path, clock=clock)).close()
    edit(path, "PRAGMA user_version = 99")
    with pytest.raises(StateError) as refusal:
        await SqliteDirectory.open(path, clock=clock)
    assert refusal.value.reason == "newer-store"


async def test_database_of_another_program_is_refused_and_left_alone(path: Path, clock: ManualClock) -> None:
    path.parent.mkdir()
    edit(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StateError) as refusal:
        await SqliteDirectory.open(path, clock=clock)
    assert refusal.value.reason == "foreign-store"
    assert path.read_bytes() == before


async def test_record_that_rotted_is_not_answered_from(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    await put(directory, ACL)
    await directory.close()
    edit(
        path,
        """UPDATE record SET value = cast(replace(value, 'Ping', 'Pong') AS BLOB)""",
        "DROP TRIGGER changelog_stays",
    )
    edit(path, """UPDATE changelog SET value = cast(replace(value, 'Ping', 'Pong') AS BLOB)""")
    again = await SqliteDirectory.open(path, clock=clock)
    with pytest.raises(IntegrityError):
        await again.read(lambda view: view.find(AclEntry, *ACL.key))
    with pytest.raises(IntegrityError):
        await again.changes(since=0, epoch=0, limit=10)
    await again.close()


async def test_log_cannot_be_edited_by_slip_of_the_hand(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    await put(directory, Tenant("acme"))
    await directory.close()
    for statement in ("DELETE FROM changelog", "UPDATE changelog SET actor = 'somebody else'"):
        with pytest.raises(apsw.ConstraintError):
            edit(path, statement)


async def test_a_survey_tells_every_record_of_one_moment_with_version_and_checksum(
    directory: Directory,
) -> None:
    for value in (Tenant("acme"), ROUTE, ACL, AclEntry("acme/shop", "bot", "Ping")):
        await put(directory, value)
    await delete(directory, AclEntry("acme/shop", "bot", "Ping"))
    page = await directory.changes(since=0, epoch=0, limit=10)

    def take(survey: Survey) -> tuple[int, int, list[bytes], list[bytes], list[bytes]]:
        lines = [b"\n".join(survey.records(kind)).lower() for kind in (Route, AclEntry, Suspension)]
        routes, acl, suspensions = (text.split(b"\n") if text else [] for text in lines)
        return survey.version, survey.epoch, routes, acl, suspensions

    assert await directory.survey(take) == (
        5,
        page.directory_epoch,
        [record_line(ROUTE, 2).lower()],
        [record_line(ACL, 3).lower()],
        [],
    )


async def test_writes_and_reads_go_on_while_a_survey_is_taken(directory: Directory) -> None:
    await put(directory, ROUTE)
    begun, go_on = threading.Event(), threading.Event()

    def take(survey: Survey) -> tuple[int, int]:
        begun.set()
        assert go_on.wait(5)
        return survey.version, sum(page.count(b"{") for page in survey.records(AclEntry))

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(directory.survey(take))
        await asyncio.to_thread(begun.wait, 5)
        assert await put(directory, ACL) == Written(2, changed=True)
        assert (await directory.changes(since=1, epoch=0, limit=10)).version == 2
        go_on.set()
    assert taking.result() == (1, 0)


async def test_what_a_survey_raises_comes_out(directory: Directory) -> None:
    def take(_survey: Survey) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await directory.survey(take)
    assert await directory.survey(lambda survey: survey.version) == 0


async def test_a_survey_of_more_than_one_page_is_complete(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    entries = [Draft(AclEntry("acme/billing", "bot", f"say-{row}")) for row in range(5_001)]
    await directory.write(lambda _view: entries, actor=ACTOR)
    pages = await directory.survey(lambda survey: [page.count(b"{") for page in survey.records(AclEntry)])
    assert pages == [5_000, 1]
    await directory.close()
