"""SQLite stores with page checksums: a flipped bit is detected, and older stores keep working."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra
import pytest
from structlog.testing import capture_logs

from snavio.adapters.embedded.checksums import RESERVED_BYTES
from snavio.adapters.embedded.sqlite import open_store, store_errors
from snavio.errors import IntegrityError, StateError, Unavailable

CREATE = ("CREATE TABLE kept (id INTEGER PRIMARY KEY, words TEXT NOT NULL) STRICT",)
WORDS = [(number, f"word {number} " * 9) for number in range(400)]
FLIPS = 60


def opened(path: Path) -> Any:
    return open_store(path, application_id=7, schema_version=1, create=CREATE)


def filled(path: Path) -> None:
    connection = opened(path)
    connection.executemany("INSERT INTO kept VALUES (?, ?)", WORDS)
    connection.close()


def without_checksums(path: Path) -> None:
    """A store as an earlier Snavio made it."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute(f"{CREATE[0]}; PRAGMA application_id = 7; PRAGMA user_version = 1")
    connection.executemany("INSERT INTO kept VALUES (?, ?)", WORDS)
    connection.close()


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An apsw without its extensions."""

    def missing(_connection: object, name: str) -> None:
        raise apsw.sqlite_extra.NotAvailable(name)

    if "cksmvfs" in apsw.vfs_names():
        apsw.unregister_vfs("cksmvfs")
    monkeypatch.setattr(apsw.sqlite_extra, "load", missing)


def test_flipped_bit_anywhere_is_found_out_or_changes_nothing(tmp_path: Path) -> None:
    path, dice = tmp_path / "kept.db", random.Random("pages")
    filled(path)
    whole = path.read_bytes()
    noticed = 0
    for _ in range(FLIPS):
        flipped = bytearray(whole)
        flipped[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        try:
            with store_errors(path):
                connection = opened(path)
                try:
                    assert connection.execute("SELECT * FROM kept").fetchall() == WORDS
                finally:
                    connection.close()
        except (IntegrityError, StateError):
            noticed += 1
    assert noticed > FLIPS * 9 // 10


def test_store_without_checksums_goes_on_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    without_checksums(path)
    connection = opened(path)
    connection.execute("INSERT INTO kept VALUES (999, 'new')")
    connection.close()
    assert path.read_bytes()[20] == 0
    connection = opened(path)
    assert connection.execute("SELECT count(*) FROM kept").fetchall() == [(len(WORDS) + 1,)]
    connection.close()


@pytest.mark.usefixtures("nothing_loaded")
def test_new_store_is_made_without_checksums_where_there_are_none_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    with capture_logs() as told:
        filled(path)
    assert [(one["log_level"], one["event"]) for one in told] == [("warning", "pages will have no checksums")]
    assert path.read_bytes()[20] == 0


def test_store_with_checksums_is_never_opened_without_them(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "kept.db"
    filled(path)
    before = path.read_bytes()
    assert before[20] == RESERVED_BYTES
    request.getfixturevalue("nothing_loaded")
    with pytest.raises(StateError) as refused:
        opened(path)
    assert refused.value.reason == "no-checksums" and path.read_bytes() == before


def test_what_else_this_process_opens_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path / "kept.db")
    assert apsw.vfs_names()[0] != "cksmvfs"


def test_disk_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(Unavailable), store_errors(tmp_path / "kept.db"):
        raise apsw.IOError("simulated")
