"""A damaged store without a backup: readable rows are kept, and lost rows are listed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from snavio.adapters.embedded.sqlite import open_store
from snavio.adapters.embedded.store_copy import faults_of
from snavio.adapters.embedded.store_rescue import Rescued, rescue
from snavio.adapters.embedded.write_ahead_log import HEADER_BYTES, wal_path, walk
from snavio.errors import IntegrityError
from snavio.launch.processes import MeshProcesses
from tests.support.terminal import snavio

FRAME = 24 + 4096
Rows = dict[tuple[str, Any], object]
SCHEMA = (
    "CREATE TABLE kept (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)",
    "CREATE TABLE named (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX by_value ON named (value)",
)


def opened(path: Path) -> apsw.Connection:
    return open_store(path, application_id=9, schema_version=3, create=SCHEMA)


def rows(path: Path) -> Rows:
    connection = opened(path)
    try:
        found = {("kept", row[0]): row[1] for row in connection.execute("SELECT * FROM kept")}
        return {**found, **{("named", row[0]): row[1] for row in connection.execute("SELECT * FROM named")}}
    finally:
        connection.close()


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Rows]:
    """A store as a kill leaves it: rows in the database, and twenty transactions in the log."""
    path = tmp_path / "live" / "store.db"
    connection = opened(path)
    connection.wal_autocheckpoint(0)
    dice = random.Random("store")

    def commit(number: int) -> None:
        with connection:
            connection.execute("INSERT INTO kept (body) VALUES (?)", (dice.randbytes(700),))
            connection.execute("INSERT OR REPLACE INTO named VALUES (?, ?)", (f"name {number % 30}", number))

    for number in range(60):
        commit(number)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for number in range(60, 80):
        commit(number)
    crashed = tmp_path / "crashed" / "store.db"
    shutil.copytree(path.parent, crashed.parent, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
    connection.close()
    return crashed, rows(path)


def test_one_flipped_bit_of_a_log_is_turned_back(store: tuple[Path, Rows], tmp_path: Path) -> None:
    path, whole = store
    log = bytearray(wal_path(path).read_bytes())
    log[HEADER_BYTES + 3 * FRAME + 2000] ^= 4
    wal_path(path).write_bytes(log)
    with pytest.raises(IntegrityError, match="store rescue"):
        opened(path)
    done = rescue(path, tmp_path / "aside")
    assert "nothing of it is gone" in done.steps[0] and not done.lost
    assert rows(path) == whole
    assert (tmp_path / "aside" / "store.db-wal").read_bytes() == log


@pytest.mark.parametrize("frame", [0, 1, 5, 20, 30])
def test_ruined_page_of_a_log_costs_what_is_told_and_no_more(
    store: tuple[Path, Rows], tmp_path: Path, frame: int
) -> None:
    path, whole = store
    log = bytearray(wal_path(path).read_bytes())
    at = HEADER_BYTES + frame * FRAME + 24
    log[at : at + 512] = random.Random(frame).randbytes(512)
    wal_path(path).write_bytes(log)
    done = rescue(path, tmp_path / "aside")
    assert walk(path).damaged_at is None
    _told_exactly(rows(path), whole, done)


def test_ruined_header_of_a_log_costs_nothing(store: tuple[Path, Rows], tmp_path: Path) -> None:
    path, whole = store
    log = bytearray(wal_path(path).read_bytes())
    log[:HEADER_BYTES] = random.Random(1).randbytes(HEADER_BYTES)
    wal_path(path).write_bytes(log)
    with pytest.raises(IntegrityError):
        opened(path)
    done = rescue(path, tmp_path / "aside")
    assert not done.lost
    assert rows(path) == whole


def test_damaged_page_of_a_database_costs_rows_that_are_told(
    store: tuple[Path, Rows], tmp_path: Path
) -> None:
    path, whole = store
    assert rows(path) == whole  # and the log is in the database
    contents = path.read_bytes()
    dice = random.Random("page")
    hit = 0
    for page in range(1, len(contents) // 4096):
        damaged = bytearray(contents)
        damaged[page * 4096 + dice.randrange(3000, 4000)] ^= 16
        path.write_bytes(damaged)
        if not faults_of(path):
            continue
        done = rescue(path, tmp_path / f"aside {page}")
        hit += bool(done.lost)
        _told_exactly(rows(path), whole, done)
        assert faults_of(path) == []
    assert hit > 5


def _told_exactly(found: Rows, whole: Rows, done: Rescued) -> None:
    """Each changed row is listed, or lies in a listed range."""
    told = {(row.table, row.key[0]) for row in done.lost}
    different = {key for key in found.keys() | whole.keys() if found.get(key) != whole.get(key)}
    for table, key in different - told:
        assert any(
            one.table == table
            and (one.after is None or one.after[0] < key)
            and (one.before is None or key < one.before[0])
            for one in done.stretches
        ), f"{key} of {table} is not what it was, and nobody says so"


def test_command_line_checks_and_rescues_an_installation(tmp_path: Path) -> None:
    processes = MeshProcesses.temporary(tmp_path / "state")
    processes.prepare()
    words = ["--config", str(processes.config), "--state-dir", str(processes.state_dir), "--json"]
    whole = snavio("store", "check", *words, folder=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert {one["store"]: one["whole"] for one in orjson.loads(whole.stdout)["stores"]} == {
        "certificates": True,
        "keys": True,
    }
    nothing = snavio("store", "rescue", *words, folder=tmp_path)
    assert orjson.loads(nothing.stdout) == {"stores": [], "aside": None}
    ledger = processes.state_dir / "signer" / "certificates.db"
    contents = bytearray(ledger.read_bytes())
    contents[-2000] ^= 1
    contents[4096 + 4000] ^= 1
    ledger.write_bytes(contents)
    damaged = snavio("store", "check", *words, folder=tmp_path)
    assert damaged.returncode == 1
    (found,) = [one for one in orjson.loads(damaged.stdout)["stores"] if not one["whole"]]
    assert found["store"] == "certificates" and "checksum" in found["faults"][0]
    rescued = orjson.loads(snavio("store", "rescue", *words, folder=tmp_path).stdout)
    assert rescued["stores"][0]["store"] == "certificates"
    assert (Path(rescued["aside"]) / "rescue.json").exists()
    assert snavio("store", "check", *words, folder=tmp_path).returncode == 0
    keys = processes.state_dir / "signer" / "keys.sealed"
    keys.write_bytes(keys.read_bytes()[:-1] + b"x")
    lost = snavio("store", "rescue", *words, folder=tmp_path)
    assert lost.returncode == 1 and "only a backup brings them back" in lost.stderr


def test_folder_that_is_no_state_folder_is_not_rescued_and_left_as_it_was(tmp_path: Path) -> None:
    for folder in (tmp_path / "letters", tmp_path / "missing"):
        if folder.name == "letters":
            folder.mkdir()
        asked = snavio("store", "rescue", "--state-dir", str(folder), folder=tmp_path)
        assert (asked.returncode, "is no state folder" in asked.stderr) == (4, True), asked
        assert not folder.exists() or not list(folder.iterdir())


def test_store_that_cannot_be_rescued_keeps_no_other_from_it_and_from_the_report(tmp_path: Path) -> None:
    processes = MeshProcesses.temporary(tmp_path / "state")
    processes.prepare()
    ledger = processes.state_dir / "signer" / "certificates.db"
    contents = bytearray(ledger.read_bytes())
    contents[4096 + 4000] ^= 1
    ledger.write_bytes(contents)
    hopeless = processes.state_dir / "registry" / "directory.db"
    hopeless.parent.mkdir(exist_ok=True)
    for ruin in (random.Random("ruin").randbytes(9000), b""):
        hopeless.write_bytes(ruin)
        words = ["--config", str(processes.config), "--state-dir", str(processes.state_dir)]
        assert snavio("store", "check", *words, folder=tmp_path).returncode == 1
        asked = snavio("store", "rescue", *words, folder=tmp_path)
        assert asked.returncode == 1 and "only a backup" in asked.stderr, asked.stderr
        assert not faults_of(ledger)
    assert list(processes.state_dir.glob("damaged-*/rescue.json"))
