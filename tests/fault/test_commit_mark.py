"""A mailbox whose last acknowledged transactions are gone does not start, whatever took them; a torn end does."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.commit_mark import mark_path, read_mark
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.embedded.store_copy import lost_commits
from snavio.adapters.embedded.store_rescue import rescue
from snavio.adapters.embedded.write_ahead_log import wal_path, walk
from snavio.errors import IntegrityError
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import NewBatch, Progress, Send

TOPIC = "acme/own/orders"
FRAME = 24 + 4096


def opened(path: Path) -> SqliteMailboxStore:
    return SqliteMailboxStore(path, digest=blake3_digest)


def send(store: SqliteMailboxStore, runs: bytes) -> int:
    ((batch_id,),) = store.commit([Send(None, b"", (NewBatch(TOPIC, 1, runs),))], [], now_unix_ns=1)
    return batch_id


def settle(store: SqliteMailboxStore, batch_id: int) -> None:
    store.commit([], [Progress(TOPIC, batch_id, 1, 1)], now_unix_ns=1)


@dataclass(frozen=True)
class Killed:
    """The files of a mailbox that was killed: its log after the last transaction but one, and at the end."""

    path: Path
    stored: list[int]
    before_last: int
    mark_before_last: bytes

    def ids(self) -> list[int]:
        store = opened(self.path)
        try:
            return [one.batch_id for one in store.pending(TOPIC, after=0, limit=100)]
        finally:
            store.close()


def killed(folder: Path, *, last: str, copied: bool = True) -> Killed:
    """After commits whose `last` is a send or an acknowledgement. With `copied` earlier ones are in the database."""
    live = folder / "live" / "mailbox.db"
    store = opened(live)
    store.begin_epoch(1)
    # A small body stands in SQLite, a large one in a segment.
    stored = [send(store, bytes([number]) * (100 if number % 2 else 20_000)) for number in range(6)]
    if copied:
        store._database.copy_log(at_once=True)
    stored += [send(store, b"small"), send(store, b"large" * 4000)]
    before, mark = walk(live).committed_end, mark_path(live).read_bytes()
    if last == "send":
        stored.append(send(store, b"the last"))
    else:
        settle(store, stored.pop(0))
    shutil.copytree(live.parent, folder / "killed", ignore=shutil.ignore_patterns("*-shm", "*.lock"))
    store.close()
    return Killed(folder / "killed" / "mailbox.db", stored, before, mark)


def ruin(path: Path, first: int, end: int) -> None:
    contents = bytearray(wal_path(path).read_bytes())
    contents[first:end] = random.Random(first).randbytes(end - first)
    wal_path(path).write_bytes(contents)


@pytest.mark.parametrize("last", ["send", "acknowledgement"])
def test_mailbox_that_was_killed_opens_with_everything(tmp_path: Path, last: str) -> None:
    found = killed(tmp_path, last=last)
    assert found.ids() == found.stored
    # And after a clean stop, which leaves no log.
    assert not wal_path(found.path).exists()
    assert found.ids() == found.stored


@pytest.mark.parametrize("last", ["send", "acknowledgement"])
@pytest.mark.parametrize("place", ["head", "page", "two pages"])
def test_ruin_of_several_bits_in_the_last_transaction_is_refused(
    tmp_path: Path, last: str, place: str
) -> None:
    found = killed(tmp_path, last=last)
    first = found.before_last + (4 if place == "head" else 1000)
    ruin(found.path, first, first + (8 if place == "head" else 30))
    if place == "two pages":
        ruin(found.path, first + FRAME, first + FRAME + 30)
    log = wal_path(found.path).read_bytes()
    with pytest.raises(IntegrityError, match=r"-wal is damaged at byte .* `snavio store rescue`"):
        opened(found.path)
    assert wal_path(found.path).read_bytes() == log, "what could still be read of it is kept"


def _delete(log: Path, _: Killed) -> None:
    log.unlink()


def _empty(log: Path, _: Killed) -> None:
    log.write_bytes(b"")


def _zero(log: Path, _: Killed) -> None:
    log.write_bytes(bytes(log.stat().st_size))


def _cut(log: Path, found: Killed) -> None:
    log.write_bytes(log.read_bytes()[: found.before_last + FRAME // 2])


def _older(log: Path, found: Killed) -> None:
    """The log of another moment, such as one that was copied back by itself."""
    log.write_bytes(log.read_bytes()[: found.before_last])


@pytest.mark.parametrize("last", ["send", "acknowledgement"])
@pytest.mark.parametrize("lose", [_delete, _empty, _zero, _cut, _older])
def test_log_that_is_gone_is_noticed(tmp_path: Path, last: str, lose: Callable[[Path, Killed], None]) -> None:
    found = killed(tmp_path, last=last)
    lose(wal_path(found.path), found)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r"is damaged.*acknowledged.*`snavio restore`"):
            opened(found.path)


@pytest.mark.parametrize("left", [b"", None])
def test_database_that_is_emptied_or_deleted_after_a_clean_stop_is_not_made_anew(
    tmp_path: Path, left: bytes | None
) -> None:
    found = killed(tmp_path, last="send")
    assert found.ids() == found.stored
    found.path.unlink()
    if left is not None:
        found.path.write_bytes(left)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=f"is {'missing' if left is None else 'empty'}"):
            opened(found.path)
    assert found.path.exists() == (left is not None)
    # Whoever means it says so.
    mark_path(found.path).unlink()
    opened(found.path).close()


def test_torn_end_that_was_never_acknowledged_passes(tmp_path: Path) -> None:
    found = killed(tmp_path, last="send")
    whole = wal_path(found.path).read_bytes()
    kept = found.path.read_bytes()
    dice = random.Random("torn")
    for _ in range(12):
        # Killed, or without power, after the frames were written and before the mark was.
        found.path.write_bytes(kept)
        mark_path(found.path).write_bytes(found.mark_before_last)
        cut = dice.randrange(found.before_last, len(whole))
        wal_path(found.path).write_bytes(whole[:cut])
        assert found.ids()[: len(found.stored) - 1] == found.stored[:-1]
    found.path.write_bytes(kept)
    mark_path(found.path).write_bytes(found.mark_before_last)
    wal_path(found.path).write_bytes(whole)
    assert found.ids() == found.stored, "stored and not answered: either is right, and it is there"


def test_mark_that_is_torn_missing_or_damaged_keeps_no_mailbox_from_starting(tmp_path: Path) -> None:
    found = killed(tmp_path, last="send")
    whole = mark_path(found.path).read_bytes()
    for mark in (b"", bytes(len(whole)), whole[:-1], whole[:9] + b"?" + whole[10:]):
        mark_path(found.path).write_bytes(mark)
        assert read_mark(found.path).commits == 0
        assert found.ids() == found.stored
    mark_path(found.path).unlink()
    assert found.ids() == found.stored


def test_another_program_may_read_a_killed_mailbox_and_put_its_log_into_the_database(tmp_path: Path) -> None:
    found = killed(tmp_path, last="acknowledgement")
    connection = connect(found.path)
    assert connection.execute("SELECT count(*) FROM batches").fetchone() == (len(found.stored),)
    connection.close()
    assert not wal_path(found.path).exists(), "SQLite deletes the log after the last one has left"
    assert found.ids() == found.stored


def test_every_moment_of_a_log_that_starts_anew_opens_with_it_and_not_without_it(tmp_path: Path) -> None:
    live, copy = tmp_path / "live" / "mailbox.db", tmp_path / "copy" / "mailbox.db"
    store, dice, stored, refused = opened(live), random.Random("moments"), list[int](), 0
    for number in range(60):
        if dice.random() < 0.3:
            store._database.copy_log(at_once=True)
        if stored and dice.random() < 0.4:
            settle(store, stored.pop(0))
        else:
            stored.append(send(store, dice.randbytes(dice.choice([10, 9000]))))
        for with_log in (True, False):
            shutil.rmtree(copy.parent, ignore_errors=True)
            left_out = ("*-shm", "*.lock") if with_log else ("*-shm", "*.lock", "*-wal")
            shutil.copytree(live.parent, copy.parent, ignore=shutil.ignore_patterns(*left_out))
            if with_log:
                assert Killed(copy, stored, 0, b"").ids() == stored, number
                continue
            with pytest.raises(IntegrityError):
                opened(copy)
            refused += 1
    store.close()
    assert refused == 60


def test_rescue_brings_back_a_last_transaction_whose_pages_are_whole(tmp_path: Path) -> None:
    found = killed(tmp_path, last="send")
    ruin(found.path, found.before_last + 16, found.before_last + 24)
    done = rescue(found.path, tmp_path / "aside")
    assert done.steps and "nothing of it is gone" in done.steps[0]
    assert lost_commits(found.path) == 0
    assert found.ids() == found.stored
    assert (tmp_path / "aside" / "mailbox.db-mark").exists()


@pytest.mark.parametrize("last", ["send", "acknowledgement"])
def test_rescue_says_how_many_transactions_are_gone_with_a_log(tmp_path: Path, last: str) -> None:
    found = killed(tmp_path, last=last)
    wal_path(found.path).unlink()
    assert lost_commits(found.path) == 3
    done = rescue(found.path, tmp_path / "aside")
    assert done.steps == ["the last 3 transactions that mailbox.db-mark counts are gone, and cannot be named"]
    assert len(found.ids()) == 6
    assert found.ids() == found.ids(), "and it starts from now on"


def test_rescue_of_ruined_pages_tells_what_is_gone(tmp_path: Path) -> None:
    found = killed(tmp_path, last="send")
    end = wal_path(found.path).stat().st_size
    for frame in range(found.before_last, end, FRAME):
        ruin(found.path, frame + 500, frame + 600)
    done = rescue(found.path, tmp_path / "aside")
    assert any("was cut at byte" in step for step in done.steps)
    assert any("the last 1 transactions" in step for step in done.steps)
    assert found.ids() == found.stored[:-1]


def test_note_that_cannot_be_written_costs_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mailbox.db"
    store = opened(path)
    first = send(store, b"one")

    def full(*_: object) -> int:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("snavio.adapters.embedded.commit_mark.os.pwrite", full)
        second = send(store, b"two")
    store.close()
    assert Killed(path, [], 0, b"").ids() == [first, second]
    # The count in the database went on, so that the next note is right again.
    with apsw.Connection(str(path), vfs="cksmvfs") as plain:
        assert plain.execute("SELECT commits FROM counters").fetchone() == (2,)
