"""The power goes: of what was acknowledged, the mailbox's store has lost nothing and invents nothing."""

from __future__ import annotations

import os
import random
import threading
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from snavio.adapters.embedded import sqlite_mailbox_store
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.ports.mailbox_store import NewBatch, Origin, Progress, Recall, Send
from tests.support.power import ForgetfulDisk, on

TOPIC = "acme/billing"
CUTS = 400 if os.environ.get("SNAVIO_FULL") == "1" else 40
COMMITS = 250


def digest(message: bytes) -> bytes:
    """Stands in for BLAKE3."""
    return sha256(message).digest()


class Promises:
    """What the store has acknowledged so far."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.settled: dict[int, int] = {}
        self.last_seq = 0
        self.underway: set[int] = set()

    def picture(self) -> tuple[dict[int, bytes], dict[int, int], int, set[int]]:
        return dict(self.stored), dict(self.settled), self.last_seq, set(self.underway)


def work(path: Path, promises: Promises, dice: random.Random) -> None:
    """Commits of sends and acknowledgements, with checkpoints beside them."""
    store = SqliteMailboxStore(path, digest=digest)
    ended = threading.Event()

    def checkpoint() -> None:
        while not ended.wait(0.001):
            store.checkpoint()

    housekeeping = threading.Thread(target=checkpoint)
    housekeeping.start()
    try:
        for seq in range(1, COMMITS + 1):
            runs = dice.randbytes(dice.choice([10, 3000, 60_000]))
            alive = [one for one in promises.stored if promises.settled.get(one) != 0b111]
            chosen = dice.sample(alive, min(len(alive), dice.randint(0, 3)))
            states = {
                one: promises.settled.get(one, 0) | dice.choice([0b001, 0b010, 0b111]) for one in chosen
            }
            promises.underway = set(states)
            ((batch_id,),) = store.commit(
                [Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, 3, runs),))],
                [Progress(TOPIC, one, 3, state) for one, state in states.items()],
                now_unix_ns=1,
            )
            promises.stored[batch_id] = runs
            promises.settled.update(states)
            promises.last_seq = seq
            promises.underway = set()
    finally:
        ended.set()
        housekeeping.join()
        store.close()


def test_I_1_power_cut_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (
        ("CHECKPOINT_BYTES", 1 << 18),
        ("RESTART_BYTES", 1 << 20),
        ("TRUNCATE_BYTES", 1 << 21),
    ):
        monkeypatch.setattr(sqlite_mailbox_store, name, size)
    dice = random.Random(os.environ.get("SNAVIO_SEED", "power"))
    promises = Promises()
    # The first operations create the file; a store that was never opened has promised nothing.
    moments = {dice.randint(200, 4000) for _ in range(CUTS)}
    disk = ForgetfulDisk(dice=dice, moments=moments, witness=promises.picture)
    with on(disk):
        work(tmp_path / "mailbox.db", promises, dice)
    assert len(disk.pictures) >= CUTS // 3, disk.operations
    for number, (files, (stored, settled, last_seq, underway)) in enumerate(disk.pictures):
        folder = tmp_path / f"cut-{number}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        store = SqliteMailboxStore(folder / "mailbox.db", digest=digest)
        records = {record.batch_id: record for record in store.pending(TOPIC, after=0, limit=10_000)}
        for batch_id, runs in stored.items():
            state = settled.get(batch_id, 0)
            if batch_id in underway:
                continue  # its last acknowledgement was on its way: either state is right
            assert (batch_id not in records) == (state == 0b111)
            if state != 0b111:
                assert records[batch_id].settled == state
                assert store.read(TOPIC, batch_id) == runs
        assert set(records) - set(stored) <= {max(stored, default=0) + 1}
        if last_seq:
            assert store.recall(Origin("fast/0", 1, last_seq)) is not Recall.NEW
        store.close()
        connection = apsw.Connection(str(folder / "mailbox.db"))
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
