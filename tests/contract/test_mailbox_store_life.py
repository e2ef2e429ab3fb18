"""Every MailboxStore keeps ended messages and the clock, and migrates a store of an older schema."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.mailbox_rows import decode_record
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.domain.message import Attempt, AttemptOutcome, MessageEnding, MessageState
from snavio.errors import IntegrityError, NotFound, StateError
from snavio.native import Sending, blake3_digest, slice_runs
from snavio.ports.mailbox_store import (
    EndedMessages,
    MailboxStore,
    NewBatch,
    Origin,
    Progress,
    Retry,
    Send,
)
from tests.support.mailbox import commands, send_batch

NOW = 1_700_000_000_000_000_000
TOPIC = "acme/billing"
HISTORY = (
    Attempt(1, NOW, AttemptOutcome.EXPIRED),
    Attempt(2, NOW + 1, AttemptOutcome.NACKED, "no such user: \u00e4\U0001f600"),
)
DEAD = MessageEnding(MessageState.DEAD, 2, "max-attempts", "no such user", NOW + 2, 77, HISTORY)
CANCELED = MessageEnding(MessageState.CANCELED, 1, "operator", at_unix_ns=NOW)
PURGED = MessageEnding(MessageState.PURGED, 1)


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MailboxStore]:
    one: MailboxStore
    if request.param == "sqlite":
        one = SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)
    else:
        one = MemoryMailboxStore()
    yield one
    one.close()


def append(store: MailboxStore, seq: int, count: int = 4, topic: str = TOPIC) -> int:
    send = Send(Origin("fast/0", 1, seq), b"", (NewBatch(topic, count, b"x"),))
    return store.commit([send], [], now_unix_ns=NOW + seq)[0][0]


def settle(store: MailboxStore, *progress: Progress) -> None:
    store.commit([], progress, now_unix_ns=NOW)


def test_C_4_ends_and_attempt_records_are_kept_to_the_letter(store: MailboxStore) -> None:
    batch_id = append(store, 1)
    state = Progress(
        TOPIC,
        batch_id,
        4,
        0b0110,
        (Retry(0, 1, 3, NOW, HISTORY), Retry(3, 4, 2, revived_age_ns=77)),
        (EndedMessages(1, 2, DEAD), EndedMessages(2, 3, CANCELED)),
        age_ns=5,
    )
    settle(store, state)
    record = store.record(TOPIC, batch_id)
    assert record is not None
    assert (record.settled, record.retries, record.ends, record.age_ns) == (
        0b0110,
        state.retries,
        state.ends,
        5,
    )


def test_C_4_batch_with_dead_messages_stays_when_the_rest_is_acknowledged(store: MailboxStore) -> None:
    batch_id = append(store, 1)
    settle(store, Progress(TOPIC, batch_id, 4, 0b1111, ends=(EndedMessages(1, 3, DEAD),)))
    assert store.pending(TOPIC, after=0, limit=9) == []
    assert [one.batch_id for one in store.records(TOPIC, after=0, limit=9, holding=MessageState.DEAD)] == [
        batch_id
    ]
    (topic,) = store.topics()
    assert (topic.messages, topic.delivered, topic.dead, topic.canceled) == (0, 2, 2, 0)
    settle(store, Progress(TOPIC, batch_id, 4, 0b1111, ends=(EndedMessages(1, 3, PURGED),)))
    assert store.record(TOPIC, batch_id) is None
    with pytest.raises(NotFound):
        store.read(TOPIC, batch_id)


def test_P_9_delivered_batch_is_retained_until_it_is_told_to_go(store: MailboxStore) -> None:
    first, second, third = (append(store, seq) for seq in (1, 2, 3))
    settle(
        store,
        Progress(TOPIC, second, 4, 0b1111, retain=True, age_ns=10),
        Progress(TOPIC, first, 4, 0b1111, retain=True, age_ns=20),
        Progress(TOPIC, third, 4, 0b0111, retain=True),
    )
    assert [(one.batch_id, one.age_ns) for one in store.retained(TOPIC, limit=9)] == [
        (second, 10),
        (first, 20),
    ]
    assert [one.batch_id for one in store.retained(TOPIC, limit=1)] == [second]
    assert [one.batch_id for one in store.pending(TOPIC, after=0, limit=9)] == [third]
    assert store.topics()[0].delivered == 11
    settle(store, Progress(TOPIC, second, 4, 0b1111, forget=True))
    assert [one.batch_id for one in store.retained(TOPIC, limit=9)] == [first]


def test_records_are_listed_by_what_they_hold(store: MailboxStore) -> None:
    ids = [append(store, seq) for seq in range(1, 6)]
    append(store, 9, topic="acme/other")
    settle(
        store,
        Progress(TOPIC, ids[0], 4, 0b1, ends=(EndedMessages(0, 1, DEAD),)),
        Progress(TOPIC, ids[1], 4, 0b1111, ends=(EndedMessages(0, 2, CANCELED),)),
        Progress(TOPIC, ids[2], 4, 0b0001),
    )
    told = {
        state: [one.batch_id for one in store.records(TOPIC, after=0, limit=9, holding=state)]
        for state in (
            None,
            MessageState.READY,
            MessageState.DELIVERED,
            MessageState.DEAD,
            MessageState.CANCELED,
        )
    }
    assert told == {
        None: ids,
        MessageState.READY: [ids[0], *ids[2:]],
        MessageState.DELIVERED: [ids[1], ids[2]],
        MessageState.DEAD: [ids[0]],
        MessageState.CANCELED: [ids[1]],
    }
    assert [one.batch_id for one in store.records(TOPIC, after=ids[1], limit=2)] == ids[2:4]


def test_I_17_age_only_grows(store: MailboxStore) -> None:
    assert store.age() == 0
    store.note_age(100)
    store.note_age(90)
    assert store.age() == 100


def test_I_16_ends_age_and_retained_batches_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest)
    batch_id = append(store, 1)
    settle(
        store, Progress(TOPIC, batch_id, 4, 0b1111, ends=(EndedMessages(1, 3, DEAD),), retain=True, age_ns=3)
    )
    store.note_age(500)
    store.close()
    store = SqliteMailboxStore(path, digest=blake3_digest)
    record = store.record(TOPIC, batch_id)
    assert record is not None and record.ends == (EndedMessages(1, 3, DEAD),)
    assert store.age() == 500
    store.close()


@pytest.mark.parametrize("size", [20, 400])
def test_batch_is_hollowed_out_and_what_is_kept_stays_what_it_was(store: MailboxStore, size: int) -> None:
    sent = commands(50, size=size)
    runs = Sending.open(send_batch(1, (TOPIC, sent))).topics[0][2]
    send = Send(Origin("fast/0", 1, 1), b"", (NewBatch(TOPIC, 50, runs),))
    ((batch_id,),) = store.commit([send], [], now_unix_ns=NOW)
    small = store.rewrite_batch(TOPIC, batch_id, keep=1 << 7 | 1 << 49)
    record = store.record(TOPIC, batch_id)
    assert small is not None and record is not None and record.size == small < len(runs) / 8 + 50 * 20
    left = store.read(TOPIC, batch_id)
    for index in (7, 49):
        assert slice_runs(left, index, 1) == slice_runs(runs, index, 1)
    assert sent[8] not in left
    assert store.rewrite_batch(TOPIC, 999, keep=1) is None


SCHEMA_2 = """
    CREATE TABLE counters (
        id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, last_batch_id INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counters VALUES (1, 5, 2);
    CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
    INSERT INTO topics VALUES (1, 'acme/billing');
    CREATE TABLE batches (
        topic_id INTEGER NOT NULL, id INTEGER NOT NULL, count INTEGER NOT NULL, unsettled INTEGER NOT NULL,
        segment INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL,
        stored_unix_ns INTEGER NOT NULL, settled BLOB NOT NULL, retries BLOB NOT NULL,
        state_check INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic_id, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX batches_of_segment ON batches (segment);
    CREATE TABLE peers (
        peer TEXT NOT NULL, slot INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
        codes BLOB NOT NULL, stored_unix_ns INTEGER NOT NULL, PRIMARY KEY (peer, slot)
    ) STRICT, WITHOUT ROWID;
    PRAGMA application_id = 0x534E4D42;
    PRAGMA user_version = 2;
"""


def test_store_of_schema_2_is_brought_forward_with_everything_in_it(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    digest = blake3_digest(f"{TOPIC}\n2\n3\n".encode() + blake3_digest(b"abc"))
    (tmp_path / "payload-1.seg").write_bytes(b"abc")
    old = apsw.Connection(str(path))
    old.execute(SCHEMA_2)
    # Message 0 is settled, message 1 has attempt 2 before it; the check was made by the older program.
    retries = bytes.fromhex("0100 0200 02000000 0000000000000000")
    values = (b"\x01", retries, 3983864157, digest)
    old.execute("INSERT INTO batches VALUES (1, 2, 3, 2, 1, 0, 3, 9, ?, ?, ?, ?)", values)
    old.execute("INSERT INTO peers VALUES ('fast/fast-0', 3, 77, 67, x'', 9)")
    old.close()
    store = SqliteMailboxStore(path, digest=blake3_digest)
    (record,) = store.pending(TOPIC, after=0, limit=9)
    assert (record.settled, record.retries, record.ends) == (1, (Retry(1, 2, 2),), ())
    assert store.read(TOPIC, 2) == b"abc"
    (topic,) = store.topics()
    assert (topic.messages, topic.delivered, topic.first_batch_id) == (2, 1, 2)
    assert store.recall(Origin("fast/fast-0", 77, 67)) == b"", (
        "its sender may send it again after the upgrade"
    )
    store.close()


def test_newer_store_refuses_this_program(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    SqliteMailboxStore(path, digest=blake3_digest).close()
    connection = connect(path)
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(StateError) as refused:
        SqliteMailboxStore(path, digest=blake3_digest)
    assert refused.value.reason == "newer-store"


@pytest.mark.parametrize(
    "row",
    [
        (1, 2, 3, 4, None, b"", 0, 0, b"", 0),
        (1, 2, 3, 4, b"", b"odd", zlib.crc32(b"odd"), 0, b"", 0),
        (1, 2, 3, 4, b"", b"", zlib.crc32(b"[1"), 0, b"[1", 0),
    ],
)
def test_G_7_row_that_cannot_be_one_is_called_damaged(row: Any) -> None:
    with pytest.raises(IntegrityError, match="batch 1"):
        decode_record(row)
