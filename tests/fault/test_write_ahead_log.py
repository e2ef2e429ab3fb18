"""A log that a crash tore is opened with everything that was acknowledged; a damaged one is not opened."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from snavio.adapters.embedded import write_ahead_log
from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.embedded.sqlite import open_store
from snavio.adapters.embedded.write_ahead_log import HEADER_BYTES, wal_path, walk
from snavio.errors import IntegrityError
from snavio.native import WalWalk

FULL = os.environ.get("SNAVIO_FULL") == "1"
FRAME = 24 + 4096
SCHEMA = ("CREATE TABLE kept (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",)


def opened(path: Path) -> apsw.Connection:
    return open_store(path, application_id=7, schema_version=1, create=SCHEMA)


def rows(path: Path) -> list[int]:
    connection = opened(path)
    try:
        return [row[0] for row in connection.execute("SELECT id FROM kept ORDER BY id")]
    finally:
        connection.close()


@dataclass(frozen=True)
class Crashed:
    """The files of a store whose process is gone, and the length of its log after each acknowledged row."""

    folder: Path
    acknowledged: list[tuple[int, int]]
    """Length of the log, rows."""
    before: int
    """Rows that are in the database."""

    def copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to)
        return to / "store.db"

    def expected(self, length: int) -> int:
        return max((count for end, count in self.acknowledged if end <= length), default=self.before)


def crashed(folder: Path, dice: random.Random) -> Crashed:
    """Random transactions, with the frames of an earlier log behind those of this one."""
    path = folder / "live" / "store.db"
    connection = opened(path)
    connection.wal_autocheckpoint(0)
    count = 0

    def commit() -> None:
        nonlocal count
        with connection:
            for _ in range(dice.choice([1, 1, 1, 3])):
                count += 1
                body = dice.randbytes(dice.choice([10, 100, 9000]))
                connection.execute("INSERT INTO kept VALUES (?, ?)", (count, body))

    for _ in range(30):
        commit()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    before, acknowledged = count, []
    for _ in range(dice.randrange(3, 12)):
        commit()
        # The log is longer than what is in it: what is behind belongs to the log before.
        acknowledged.append((walk(path).committed_end, count))
    shutil.copytree(path.parent, folder / "crashed", ignore=shutil.ignore_patterns("*-shm"))
    connection.close()
    return Crashed(folder / "crashed", acknowledged, before)


@pytest.mark.parametrize("seed", range(12 if FULL else 3))
def test_torn_end_of_a_log_is_opened_with_all_that_was_synced(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    store = crashed(tmp_path, dice)
    whole = wal_path(store.folder / "store.db").read_bytes()
    end = store.acknowledged[-1][0]
    for turn in range(40):
        cut = end - dice.randrange(end - HEADER_BYTES) if turn % 2 else end
        last = max((at for at, _ in store.acknowledged if at <= cut), default=HEADER_BYTES)
        torn = bytearray(whole[:cut])
        match turn % 4:
            case 1:
                torn += bytes(dice.randrange(3 * FRAME))
            case 2:
                # A transaction that was under way: any of its sectors, in any order, over what was there before.
                torn = bytearray(whole)
                for at in range(end, min(len(torn), end + 3 * FRAME), 512):
                    if dice.random() < 0.5:
                        torn[at : at + 512] = dice.randbytes(len(torn[at : at + 512]))
            case 3:
                # The sync of the last transaction had not returned: its sectors came in any order.
                torn = bytearray(whole)
                sector = -(-last // 512) * 512
                for at in range(sector, len(torn), 512):
                    torn[at : at + 512] = bytes(len(torn[at : at + 512]))
        path = store.copy(tmp_path / "torn")
        wal_path(path).write_bytes(torn)
        found = rows(path)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= store.expected(cut if turn % 4 != 3 else last)


@pytest.mark.parametrize("seed", range(6 if FULL else 2))
def test_flipped_bit_in_a_log_is_refused_or_harmless(
    tmp_path: Path, seed: int, figure: Callable[[str], None]
) -> None:
    dice = random.Random(f"flips {seed}")
    store = crashed(tmp_path, dice)
    whole = wal_path(store.folder / "store.db").read_bytes()
    end, acknowledged = store.acknowledged[-1]
    refused = harmless = 0
    for turn in range(200 if FULL else 60):
        flipped = bytearray(whole)
        # Half of them in the last transaction, which has nothing behind it.
        first = store.acknowledged[-2][0] if turn % 2 else 0
        at = dice.randrange(first, len(whole) if turn % 4 == 0 else end)
        flipped[at] ^= 1 << dice.randrange(8)
        path = store.copy(tmp_path / "flipped")
        wal_path(path).write_bytes(flipped)
        try:
            found = rows(path)
        except IntegrityError as error:
            assert "-wal is damaged at byte" in str(error) and "snavio restore" in str(error)
            refused += 1
        else:
            assert at >= end, f"bit of byte {at} of {end} was taken for nothing"
            assert found == list(range(1, acknowledged + 1))
            harmless += 1
    assert refused
    figure(f"flips in a log: {refused} refused, {harmless} behind its end")


def test_ruined_sector_before_a_later_transaction_is_refused(tmp_path: Path) -> None:
    dice = random.Random("ruin")
    store = crashed(tmp_path, dice)
    whole = wal_path(store.folder / "store.db").read_bytes()
    for end, _ in store.acknowledged[:-1]:
        ruined = bytearray(whole)
        at = end - 1024
        ruined[at : at + 512] = dice.randbytes(512)
        path = store.copy(tmp_path / "ruined")
        wal_path(path).write_bytes(ruined)
        with pytest.raises(IntegrityError):
            rows(path)
        # SQLite alone opens it, and says nothing.
        plain = apsw.Connection(str(path), vfs="cksmvfs")
        ((count,),) = plain.execute("SELECT count(*) FROM kept")
        assert count < store.acknowledged[-1][1]
        plain.close()


def test_leftovers_of_a_commit_that_failed_are_no_damage(tmp_path: Path) -> None:
    """Its frames stand behind those of the shorter commit after it, with the same salts and a commit of their own."""
    dice = random.Random("leftovers")
    store = crashed(tmp_path, dice)
    path = store.copy(tmp_path / "left")
    end = store.acknowledged[-1][0]
    connection = opened(path)
    connection.wal_autocheckpoint(0)
    count = store.acknowledged[-1][1]
    log = wal_path(path)
    before = log.read_bytes()
    with connection:
        connection.execute("INSERT INTO kept VALUES (?, ?)", (count + 1, dice.randbytes(30_000)))
    longer = log.read_bytes()
    connection.close()
    # As if the sync had failed: the log as it was, the frames of the long commit behind a short one.
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(store.folder / "store.db", path)
    log.write_bytes(before)
    connection = opened(path)
    connection.wal_autocheckpoint(0)
    with connection:
        connection.execute("INSERT INTO kept VALUES (?, ?)", (count + 1, b"short"))
    shorter = log.read_bytes()
    reached = walk(path).committed_end
    assert end < reached < len(longer)
    shutil.copyfile(path, tmp_path / "store.db")
    connection.close()
    (tmp_path / "store.db-wal").write_bytes(shorter[:reached] + longer[reached:])
    assert walk(tmp_path / "store.db").damaged_at is None
    assert rows(tmp_path / "store.db") == list(range(1, count + 2))


def test_walk_over_a_large_log_takes_little_time(tmp_path: Path, figure: Callable[[str], None]) -> None:
    path = tmp_path / "store.db"
    connection = opened(path)
    connection.wal_autocheckpoint(0)
    with connection:
        for number in range(2000):
            connection.execute("INSERT INTO kept VALUES (?, zeroblob(8000))", (number,))
    began = time.perf_counter()
    assert walk(path).damaged_at is None
    took = time.perf_counter() - began
    size = wal_path(path).stat().st_size
    connection.close()
    figure(f"walk over a log of {size >> 20} MiB: {took * 1000:.0f} ms")
    assert took < 5


def test_reader_that_is_opened_while_the_log_starts_anew_finds_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = MailboxDatabase(tmp_path / "mailbox.db")

    def commit() -> None:
        with database.transaction(undone=lambda: None) as connection:
            connection.execute("INSERT INTO kept VALUES (randomblob(9000))")

    with database.transaction(undone=lambda: None) as connection:
        connection.execute("CREATE TABLE kept (body BLOB)")
    for _ in range(20):
        commit()

    def overtaken(header: bytes) -> WalWalk:
        database.copy_log(at_once=True)
        commit()
        return WalWalk(header)

    monkeypatch.setattr(write_ahead_log, "WalWalk", overtaken)
    pool = database._readers
    try:
        # The second at a time gets a connection of its own, opened beside the writer.
        with pool.reader(), pool.reader() as second:
            assert second.execute("SELECT count(*) > 19 FROM kept").fetchone() == (1,)
    finally:
        database.close()


def test_large_transaction_writes_each_frame_once_and_at_its_commit(tmp_path: Path) -> None:
    """Frames that SQLite writes over within one transaction look, after a kill, as if a bit of them had been hit."""
    path = tmp_path / "store.db"
    connection = opened(path)
    before = wal_path(path).stat().st_size
    with connection:
        for number in range(1500):
            connection.execute("INSERT INTO kept VALUES (?, ?)", (number, bytes(4000)))
        assert wal_path(path).stat().st_size == before
    assert wal_path(path).stat().st_size > before
    connection.close()


def test_empty_store_beside_a_log_is_refused_and_its_log_kept(tmp_path: Path) -> None:
    path = crashed(tmp_path, random.Random("empty")).copy(tmp_path / "empty")
    log = wal_path(path).read_bytes()
    path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="empty"):
        opened(path)
    assert wal_path(path).read_bytes() == log
