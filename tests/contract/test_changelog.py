"""The promises of every `Directory` about batches, versions and the past."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import apsw
import orjson
import pytest

from snavio.adapters.embedded.sqlite_directory import APPLICATION_ID, SqliteDirectory
from snavio.clock import ManualClock
from snavio.domain.directory import (
    KINDS,
    AccessRequest,
    AclEntry,
    AlertChannel,
    Ban,
    BanList,
    BanProposal,
    Change,
    ChannelKind,
    DirectoryView,
    Draft,
    Endpoint,
    EndpointMode,
    Fairness,
    Limit,
    Overlay,
    Principal,
    Profile,
    ProfileLimit,
    Route,
    Service,
    SourceQuota,
    Suspension,
    Target,
    Tenant,
    TopicRule,
    Value,
    WhenFull,
)
from snavio.errors import Conflict, IntegrityError, NotFound, Unavailable
from snavio.ports.changelog import Dump
from snavio.ports.directory import Directory, Written
from tests.support import directories
from tests.support.directories import ACTOR

clock, path, directory = directories.clock, directories.path, directories.directory
ONE_OF_EACH: tuple[Value, ...] = (
    Tenant("acme"),
    Principal("acme", "ci"),
    Service("acme", "billing", ("ops", "ci")),
    Target("bot", "acme"),
    Route(
        "bot", "Ping", limit=Limit(10, 60, burst=5, shadow=True), fairness=Fairness(dominant_share=0.9)
    ).addressed_to("acme"),
    AclEntry("acme/billing", "bot", "Ping", Profile.CRITICAL, 60, 1 << 61),
    AccessRequest("acme/billing", "bot", "Pong", "please"),
    SourceQuota("acme/billing", "bot", "Ping", 5, 60, always=True, burst=2, shadow=True),
    ProfileLimit("bot", Profile.MODERATE, Limit(7, 60, leases=3)),
    AlertChannel("acme", "oncall", ChannelKind.EMAIL, "ops@acme.example"),
    Ban(BanList.WARM_BAN, "acme/billing", "bot", "Ping", until_unix_ns=1 << 60),
    Suspension("acme/billing", "flood", evidence="9000/s"),
    TopicRule("acme", "acme/own/mail", capacity=100, when_full=WhenFull.BURY_OLDEST, delivered_s=0),
    Endpoint("acme", "/hooks", EndpointMode.DELIVER, ("ci.internal:8443",), topics=("acme/own/edge.hooks",)),
    BanProposal(
        "v1:1", "v1", "dominance", "acme/billing", ("bot:Ping",), 3, 1, 2, 1 << 60, covers=("bot:Ping",)
    ),
)


async def put(directory: Directory, *values: Value, reason: str = "") -> Written:
    return await directory.write(lambda _view: [Draft(v) for v in values], actor=ACTOR, reason=reason)


async def delete(directory: Directory, *values: Value) -> Written:
    return await directory.write(lambda _view: [Draft(v, deleted=True) for v in values], actor=ACTOR)


def find(value: Value, view: DirectoryView) -> Value | None:
    return view.find(type(value), *value.key)


async def dumped(directory: Directory, version: int = 0, limit: int = 3) -> list[Change]:
    found: list[Change] = []
    after = ""
    while True:
        page: Dump = await directory.dump(version=version, after=after, limit=limit)
        found += page.entries
        version, after = page.version, page.after
        if not after:
            return found


def test_one_of_each_is_one_of_each() -> None:
    assert {value.kind for value in ONE_OF_EACH} == set(KINDS)


async def test_every_kind_comes_back_as_it_was_written(directory: Directory) -> None:
    assert await put(directory, *ONE_OF_EACH) == Written(len(ONE_OF_EACH), changed=True)
    for value in ONE_OF_EACH:
        _, found = await directory.read(partial(find, value))
        assert found == value
    page = await directory.changes(since=0, epoch=0, limit=100)
    assert [change.value for change in page.changes] == list(ONE_OF_EACH)


async def test_batch_is_written_in_order_with_one_time_author_and_reason(
    directory: Directory, clock: ManualClock
) -> None:
    await put(directory, Tenant("acme"), Tenant("rival"), reason="they signed")
    changes = (await directory.changes(since=0, epoch=0, limit=10)).changes
    assert [(c.version, c.at_ns, c.actor, c.reason) for c in changes] == [
        (1, clock.unix_ns(), ACTOR, "they signed"),
        (2, clock.unix_ns(), ACTOR, "they signed"),
    ]


async def test_refused_batch_writes_none_of_it(directory: Directory) -> None:
    def decide(view: DirectoryView) -> list[Draft]:
        overlay = Overlay(view)
        overlay.add(Draft(Tenant("acme")))
        assert overlay.find(Tenant, "acme") is not None
        assert overlay.count(Tenant, "") == 1
        raise Conflict("the second one is wrong")

    with pytest.raises(Conflict):
        await directory.write(decide, actor=ACTOR)
    assert (await directory.changes(since=0, epoch=0, limit=10)).version == 0


async def test_change_remembers_what_stood_there_before(directory: Directory) -> None:
    old, new = Route("bot", "Ping"), Route("bot", "Ping", expected_drain_seconds=60)
    await put(directory, old)
    await put(directory, new)
    await delete(directory, old)
    history = await directory.history(Route, ("bot", "Ping"), limit=10)
    assert [(c.before, c.value, c.deleted) for c in history] == [
        (None, old, False), (old, new, False), (new, new, True),
    ]  # fmt: skip
    assert await directory.history(Route, ("bot", "Ping"), limit=2) == history[1:]
    assert await directory.history(Route, ("bot", "Other"), limit=2) == ()


async def test_entry_has_the_version_of_its_last_change(directory: Directory) -> None:
    acl = AclEntry("acme/billing", "bot", "Ping")
    await put(directory, Tenant("acme"))
    await put(directory, acl)
    assert (await directory.read(lambda view: view.version_of(AclEntry, *acl.key)))[1] == 2
    await put(directory, acl)
    assert (await directory.read(lambda view: view.version_of(AclEntry, *acl.key)))[1] == 2
    await delete(directory, acl)
    assert (await directory.read(lambda view: view.version_of(AclEntry, *acl.key)))[1] == 0


async def test_time_belongs_to_one_version(directory: Directory, clock: ManualClock) -> None:
    start = clock.unix_ns()
    await put(directory, Tenant("a"), Tenant("b"))
    clock.advance(seconds=10)
    await put(directory, Tenant("c"))
    assert await directory.version_at(start - 1) == 0
    assert await directory.version_at(start) == 2
    assert await directory.version_at(start + 9_999_999_999) == 2
    assert await directory.version_at(start + 10_000_000_000) == 3
    assert await directory.version_at(2**62) == 3


async def test_clock_that_was_set_back_does_not_turn_the_log_around(path: Path) -> None:
    late, early = ManualClock(2_000_000_000), ManualClock(1_000_000_000)
    directory = await SqliteDirectory.open(path, clock=late)
    await put(directory, Tenant("a"))
    await directory.close()
    again = await SqliteDirectory.open(path, clock=early)
    await put(again, Tenant("b"))
    first, second = (await again.changes(since=0, epoch=0, limit=10)).changes
    assert first.at_ns == second.at_ns == 2_000_000_000
    await again.close()


async def test_rights_of_a_target_are_known_for_every_version(directory: Directory) -> None:
    one, two, other = (
        AclEntry("acme/a", "bot", "Ping"),
        AclEntry("acme/b", "bot", "Ping"),
        AclEntry("acme/a", "else", "Ping"),
    )
    await put(directory, one)
    await put(directory, other)
    await put(directory, two)
    await delete(directory, one)
    await put(directory, one)

    async def standing(version: int) -> list[Value]:
        found = await directory.standing_at(AclEntry, version=version, parent="bot", limit=10)
        return [change.value for change in found]

    assert [await standing(version) for version in range(6)] == [
        [], [one], [one], [one, two], [two], [one, two],
    ]  # fmt: skip
    named = await directory.standing_at(AclEntry, version=5, parent="bot", ending="Ping", limit=1)
    assert [change.value for change in named] == [one]
    assert await directory.standing_at(AclEntry, version=5, parent="bot", ending="ing", limit=9) == ()
    assert [c.version for c in await directory.between(AclEntry, after=2, upto=4, limit=9)] == [3, 4]


async def test_dump_of_a_version_stays_the_same_whatever_is_written(directory: Directory) -> None:
    await put(directory, *ONE_OF_EACH)
    version = len(ONE_OF_EACH)
    before = await dumped(directory)
    assert sorted(c.value.kind for c in before) == sorted(KINDS)
    assert [(c.value.kind, c.value.key) for c in before] == sorted((v.kind, v.key) for v in ONE_OF_EACH)
    await delete(directory, *ONE_OF_EACH[3:8])
    await put(directory, Tenant("rival"), Service("acme", "billing"))
    for limit in (1, 2, 7, 100):
        assert await dumped(directory, version, limit) == before
    now = {change.value for change in await dumped(directory)}
    assert Tenant("rival") in now
    assert Target("bot", "acme") not in now


async def test_dump_of_one_kind_has_that_kind_alone_in_pages(directory: Directory) -> None:
    await put(directory, *ONE_OF_EACH, *(Suspension(f"acme/number-{row}") for row in range(7)))
    wanted = {f"acme/number-{row}" for row in range(7)} | {
        value.source for value in ONE_OF_EACH if isinstance(value, Suspension)
    }
    for limit in (1, 3, 100):
        found: list[str] = []
        after = ""
        while True:
            page = await directory.dump(version=0, after=after, limit=limit, kind=Suspension)
            found += [change.value.key[0] for change in page.entries]
            after = page.after
            if not after:
                break
        assert sorted(found) == sorted(wanted)


async def test_standing_is_what_a_reader_has_who_knows_everything(directory: Directory) -> None:
    before = directory.standing
    written = await directory.write(lambda _view: Draft(Tenant("acme")), actor="test")
    assert directory.standing == (before[0], written.version)
    page = await directory.changes(since=written.version, epoch=before[0], limit=10)
    assert (page.directory_epoch, page.version, page.changes) == (*directory.standing, ())
    epoch = await directory.renew_epoch()
    assert directory.standing == (epoch, written.version)


async def test_dump_of_a_version_to_come_is_refused(directory: Directory) -> None:
    assert await dumped(directory) == []
    with pytest.raises(NotFound) as refusal:
        await directory.dump(version=1, after="", limit=10)
    assert refusal.value.reason == "unknown-version"


async def test_values_are_found_by_parent_and_by_the_beginning_of_their_key(directory: Directory) -> None:
    rights = [AclEntry(f"acme/{s}", t, "Ping") for s in ("a", "a-b", "b") for t in ("bot", "bot-2")]
    await put(directory, *rights)

    def question(view: DirectoryView) -> list[list[AclEntry]]:
        return [
            list(view.under(AclEntry, "bot", limit=2)),
            list(view.beginning(AclEntry, "acme/a", limit=10)),
            list(view.beginning(AclEntry, "acme/a", "bot", limit=10)),
            list(view.beginning(AclEntry, limit=100)),
        ]

    by_parent, by_source, by_both, everything = (await directory.read(question))[1]
    assert by_parent == [rights[0], rights[2]]
    assert by_source == [rights[0], rights[1]]
    assert by_both == [rights[0]]
    assert sorted(everything, key=lambda a: a.key) == sorted(rights, key=lambda a: a.key)


async def test_what_has_ended_is_found_and_nothing_else(directory: Directory, clock: ManualClock) -> None:
    now = clock.unix_ns()
    brief = Route("bot", "Ping", ttl_seconds=10).beginning(now)
    await put(directory, brief, Route("bot", "Pong"), Ban(BanList.COLD_ONLY, "acme/a"))
    ended = 10_000_000_000 + now
    assert (await directory.read(lambda view: list(view.ended(ended - 1, limit=9))))[1] == []
    assert (await directory.read(lambda view: list(view.ended(ended, limit=9))))[1] == [brief]


async def test_overlay_sees_drafts_over_what_stands(directory: Directory) -> None:
    await put(directory, Target("a", "acme"), Target("b", "acme"))

    def question(view: DirectoryView) -> None:
        overlay = Overlay(view)
        overlay.add(Draft(Target("b", "acme"), deleted=True))
        overlay.add(Draft(Target("c", "acme")))
        overlay.add(Draft(Target("a", "acme")))
        assert overlay.count(Target, "acme") == 2
        assert [t.target for t in overlay.under(Target, "acme", limit=9)] == ["a", "c"]
        assert [t.target for t in overlay.beginning(Target, "c", limit=9)] == ["c"]
        assert overlay.find(Target, "b") is None
        assert [(d.before, d.after) for d in overlay.differences()] == [
            (Target("b", "acme"), None), (None, Target("c", "acme")),
        ]  # fmt: skip

    await directory.read(question)


async def test_full_disk_leaves_nothing_half_written(path: Path, clock: ManualClock) -> None:
    directory = await SqliteDirectory.open(path, clock=clock)
    await put(directory, Tenant("acme"))
    standing = await directory.changes(since=0, epoch=0, limit=10)
    connection = directory._connection
    size = connection.pragma("page_count")
    connection.pragma("max_page_count", size)
    batch = [Target(f"bot-{number}-{'x' * 100}", "acme") for number in range(500)]
    with pytest.raises(Unavailable):
        await put(directory, *batch)
    assert await directory.changes(since=0, epoch=0, limit=10) == standing
    assert (await directory.read(lambda view: view.count(Target, "acme"))) == (1, 0)
    idle = await directory.changes(since=1, epoch=standing.directory_epoch, limit=10)
    assert (idle.version, idle.changes) == (1, ())
    # There is room again, and the same write goes through.
    connection.pragma("max_page_count", 1 << 30)
    assert await put(directory, *batch) == Written(501, changed=True)
    await directory.close()


def first_schema(path: Path, *, rotten: int = 0) -> None:
    """A directory in the first schema: a tenant, a route that was changed, a right that was revoked."""
    path.parent.mkdir(parents=True)
    connection = apsw.Connection(str(path))
    for statement in (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        """CREATE TABLE changelog (
            version INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, actor TEXT NOT NULL,
            kind TEXT NOT NULL, value BLOB NOT NULL, deleted INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT""",
        """CREATE TABLE record (
            kind TEXT NOT NULL, key TEXT NOT NULL, parent TEXT NOT NULL,
            value BLOB NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID""",
        "CREATE INDEX record_by_parent ON record (kind, parent)",
        "CREATE TRIGGER changelog_keeps BEFORE DELETE ON changelog"
        " BEGIN SELECT raise(ABORT, 'append-only'); END",
        "CREATE TRIGGER changelog_stays BEFORE UPDATE ON changelog"
        " BEGIN SELECT raise(ABORT, 'append-only'); END",
        "INSERT INTO meta VALUES ('epoch', 77)",
    ):
        connection.execute(statement)
    route = {"target": "bot", "name": "Ping", "queue_kind": 1, "profile": 3, "dedupe_mode": 1} | {
        "expected_drain_seconds": 300,
        "topic": "acme/bot",
    }
    acl = {"source": "acme/a", "target": "bot", "name": "Ping"}
    for version, kind, value, deleted in (
        (1, "tenant", {"tenant": "acme"}, 0),
        (2, "service", {"tenant": "acme", "service": "a"}, 0),
        (3, "route", route, 0),
        (5, "route", route | {"profile": 1}, 0),
        (6, "acl", acl, 0),
        (7, "acl", acl, 1),
    ):
        blob = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        digest = hashlib.blake2b(digest_size=8)
        for part in (
            str(version * 10).encode(),
            ACTOR.encode(),
            kind.encode(),
            blob,
            str(bool(deleted)).encode(),
        ):
            digest.update(len(part).to_bytes(4, "big") + part)
        checksum = digest.digest() if version != rotten else b"12345678"
        connection.execute(
            "INSERT INTO changelog VALUES (?, ?, ?, ?, ?, ?, ?)",
            (version, version * 10, ACTOR, kind, blob, deleted, checksum),
        )
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 1)
    connection.close()


async def test_directory_of_the_first_schema_is_brought_forward(path: Path, clock: ManualClock) -> None:
    first_schema(path)
    for _ in range(2):
        directory = await SqliteDirectory.open(path, clock=clock)
        page = await directory.changes(since=0, epoch=77, limit=10)
        assert page.directory_epoch == 77
        assert [(c.version, c.at_ns, c.deleted) for c in page.changes] == [
            (1, 10, False), (2, 20, False), (3, 30, False), (5, 50, False), (6, 60, False), (7, 70, True),
        ]  # fmt: skip
        _, route = await directory.read(lambda view: view.find(Route, "bot", "Ping"))
        assert route is not None
        assert (route.topic, route.dlq, route.profile) == ("acme/bot", "dlq/acme/bot", 1)
        (old, new) = await directory.history(Route, ("bot", "Ping"), limit=10)
        assert new.before == old.value
        assert (await directory.read(lambda view: view.count(AclEntry, "bot")))[1] == 0
        await directory.close()
    directory = await SqliteDirectory.open(path, clock=clock)
    assert await put(directory, Tenant("rival")) == Written(8, changed=True)
    await directory.close()


async def test_damaged_line_is_not_brought_forward(path: Path, clock: ManualClock) -> None:
    first_schema(path, rotten=5)
    with pytest.raises(IntegrityError):
        await SqliteDirectory.open(path, clock=clock)
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == 1
    assert connection.execute("SELECT count(*) FROM changelog").fetchone() == (6,)
    connection.close()
