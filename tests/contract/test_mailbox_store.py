"""The promises of every `MailboxStore`, for each adapter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw
import pytest

from snavio.adapters.embedded import mailbox_database
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.errors import IntegrityError, NotFound, Saturated, StateError
from snavio.ports.mailbox_store import (
    MAX_SENDERS,
    RESEND_NS,
    MailboxStore,
    NewBatch,
    OrderMark,
    Origin,
    Progress,
    Recall,
    Retry,
    Send,
)

NOW = 1_700_000_000_000_000_000
TOPIC = "acme/billing"
Opened = Callable[..., MailboxStore]


def digest(message: bytes) -> bytes:
    """Replaces BLAKE3: the store only needs 32 bytes that change with the message."""
    return blake2b(message, digest_size=32).digest()


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    stores: list[MailboxStore] = []

    def open_one(**options: Any) -> MailboxStore:
        store: MailboxStore
        if request.param == "sqlite":
            store = SqliteMailboxStore(tmp_path / "mailbox.db", digest=digest, **options)
        else:
            store = MemoryMailboxStore(**options)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opened) -> MailboxStore:
    return opened()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mailbox.db"


def send(
    *batches: NewBatch, seq: int = 1, epoch: int = 1, peer: str = "fast/fast-0", codes: bytes = b""
) -> Send:
    return Send(Origin(peer, epoch, seq), codes, batches)


def append(store: MailboxStore, *batches: NewBatch, seq: int = 1) -> tuple[int, ...]:
    return store.commit([send(*batches, seq=seq)], [], now_unix_ns=NOW)[0]


def test_committed_batch_is_read_back_byte_for_byte(store: MailboxStore) -> None:
    runs = bytes(range(256)) * 2000
    (batch_id,) = append(store, NewBatch(TOPIC, 1000, runs))
    assert store.read(TOPIC, batch_id) == runs


def test_ids_grow_in_the_order_given_across_topics(store: MailboxStore) -> None:
    ids = store.commit(
        [
            send(NewBatch("acme/a", 1, b"1"), NewBatch("acme/b", 1, b"2")),
            send(NewBatch("acme/a", 1, b"3"), seq=2),
        ],
        [],
        now_unix_ns=NOW,
    )
    flat = [batch_id for group in ids for batch_id in group]
    assert flat == sorted(set(flat)) and [len(group) for group in ids] == [2, 1]


def test_pending_lists_a_topic_in_order_and_in_windows(store: MailboxStore) -> None:
    ids = [
        append(store, NewBatch(TOPIC, 2, b"x"), NewBatch("acme/other", 1, b"y"), seq=n)[0] for n in range(5)
    ]
    first = store.pending(TOPIC, after=0, limit=3)
    rest = store.pending(TOPIC, after=first[-1].batch_id, limit=3)
    assert [record.batch_id for record in first + rest] == ids
    assert {(record.count, record.size, record.stored_unix_ns) for record in first} == {(2, 1, NOW)}


def test_progress_is_kept_and_the_last_of_several_holds(store: MailboxStore) -> None:
    (batch_id,) = append(store, NewBatch(TOPIC, 10, b"x"))
    retries = (Retry(4, 6, 2, NOW + 5), Retry(8, 9, 3))
    store.commit(
        [],
        [Progress(TOPIC, batch_id, 10, 0b1), Progress(TOPIC, batch_id, 10, 0b1011, retries)],
        now_unix_ns=NOW,
    )
    (record,) = store.pending(TOPIC, after=0, limit=9)
    assert (record.settled, record.retries) == (0b1011, retries)
    assert store.topics()[0].messages == 7


def test_C_5_marks_of_the_order_are_kept_by_shard_and_end_with_their_topic(store: MailboxStore) -> None:
    first, second = append(store, NewBatch(TOPIC, 3, b"abc"), NewBatch(TOPIC, 2, b"de", shard=4))
    marks = [OrderMark(0, 7), OrderMark(4, 3, 9, (1, 0), (2, 2)), OrderMark(0, 8, 5, (1, 1), (1, 3))]
    store.commit(
        [],
        [
            Progress(TOPIC, first, 3, 1, order=marks[0]),
            Progress(TOPIC, second, 2, 0, order=marks[1]),
            Progress(TOPIC, first, 3, 3, order=marks[2]),
            Progress(TOPIC, first, 3, 7),
            Progress("nobody/knows", first, 3, 0, order=marks[0]),
        ],
        now_unix_ns=NOW,
    )
    (topic,) = store.topics()
    assert sorted(topic.order, key=lambda one: one.shard) == [marks[2], marks[1]]
    store.commit([], [Progress(TOPIC, second, 2, 3)], now_unix_ns=NOW)
    assert store.drop_topics([TOPIC]) == [TOPIC]
    append(store, NewBatch(TOPIC, 3, b"abc"), seq=2)
    (topic,) = store.topics()
    assert topic.order == ()


def test_batch_whose_messages_are_all_settled_is_gone(store: MailboxStore) -> None:
    (batch_id,) = append(store, NewBatch(TOPIC, 3, b"x"))
    store.commit([], [Progress(TOPIC, batch_id, 3, 0b111)], now_unix_ns=NOW)
    assert store.pending(TOPIC, after=0, limit=9) == []
    assert [(topic.topic, topic.messages) for topic in store.topics()] == [(TOPIC, 0)]
    with pytest.raises(NotFound):
        store.read(TOPIC, batch_id)


def test_progress_of_an_unknown_batch_or_topic_does_nothing(store: MailboxStore) -> None:
    store.commit([], [Progress("acme/none", 7, 1, 1), Progress(TOPIC, 7, 2, 1)], now_unix_ns=NOW)
    assert store.pending(TOPIC, after=0, limit=9) == []


def test_batch_is_not_found_under_another_topic(store: MailboxStore) -> None:
    (batch_id,) = append(store, NewBatch(TOPIC, 1, b"x"))
    append(store, NewBatch("acme/other", 1, b"y"), seq=2)
    with pytest.raises(NotFound):
        store.read("acme/other", batch_id)


def test_send_that_comes_again_is_recalled_with_its_outcome(store: MailboxStore) -> None:
    store.commit([send(NewBatch(TOPIC, 2, b"x"), seq=9, codes=b"\x01\x46")], [], now_unix_ns=NOW)
    assert store.recall(Origin("fast/fast-0", 1, 9)) == b"\x01\x46"
    assert store.recall(Origin("fast/fast-0", 1, 10)) is Recall.NEW
    assert store.recall(Origin("fast/fast-0", 2, 9)) is Recall.NEW
    assert store.recall(Origin("slow/fast-0", 1, 9)) is Recall.NEW


def test_send_older_than_the_record_is_forgotten_and_never_called_new(store: MailboxStore) -> None:
    store.commit([send(NewBatch(TOPIC, 1, b"x"), seq=5 + 64)], [], now_unix_ns=NOW)
    assert store.recall(Origin("fast/fast-0", 1, 5)) is Recall.FORGOTTEN


def test_epochs_are_told_apart_and_not_put_in_order(store: MailboxStore) -> None:
    # A clock that was set back gives the process that starts after it the smaller epoch.
    store.commit([send(NewBatch(TOPIC, 1, b"x"), seq=7, epoch=2)], [], now_unix_ns=NOW)
    assert store.recall(Origin("fast/fast-0", 1, 7)) is Recall.NEW
    store.commit([send(NewBatch(TOPIC, 1, b"y"), seq=7, epoch=1, codes=b"\x01")], [], now_unix_ns=NOW)
    assert store.recall(Origin("fast/fast-0", 1, 7)) == b"\x01"
    # The process before it may still have a resend under way.
    assert store.recall(Origin("fast/fast-0", 2, 7)) == b""


def test_resend_is_recalled_however_many_peers_sent_since(store: MailboxStore) -> None:
    for number in range(300):
        batch = NewBatch(TOPIC, 1, b"x")
        store.commit([send(batch, peer=f"fast/fast-{number}")], [], now_unix_ns=NOW + number)
    assert store.recall(Origin("fast/fast-0", 1, 1)) == b""
    assert store.recall(Origin("fast/fast-299", 1, 1)) == b""


def test_record_of_a_sender_ends_when_no_resend_of_it_can_come(store: MailboxStore) -> None:
    store.commit([send(NewBatch(TOPIC, 1, b"x"))], [], now_unix_ns=NOW)
    other = send(NewBatch(TOPIC, 1, b"x"), peer="fast/fast-1")
    store.commit([other], [], now_unix_ns=NOW + RESEND_NS - 1)
    assert store.recall(Origin("fast/fast-0", 1, 1)) == b""
    store.commit([send(NewBatch(TOPIC, 1, b"x"), peer="fast/fast-2")], [], now_unix_ns=NOW + RESEND_NS + 1)
    assert store.recall(Origin("fast/fast-0", 1, 1)) is Recall.NEW
    assert store.recall(Origin("fast/fast-1", 1, 1)) == b""


def test_full_record_refuses_a_stranger_and_forgets_nobody(store: MailboxStore) -> None:
    sends = [send(NewBatch(TOPIC, 1, b"x"), epoch=number) for number in range(1, MAX_SENDERS + 1)]
    store.commit(sends, [], now_unix_ns=NOW)
    assert store.recall(Origin("fast/fast-0", MAX_SENDERS + 1, 1)) is Recall.FULL
    assert store.recall(Origin("fast/fast-0", 1, 2)) is Recall.NEW
    assert store.recall(Origin("fast/fast-0", 1, 1)) == b""


def test_rows_of_forgotten_senders_are_gone_and_those_of_the_rest_outlive_a_restart(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    for number in range(3):
        batch = send(NewBatch(TOPIC, 1, b"x"), peer=f"fast/fast-{number}")
        store.commit([batch], [], now_unix_ns=NOW + number * RESEND_NS * 2 // 3)
    store.close()
    with sqlite3.connect(path) as database:
        kept = database.execute("SELECT DISTINCT peer FROM peers ORDER BY peer").fetchall()
    assert kept == [("fast/fast-1",), ("fast/fast-2",)]
    # Whatever the wall clock says after the restart, a resend may come for as long again.
    store = SqliteMailboxStore(path, digest=digest)
    later = NOW + 100 * RESEND_NS
    store.commit([send(NewBatch(TOPIC, 1, b"x"), peer="fast/fast-3")], [], now_unix_ns=later)
    assert store.recall(Origin("fast/fast-1", 1, 1)) == b""
    store.commit(
        [send(NewBatch(TOPIC, 1, b"x"), seq=2, peer="fast/fast-3")], [], now_unix_ns=later + RESEND_NS + 1
    )
    assert store.recall(Origin("fast/fast-1", 1, 1)) is Recall.NEW
    assert store.recall(Origin("fast/fast-3", 1, 1)) == b""
    store.close()


def test_full_store_takes_nothing_of_the_commit_and_still_reads_and_settles(opened: Opened) -> None:
    store = opened(max_bytes=3 << 20)
    (kept,) = append(store, NewBatch(TOPIC, 1, bytes(1 << 20)))
    with pytest.raises(Saturated):
        store.commit(
            [send(NewBatch("acme/new", 1, b"small"), seq=2), send(NewBatch(TOPIC, 1, bytes(4 << 20)), seq=3)],
            [Progress(TOPIC, kept, 1, 1)],
            now_unix_ns=NOW,
        )
    assert len(store.read(TOPIC, kept)) == 1 << 20
    assert store.recall(Origin("fast/fast-0", 1, 2)) is Recall.NEW
    assert [topic.topic for topic in store.topics()] == [TOPIC]
    store.commit([], [Progress(TOPIC, kept, 1, 1)], now_unix_ns=NOW)
    (again,) = append(store, NewBatch("acme/new", 1, bytes(1 << 20)), seq=4)
    assert again > kept and len(store.read("acme/new", again)) == 1 << 20


def test_I_1_everything_committed_is_there_after_reopening(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    (done, half) = append(store, NewBatch(TOPIC, 2, b"done"), NewBatch(TOPIC, 2, b"half"))
    states = [Progress(TOPIC, done, 2, 0b11), Progress(TOPIC, half, 2, 0b01, (Retry(1, 2, 4, NOW),))]
    store.commit([send(NewBatch(TOPIC, 1, b"last"), seq=2, codes=b"\x01")], states, now_unix_ns=NOW)
    store.close()
    store = SqliteMailboxStore(path, digest=digest)
    first, last = store.pending(TOPIC, after=0, limit=9)
    assert (first.batch_id, first.settled, first.retries) == (half, 0b01, (Retry(1, 2, 4, NOW),))
    assert store.read(TOPIC, last.batch_id) == b"last"
    assert store.recall(Origin("fast/fast-0", 1, 1)) == b""
    assert store.recall(Origin("fast/fast-0", 1, 2)) == b"\x01"
    store.close()


def test_C_5_marks_of_the_order_outlive_a_restart(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    (batch_id,) = append(store, NewBatch(TOPIC, 3, b"abc"))
    mark = OrderMark(0, 8, 5, (1, 1), (1, 3))
    store.commit([], [Progress(TOPIC, batch_id, 3, 7, order=mark)], now_unix_ns=NOW)
    store.close()
    again = SqliteMailboxStore(path, digest=digest)
    (topic,) = again.topics()
    assert topic.order == (mark,)
    again.close()


def test_ids_are_not_used_again_after_everything_was_settled_and_reopened(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    (gone,) = append(store, NewBatch(TOPIC, 1, b"x"))
    store.commit([], [Progress(TOPIC, gone, 1, 1)], now_unix_ns=NOW)
    store.close()
    store = SqliteMailboxStore(path, digest=digest)
    assert append(store, NewBatch(TOPIC, 1, b"y"), seq=2)[0] > gone
    store.close()


def test_boot_epoch_grows_even_when_the_clock_went_back(path: Path) -> None:
    epochs = []
    for now in (NOW, NOW - 10**12, NOW):
        store = SqliteMailboxStore(path, digest=digest)
        epochs.append(store.begin_epoch(now))
        store.close()
    assert epochs[0] == NOW and epochs[0] < epochs[1] < epochs[2]


def test_store_has_one_owner(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    with pytest.raises(StateError):
        SqliteMailboxStore(path, digest=digest)
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE batches SET offset = 1 WHERE id = 1",
        "UPDATE batches SET offset = 9 WHERE id = 1",
        "UPDATE batches SET size = 4 WHERE id = 1",
        "UPDATE batches SET segment = 7 WHERE id = 1",
        "UPDATE batches SET count = 3 WHERE id = 1",
        "UPDATE topics SET name = 'acme/other'",
        "UPDATE batches SET offset = (SELECT offset FROM batches WHERE id = 2) WHERE id = 1",
        "UPDATE bodies SET body = (SELECT body FROM bodies WHERE batch_id = 2) WHERE batch_id = 1",
        "DELETE FROM bodies WHERE batch_id = 1",
        "UPDATE batches SET shard = 1 WHERE id = 1",
        "UPDATE batches SET digest = zeroblob(32) WHERE id = 1",
    ],
)
def test_I_12_bytes_that_are_not_what_was_stored_are_never_handed_out(path: Path, damage: str) -> None:
    inline = 1000 if "bodies" in damage else 0
    store = SqliteMailboxStore(path, digest=digest, inline_bytes=inline)
    append(store, NewBatch(TOPIC, 2, b"one"), NewBatch(TOPIC, 2, b"two"))
    store.close()
    connection = connect(path)
    connection.execute(damage)
    connection.close()
    store = SqliteMailboxStore(path, digest=digest)
    with pytest.raises(IntegrityError):
        store.read(store.topics()[0].topic, 1)
    store.close()


def test_damaged_state_of_a_batch_hides_no_message(path: Path) -> None:
    store = SqliteMailboxStore(path, digest=digest)
    (batch_id,) = append(store, NewBatch(TOPIC, 8, b"x"))
    store.commit([], [Progress(TOPIC, batch_id, 8, 0b1)], now_unix_ns=NOW)
    store.close()
    connection = connect(path)
    connection.execute("UPDATE batches SET settled = x'7f'")
    connection.close()
    store = SqliteMailboxStore(path, digest=digest)
    assert store.pending(TOPIC, after=0, limit=1)[0].settled == 0
    store.close()


def test_stranger_who_reads_the_file_holds_up_neither_commits_nor_later_checkpoints(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_database, "CHECKPOINT_BYTES", 1 << 16)
    store = SqliteMailboxStore(path, digest=digest)
    append(store, NewBatch(TOPIC, 1, b"x"))
    stranger = apsw.Connection(str(path))
    stranger.execute("BEGIN")
    stranger.execute("SELECT count(*) FROM batches").fetchall()
    for seq in range(2, 20):
        append(store, NewBatch(TOPIC, 1, b"x"), seq=seq)
        store.checkpoint()
    assert store._database.log_bytes > 1 << 16
    stranger.close()
    store.checkpoint()
    append(store, NewBatch(TOPIC, 1, b"x"), seq=20)
    assert store._database.log_bytes < 1 << 16
    store.close()


def test_files_do_not_grow_with_what_was_ever_sent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_database, "CHECKPOINT_BYTES", 1 << 18)
    store = SqliteMailboxStore(path, digest=digest, segment_bytes=1 << 20)
    alive: list[int] = []
    for seq in range(400):
        done = [Progress(TOPIC, alive.pop(), 1000, (1 << 1000) - 1)] if alive else []
        batch = NewBatch(TOPIC, 1000, bytes(45_000))
        alive += store.commit([send(batch, seq=seq)], done, now_unix_ns=NOW)[0]
        store.checkpoint()
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 6 << 20
    store.close()
