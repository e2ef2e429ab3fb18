"""Power cuts: the mailbox's store loses nothing that was acknowledged, and invents nothing."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from snavio.adapters.embedded import mailbox_database
from snavio.adapters.embedded.checksums import RESERVED_BYTES, connect
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.domain.verdict import Verdict
from snavio.errors import IntegrityError
from snavio.native import Sending, replay_keys
from snavio.ports.mailbox_store import Keys, NewBatch, Origin, Progress, Recall, Send
from tests.support.mailbox import commands, send_batch
from tests.support.power import ForgetfulDisk, ForgetfulFiles, on

TOPIC = "acme/billing"
FULL = os.environ.get("SNAVIO_FULL") == "1"
ROUNDS = 6 if FULL else 1
COMMITS = 250
SEGMENT_BYTES = 256 << 10
THREE = Sending.open(send_batch(1, (TOPIC, commands(3)))).topics[0][2]
# Rare operations and the moments between the two layers more often than the many writes of SQLite.
CHANCES = {
    "write": 0.004,
    "sync": 0.02,
    "beside: write": 0.01,
    "beside: sync": 0.05,
    "payload write": 0.02,
    "payload sync": 0.03,
    "create": 0.5,
    "rename": 0.2,
    "folder sync": 0.1,
    "beside: payload write": 0.4,
    "beside: payload sync": 0.4,
    "beside: remove": 0.2,
}


def digest(message: bytes) -> bytes:
    """Replaces BLAKE3."""
    return sha256(message).digest()


@dataclass(frozen=True)
class Promised:
    """Acknowledged batches, and those whose acknowledgement was in progress."""

    stored: dict[int, bytes] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    last_seq: int = 0
    underway: frozenset[int] = frozenset()


def keys_of(store: SqliteMailboxStore, seq: int) -> Keys:
    """Replay keys of the three messages of a send."""
    named = [(f"{seq}-{number}".encode(), b"") for number in range(3)]
    return Keys(replay_keys(store.replay_secret, TOPIC, "acme/shop", named), 300_000)


class Sender:
    """Sends and acknowledges, one batch in ten only in part; `promised` is replaced and never changed."""

    def __init__(self, dice: random.Random) -> None:
        self.promised = Promised()
        self._dice = dice

    def commit(self, store: SqliteMailboxStore) -> None:
        dice, before = self._dice, self.promised
        seq, runs = before.last_seq + 1, dice.randbytes(dice.choice([10, 3000, 10_000, 60_000]))
        alive = [one for one in before.stored if before.settled.get(one) != 0b111]
        going = [one for one in alive if one % 10][:-4]
        states = dict.fromkeys(dice.sample(going, min(len(going), dice.randint(0, 4))), 0b111)
        for one in dice.sample(alive, min(len(alive), 1)):
            states.setdefault(one, before.settled.get(one, 0) | dice.choice([0b001, 0b010]))
        self.promised = replace(before, underway=frozenset(states))
        ((batch_id,),) = store.commit(
            [Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, 3, runs, keys_of(store, seq)),))],
            [Progress(TOPIC, one, 3, state) for one, state in states.items()],
            now_unix_ns=1,
        )
        self.promised = Promised({**before.stored, batch_id: runs}, {**before.settled, **states}, seq)


def work(store: SqliteMailboxStore, sender: Sender) -> None:
    """Commits, with housekeeping beside them until nothing is left to do."""
    ended = threading.Event()
    failures: list[Exception] = []

    def housekeep() -> None:
        try:
            while store.checkpoint() or not ended.wait(0.001):
                pass
        except Exception as error:
            failures.append(error)

    housekeeping = threading.Thread(target=housekeep)
    housekeeping.start()
    try:
        for _ in range(COMMITS):
            sender.commit(store)
    finally:
        ended.set()
        housekeeping.join()
        store.close()
    assert failures == []


def verify(folder: Path, promised: Promised) -> None:
    """A store that starts on the files left by the cut keeps every promise, also after its own housekeeping."""
    store = SqliteMailboxStore(folder / "mailbox.db", digest=digest, segment_bytes=SEGMENT_BYTES)
    try:
        for _ in range(2):
            hold(store, promised)
            while store.checkpoint():
                pass
        if promised.last_seq:
            assert store.recall(Origin("fast/0", 1, promised.last_seq)) is not Recall.NEW
        again = Send(Origin("fast/0", 2, 1), b"", (NewBatch(TOPIC, 3, b"again"),))
        ((batch_id,),) = store.commit([again], [], now_unix_ns=1)
        assert batch_id > max(promised.stored, default=0) and store.read(TOPIC, batch_id) == b"again"
    finally:
        store.close()
    connection = connect(folder / "mailbox.db")
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    assert (folder / "mailbox.db").read_bytes()[20] == RESERVED_BYTES, "the cut went through the checksums"


def hold(store: SqliteMailboxStore, promised: Promised) -> None:
    records = {record.batch_id: record for record in store.pending(TOPIC, after=0, limit=10_000)}
    for batch_id, runs in promised.stored.items():
        state = promised.settled.get(batch_id, 0)
        if batch_id not in promised.underway:  # otherwise either state is right
            assert (batch_id not in records) == (state == 0b111)
            assert batch_id not in records or records[batch_id].settled == state
        if batch_id in records:
            assert store.read(TOPIC, batch_id) == runs
    # Keys outlive their batches: what was acknowledged is not stored a second time after any cut.
    sends = [
        Send(None, bytes(3), (NewBatch(TOPIC, 3, THREE, keys_of(store, seq)),))
        for seq in range(1, promised.last_seq + 1)
    ]
    for found in store.recognise(sends, now_unix_ns=1):
        assert found.send.codes == bytes([Verdict.DUPLICATE]) * 3 and not found.send.batches
    fresh = set(records) - set(promised.stored)
    assert fresh <= {max(promised.stored, default=0) + 1}
    for batch_id in fresh:  # its answer was on its way: if it is there, it is whole
        store.read(TOPIC, batch_id)


def cut_at_many_moments(
    folder: Path,
    *,
    seed: str,
    kind_of_files: type[ForgetfulFiles] = ForgetfulFiles,
    max_bytes: int = 1 << 30,
) -> ForgetfulDisk:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "power") + seed)
    sender, path = Sender(dice), folder / "mailbox.db"
    disk = ForgetfulDisk(dice=dice, chances=CHANCES, witness=lambda: sender.promised)
    # A store that was never opened has promised nothing.
    SqliteMailboxStore(path, digest=digest).close()
    disk.image(str(path)).durable[:] = path.read_bytes()
    with on(disk):
        files = kind_of_files(disk)
        store = SqliteMailboxStore(
            path, digest=digest, segment_bytes=SEGMENT_BYTES, disk=files, max_bytes=max_bytes
        )
        work(store, sender)
    for number, picture in enumerate(disk.pictures):
        left = folder / f"cut-{number}"
        left.mkdir()
        for name, content in picture.files.items():
            (left / name).write_bytes(content)
        try:
            verify(left, picture.said)
        except (AssertionError, IntegrityError) as error:
            raise AssertionError(f"Cut {number}, at a {picture.kind}: {error}") from error
    return disk


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_database, "CHECKPOINT_BYTES", 1 << 17)


@pytest.mark.parametrize(
    ("max_bytes", "reclaimed_by"), [(1 << 30, "rename"), (31 * SEGMENT_BYTES, "beside: remove")]
)
def test_I_1_power_cut_loses_nothing_that_was_acknowledged(
    tmp_path: Path, max_bytes: int, reclaimed_by: str, figure: Callable[[str], None]
) -> None:
    cuts = 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        disk = cut_at_many_moments(folder, seed=str(number), max_bytes=max_bytes)
        cuts += len(disk.pictures)
        assert len(disk.pictures) >= 20
        assert disk.kinds >= {*CHANCES} - {"rename", "beside: remove"} | {reclaimed_by}
    figure(f"{cuts} power cuts ({reclaimed_by}): nothing that was acknowledged is lost")
    assert cuts >= (300 if FULL else 20)


class NeverSynced(ForgetfulFiles):
    """A bug that the test must find: payloads are written and not synced."""

    def sync(self, descriptor: int) -> None:
        pass


class NeverNamed(ForgetfulFiles):
    """Another bug: the folder is not synced."""

    def sync_folder(self, folder: Path) -> None:
        pass


@pytest.mark.parametrize("files", [NeverSynced, NeverNamed])
def test_cut_notices_a_store_that_leaves_a_sync_out(tmp_path: Path, files: type[ForgetfulFiles]) -> None:
    with pytest.raises(AssertionError, match="Cut"):
        cut_at_many_moments(tmp_path, seed="", kind_of_files=files)


def test_cut_tears_a_page_of_sqlite_at_its_sectors(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    disk = ForgetfulDisk(
        dice=random.Random("torn"), chances={"write": 1.0, "sync": 1.0}, witness=lambda: None
    )
    with on(disk):
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE kept (words BLOB)")
        connection.execute("INSERT INTO kept VALUES (?)", (b"\xab" * 3000,))
        logs = [picture.files.get("mailbox.db-wal", b"") for picture in disk.pictures]
        connection.close()
    whole = max(log.count(b"\xab") for log in logs)
    assert whole >= 3000
    assert any(0 < log.count(b"\xab") < whole for log in logs), "a page is there in part"
