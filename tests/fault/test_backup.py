"""A backup under load, restored: everything acknowledged before it began is there, and no cache is ahead of it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from snavio.adapters.embedded import store_copy
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.mailbox_copy import copy_mailbox
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.embedded.store_copy import copy_database, faults_of, reading
from snavio.clock import SystemClock
from snavio.errors import IntegrityError, SnavioError, StateError
from snavio.launch.backup import make, read
from snavio.launch.processes import MeshProcesses
from snavio.launch.restore import restore
from snavio.launch.state import RESTORING_FILE, StateFolder
from snavio.launch.stores import STORES
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import NewBatch, Progress, Send
from snavio.sdk import Consumer, Producer
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh, demo_mesh
from tests.support.terminal import snavio

FAST_PULLS = {"mesh": {"pull_interval_ms": 100}}


class Traffic:
    """Sends and acknowledges without pause; records what was promised to it."""

    def __init__(self) -> None:
        self.delivered: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()
        self.taken: set[str] = set()

    async def send(self, producer: Producer) -> None:
        number = 0
        while True:
            number += 1
            # Beside their rows, and in the payload log.
            payload = f"{number}.".encode() * (4 if number % 3 else 3000)
            outcome = await producer.send(TARGET, NAME, payload)
            if outcome.delivered:
                self.delivered[outcome.command_id] = payload

    async def consume(self, consumer: Consumer) -> None:
        async for command in consumer:
            self.taken.add(command.command_id)
            await command.ack(durable=True)
            self.acknowledged.add(command.command_id)
            await asyncio.sleep(0.02)


async def test_restored_backup_has_all_that_was_acknowledged_before_it_began(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    traffic = Traffic()
    folder = tmp_path / "backup"
    async with demo_mesh(tmp_path / "state") as mesh:
        async with mesh.operator() as operator:
            await operator.put_route(TARGET, "forbidden")
            await operator.grant(SOURCE, TARGET, "forbidden")
            await operator.revoke(SOURCE, TARGET, "forbidden")
        async with mesh.producer() as producer, mesh.consumer() as consumer:
            tasks = [
                asyncio.create_task(traffic.send(producer)),
                asyncio.create_task(traffic.consume(consumer)),
            ]
            async with asyncio.timeout(60):
                while len(traffic.delivered) < 300 or len(traffic.acknowledged) < 20:
                    await asyncio.sleep(0.05)
            before, gone = dict(traffic.delivered), set(traffic.acknowledged)
            made = await asyncio.to_thread(
                make, mesh.processes.state_dir, folder, clock=SystemClock(), tell=lambda _: None
            )
            after = len(traffic.delivered) - len(before)
            # Acknowledged while the backup ran: in it or not. Messages taken from now on are in it.
            taken_meanwhile = traffic.taken - gone
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        epochs = _epochs(mesh.processes.state_dir)
    assert set(made.stores) == {store.name for store in STORES} | {"keys"}
    fresh = tmp_path / "restored"
    processes = MeshProcesses.temporary(fresh, settings=FAST_PULLS)
    await asyncio.to_thread(restore, folder, processes, clock=SystemClock(), tell=lambda _: None)
    assert not (fresh / RESTORING_FILE).exists()
    renewed = _epochs(fresh)
    assert renewed["mailbox"] > epochs["mailbox"]
    assert all(renewed[name] != epochs[name] for name in epochs)
    processes.begin()
    try:
        await _check(DemoMesh(processes), before, gone, taken_meanwhile)
    finally:
        processes.stop()
    figure(
        f"backup under load: {len(before)} messages before it, {after} while it ran "
        f"({(made.ended_unix_ns - made.begun_unix_ns) / 1e9:.1f} s), none of those before is missing"
    )


async def _check(mesh: DemoMesh, before: dict[str, bytes], gone: set[str], taken: set[str]) -> None:
    found: dict[str, bytes] = {}
    expected = set(before) - gone - taken
    async with mesh.consumer() as consumer:
        # All that must come, however slow the machine is; then whatever else there is.
        with contextlib.suppress(TimeoutError):
            while True:
                command = await asyncio.wait_for(anext(consumer), 2 if expected <= found.keys() else 60)
                found[command.command_id] = command.payload
                await command.ack()
    assert not gone & set(found), "acknowledged before the backup: it does not come back"
    assert expected <= found.keys(), "acknowledged before the backup began, and not there"
    assert all(found[one] == payload for one, payload in before.items() if one in found)
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, NAME, b"after")).delivered
        assert not (await producer.send(TARGET, "forbidden", b"after")).delivered
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, "another")


def _epochs(state: Path) -> dict[str, Any]:
    questions = {
        "mailbox": ("mailbox/mailbox.db", "SELECT epoch FROM counters"),
        "mailbox ids": ("mailbox/mailbox.db", "SELECT last_batch_id FROM counters"),
        "directory": ("registry/directory.db", "SELECT value FROM meta WHERE name = 'epoch'"),
        "coordination": ("slow/coordination.db", "SELECT name FROM epoch"),
    }
    found = {}
    for name, (place, question) in questions.items():
        connection = connect(state / place, flags=apsw.SQLITE_OPEN_READONLY)
        found[name] = connection.execute(question).fetchone()[0]
        connection.close()
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of an installation that never ran."""
    folder = tmp_path_factory.mktemp("installation")
    processes = MeshProcesses.temporary(folder / "state")
    processes.prepare()
    make(processes.state_dir, folder / "backup", clock=SystemClock(), tell=lambda _: None)
    return folder


def test_backup_with_a_changed_byte_is_not_restored(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    shutil.copytree(kept / "backup", folder, symlinks=True)
    for place in read(folder).files:
        path = folder / place
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:] if whole else b"x")
        with pytest.raises(IntegrityError, match=path.name):
            restore(
                folder,
                MeshProcesses.temporary(tmp_path / "state"),
                clock=SystemClock(),
                tell=lambda _: None,
            )
        assert not (tmp_path / "state" / RESTORING_FILE).exists()
        path.write_bytes(whole)


def test_backup_without_its_manifest_is_none(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "backup", tmp_path / "backup", symlinks=True)
    (tmp_path / "backup" / "backup.json").unlink()
    with pytest.raises(StateError, match="not finished"):
        read(tmp_path / "backup")


def test_restore_that_did_not_end_keeps_the_mesh_from_starting(kept: Path, tmp_path: Path) -> None:
    processes = MeshProcesses.temporary(tmp_path / "state")
    (processes.state_dir / RESTORING_FILE).write_bytes(b"{}")
    with pytest.raises(StateError, match="has not ended"):
        StateFolder(processes.state_dir).check_format()
    restore(kept / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    StateFolder(processes.state_dir).check_format()


def test_restore_moves_the_stores_that_were_there_aside_and_is_told_on_the_command_line(
    kept: Path, tmp_path: Path
) -> None:
    config = MeshProcesses.temporary(tmp_path / "state").config
    words = ["--config", str(config), "--state-dir", str(tmp_path / "state"), "--json"]
    first = snavio("restore", str(kept / "backup"), *words, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert orjson.loads(first.stdout)["aside"] is None
    second = orjson.loads(snavio("restore", str(kept / "backup"), *words, folder=tmp_path).stdout)
    assert (Path(second["aside"]) / "signer" / "keys.sealed").exists()
    assert "acknowledged after" in second["missing"][0]
    again = orjson.loads(snavio("backup", str(tmp_path / "again"), *words, folder=tmp_path).stdout)
    assert "keys" in again["stores"]
    full = snavio("backup", str(tmp_path / "again"), *words, folder=tmp_path)
    assert (full.returncode, "is not empty" in full.stderr) == (4, True)


def test_store_in_use_is_not_restored_over(kept: Path, tmp_path: Path) -> None:
    processes = MeshProcesses.temporary(tmp_path / "state")
    restore(kept / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    store = SqliteMailboxStore(tmp_path / "state" / "mailbox" / "mailbox.db", digest=blake3_digest)
    with pytest.raises(SnavioError, match="stop the mesh"):
        restore(kept / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    store.close()


def test_copy_of_a_mailbox_that_goes_on_has_each_batch_whole_or_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments die, are compacted and written over between the copy of the rows and that of the bytes."""
    path = tmp_path / "live" / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest, segment_bytes=64 << 10, inline_bytes=0)
    bodies = {number: f"{number}.".encode() * 2000 for number in range(1, 60)}
    for number, runs in bodies.items():
        store.commit([Send(None, b"", (NewBatch("a/b", 1, runs),))], [], now_unix_ns=number)
    target = tmp_path / "copy" / "mailbox.db"
    settled = {number for number in bodies if number % 16}

    def go_on(*_: object) -> None:
        for number in settled:
            store.commit([], [Progress("a/b", number, 1, 1)], now_unix_ns=99)
        while store.checkpoint():
            pass

    def copied(source: Path, to: Path) -> None:
        copy_database(source, to)
        go_on()

    monkeypatch.setattr("snavio.adapters.embedded.mailbox_copy.copy_database", copied)
    told = copy_mailbox(path, target)
    store.close()
    assert told.damaged == 0 and told.settled_meanwhile > 0
    assert faults_of(target) == []
    copy = SqliteMailboxStore(target, digest=blake3_digest)
    found = {one.batch_id: copy.read("a/b", one.batch_id) for one in copy.pending("a/b", after=0, limit=100)}
    copy.close()
    assert set(bodies) - settled <= set(found)
    assert all(runs == bodies[number] for number, runs in found.items())
    assert len(found) == len(bodies) - told.settled_meanwhile


def test_backup_that_somebody_looked_into_is_still_restored(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    shutil.copytree(kept / "backup", folder, symlinks=True)
    assert not [place for place in read(folder).files if place.endswith(("-wal", "-shm"))]
    looking = sqlite3.connect(folder / "signer" / "certificates.db")
    looking.execute("SELECT count(*) FROM issued").fetchone()
    looking.close()
    # Files that SQLite or another program left beside them are not trusted.
    (folder / "signer" / "certificates.db-wal").write_bytes(b"not of the backup")
    processes = MeshProcesses.temporary(tmp_path / "state")
    restore(folder, processes, clock=SystemClock(), tell=lambda _: None)
    assert not (processes.state_dir / "signer" / "certificates.db-wal").exists()


def test_half_of_a_restore_is_not_backed_up(kept: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(kept / "state", state, symlinks=True)
    (state / RESTORING_FILE).write_bytes(b"{}")
    with pytest.raises(StateError, match="has not ended"):
        make(state, tmp_path / "backup", clock=SystemClock(), tell=lambda _: None)


def test_backup_into_a_full_file_system_says_so_and_not_that_the_mesh_is_away(
    kept: Path, tmp_path: Path, small: Callable[[int], Path]
) -> None:
    config = tmp_path / "snavio.toml"
    config.touch()
    for kilobytes in (8, 40, 80):
        place = small(kilobytes)
        words = [str(place / "backup"), "--state-dir", str(kept / "state"), "--config", str(config)]
        full = snavio("backup", *words, folder=tmp_path)
        assert full.returncode == 4, (kilobytes, full.stdout, full.stderr)
        assert "The backup was not made" in full.stderr and "Is the mesh up" not in full.stderr
        assert not (place / "backup" / "backup.json").exists()


def test_restore_that_finds_no_room_leaves_the_mesh_that_was_there(
    kept: Path, tmp_path: Path, small: Callable[[int], Path]
) -> None:
    state = small(2000) / "state"
    processes = MeshProcesses.temporary(state)
    restore(kept / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    before = {place: place.read_bytes() for place in state.rglob("*.db")}
    (state / "filler").write_bytes(bytes(shutil.disk_usage(state).free - (60 << 10)))
    with pytest.raises(StateError, match="Nothing was changed"):
        restore(kept / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    StateFolder(state).check_format()
    assert {place: place.read_bytes() for place in state.rglob("*.db")} == before


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes file systems of that many kilobytes."""
    mounted: list[Path] = []

    def make_one(kilobytes: int) -> Path:
        place = tmp_path / f"small-{len(mounted)}"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
        try:
            made = subprocess.run(mount, capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if made.returncode != 0:
            pytest.skip(f"nothing may be mounted here: {made.stderr.strip()}")
        mounted.append(place)
        return place

    yield make_one
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], timeout=30, check=True)


def test_store_that_is_being_copied_can_be_opened_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "mailbox.db", tmp_path / "copy" / "mailbox.db"
    SqliteMailboxStore(source, digest=blake3_digest).close()
    started = []

    def begin(path: Path) -> apsw.Connection:
        # A restart while the backup runs: the owner starts, and writes.
        started.append(SqliteMailboxStore(source, digest=blake3_digest))
        return connect(path)

    monkeypatch.setattr(
        store_copy, "connect", lambda path, **how: connect(path, **how) if how else begin(path)
    )
    copy_database(source, target)
    started[0].close()
    assert not faults_of(target)


def test_restores_at_the_same_time_of_day_keep_what_each_found(kept: Path, tmp_path: Path) -> None:
    class Stopped(SystemClock):
        def unix_ns(self) -> int:
            return 1_800_000_000_000_000_000

    processes = MeshProcesses.temporary(tmp_path / "state")
    asides = [
        restore(kept / "backup", processes, clock=Stopped(), tell=lambda _: None).aside for _ in range(3)
    ]
    assert asides[0] is None and asides[1] is not None and asides[2] is not None
    assert asides[1] != asides[2]
    assert all((aside / "signer" / "keys.sealed").exists() for aside in asides[1:] if aside is not None)


@pytest.mark.parametrize("place", ["signer/certificates.db", "registry/directory.db"])
def test_backup_of_a_newer_program_is_refused_before_anything_is_exchanged(
    kept: Path, tmp_path: Path, place: str
) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(kept / "state", newer, symlinks=True)
    (newer / place).parent.mkdir(exist_ok=True)
    store = connect(newer / place)
    store.pragma("user_version", 99)
    store.close()
    make(newer, tmp_path / "backup", clock=SystemClock(), tell=lambda _: None)
    processes = MeshProcesses.temporary(tmp_path / "state")
    processes.prepare()
    with pytest.raises(StateError, match="newer Snavio"):
        restore(tmp_path / "backup", processes, clock=SystemClock(), tell=lambda _: None)
    StateFolder(processes.state_dir).check_format()
    assert not list(processes.state_dir.glob("before-restore-*"))


def test_copy_of_a_large_store_is_whole_while_its_log_has_newer_pages(tmp_path: Path) -> None:
    # More than SQLite's cache holds, so that the copy's first pages are written before its last are read.
    source, target = tmp_path / "large.db", tmp_path / "copy" / "large.db"
    owner = connect(source)
    try:
        owner.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
        owner.execute("CREATE TABLE first (n INTEGER); CREATE TABLE rest (body BLOB)")
        owner.execute("INSERT INTO first VALUES (1)")
        for _ in range(8):
            owner.execute("INSERT INTO rest VALUES (randomblob(1 << 20))")
        owner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        owner.execute("UPDATE first SET n = 2")
        copy_database(source, target)
    finally:
        owner.close()
    assert faults_of(target) == []
    with reading(target) as copy:
        assert copy.execute("SELECT n FROM first").fetchall() == [(2,)]
        assert copy.execute("SELECT count(*) FROM rest").fetchall() == [(8,)]
