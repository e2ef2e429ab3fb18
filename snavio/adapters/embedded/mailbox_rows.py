"""The mailbox's tables and what stands in a batch's row beside the place of its bytes.

Never lets a damaged state hide a message: without a state that checks, it is delivered once more.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from snavio.adapters.embedded.sqlite import Migrations
from snavio.domain.message import Attempt, AttemptOutcome, History, MessageEnding, MessageState
from snavio.errors import IntegrityError
from snavio.ports.mailbox_store import BatchRecord, EndedMessages, Progress, Retry

APPLICATION_ID = 0x534E4D42
SCHEMA_VERSION = 10

# What came with schema 3. The indexes hold ended batches only, so that a batch on its way costs nothing here.
LIFE_TABLES = (
    "CREATE INDEX batches_delivered ON batches (topic_id, age_ns, id) "
    "WHERE unsettled = 0 AND dead = 0 AND canceled = 0",
    "CREATE INDEX batches_dead ON batches (topic_id, id) WHERE dead > 0",
    "CREATE INDEX batches_canceled ON batches (topic_id, id) WHERE canceled > 0",
    "CREATE TABLE age (id INTEGER PRIMARY KEY CHECK (id = 1), age_ns INTEGER NOT NULL) STRICT",
    "INSERT INTO age VALUES (1, 0)",
)

# What came with schema 4: the keys of batches that were stored once only. They outlive their batches.
REPLAY_TABLES = (
    "CREATE TABLE replay (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL) STRICT",
    "INSERT INTO replay VALUES (1, randomblob(32))",
    """CREATE TABLE replay_keys (
        batch_id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL,
        keys BLOB NOT NULL, digest BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX replay_keys_ending ON replay_keys (until_ns)",
)

# What came with schema 5: small batches stand here and not in a segment, which costs one sync instead of two.
BODY_TABLES = ("CREATE TABLE bodies (batch_id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",)

# What came with schema 7: the last sends of every life of a process, which its epoch tells apart.
PEER_TABLES = (
    """CREATE TABLE peers (
        peer TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL, seq INTEGER NOT NULL,
        codes BLOB NOT NULL, stored_unix_ns INTEGER NOT NULL, PRIMARY KEY (peer, epoch, slot)
    ) STRICT, WITHOUT ROWID""",
)

# What came with schema 8: in which order messages of a shard were first handed out, for the time after a crash.
ORDER_TABLES = (
    """CREATE TABLE orders (
        topic_id INTEGER NOT NULL, shard INTEGER NOT NULL, deepest INTEGER NOT NULL, beyond INTEGER NOT NULL,
        oldest_id INTEGER NOT NULL, oldest_index INTEGER NOT NULL,
        newest_id INTEGER NOT NULL, newest_index INTEGER NOT NULL, PRIMARY KEY (topic_id, shard)
    ) STRICT, WITHOUT ROWID""",
)

# Batches stand in order of topic, so that a window of a topic is one short read. The index is for compaction:
# without it, moving what is left of a segment would cost a pass over the whole backlog.
CREATE = (
    # The last id outlives the batches: a reused id would let an old receipt settle a new message.
    """CREATE TABLE counters (
        id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, last_batch_id INTEGER NOT NULL,
        commits INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    "INSERT INTO counters (id, epoch, last_batch_id) VALUES (1, 0, 0)",
    "CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
    """CREATE TABLE batches (
        topic_id INTEGER NOT NULL, id INTEGER NOT NULL, count INTEGER NOT NULL, unsettled INTEGER NOT NULL,
        segment INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL,
        stored_unix_ns INTEGER NOT NULL, settled BLOB NOT NULL, retries BLOB NOT NULL,
        state_check INTEGER NOT NULL, digest BLOB NOT NULL,
        delivered INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,
        canceled INTEGER NOT NULL DEFAULT 0, age_ns INTEGER NOT NULL DEFAULT 0,
        notes BLOB NOT NULL DEFAULT x'', sealed INTEGER NOT NULL DEFAULT 0, shard INTEGER NOT NULL DEFAULT 0,
        stored_age_ns INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (topic_id, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX batches_of_segment ON batches (segment)",
    *LIFE_TABLES,
    *REPLAY_TABLES,
    *BODY_TABLES,
    *PEER_TABLES,
    *ORDER_TABLES,
)
STATE_COLUMNS = "unsettled, settled, retries, state_check, delivered, dead, canceled, age_ns, notes"
RECORD_COLUMNS = (
    "id, count, size, stored_unix_ns, settled, retries, state_check, age_ns, notes, shard, stored_age_ns"
)
_RETRY = struct.Struct("<HHIq")
_NOTED_EVERY_NS = 10_000_000_000
"""So much older than it was last noted may a store before schema 9 have been."""

RecordRow = tuple[int, int, int, int, bytes, bytes, int, int, bytes, int, int]


def _bring_2_to_3(connection: Any) -> None:
    for column in ("delivered", "dead", "canceled", "age_ns"):
        connection.execute(f"ALTER TABLE batches ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE batches ADD COLUMN notes BLOB NOT NULL DEFAULT x''")
    connection.execute("UPDATE batches SET delivered = count - unsettled WHERE unsettled < count")
    for statement in LIFE_TABLES:
        connection.execute(statement)
    connection.execute(
        "CREATE TABLE milestones (age_ns INTEGER PRIMARY KEY, batch_id INTEGER NOT NULL) STRICT"
    )


def _bring_3_to_4(connection: Any) -> None:
    for statement in REPLAY_TABLES:
        connection.execute(statement)


def _bring_4_to_5(connection: Any) -> None:
    for column in ("sealed", "shard"):
        connection.execute(f"ALTER TABLE batches ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    for statement in BODY_TABLES:
        connection.execute(statement)


def _bring_5_to_6(_connection: Any) -> None:
    """Notes may say when messages were revived, which an older program could not read; nothing is to be changed."""


def _bring_6_to_7(connection: Any) -> None:
    connection.execute("ALTER TABLE peers RENAME TO peers_6")
    for statement in PEER_TABLES:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO peers SELECT peer, epoch, slot, seq, codes, stored_unix_ns FROM peers_6 ORDER BY peer, epoch, slot"
    )
    connection.execute("DROP TABLE peers_6")


def _bring_7_to_8(connection: Any) -> None:
    for statement in ORDER_TABLES:
        connection.execute(statement)


def _bring_8_to_9(connection: Any) -> None:
    """Batches have an age of their own. Until then milestones told it, so many to the longest retention of any topic:
    batches up to `batch_id` were stored when the store's age was at most `age_ns`."""
    connection.execute("ALTER TABLE batches ADD COLUMN stored_age_ns INTEGER NOT NULL DEFAULT 0")
    connection.execute("CREATE INDEX milestones_by_batch ON milestones (batch_id, age_ns)")
    connection.execute(
        "UPDATE batches SET stored_age_ns = coalesce("
        "(SELECT age_ns FROM milestones WHERE batch_id >= batches.id ORDER BY batch_id, age_ns LIMIT 1), "
        "(SELECT age_ns + ? FROM age))",
        (_NOTED_EVERY_NS,),
    )
    connection.execute("DROP TABLE milestones")


def _bring_9_to_10(connection: Any) -> None:
    """Transactions are counted, so that a start finds out that the last of them are gone."""
    connection.execute("ALTER TABLE counters ADD COLUMN commits INTEGER NOT NULL DEFAULT 0")


MIGRATIONS: Migrations = {
    2: _bring_2_to_3,
    3: _bring_3_to_4,
    4: _bring_4_to_5,
    5: _bring_5_to_6,
    6: _bring_6_to_7,
    7: _bring_7_to_8,
    8: _bring_8_to_9,
    9: _bring_9_to_10,
}


def encode_state(state: Progress) -> tuple[int, bytes, bytes, int, int, int, int, int, bytes]:
    """The values of STATE_COLUMNS."""
    settled = state.settled.to_bytes((state.count + 7) // 8, "little")
    retries = b"".join(
        _RETRY.pack(retry.first, retry.end, retry.attempt, retry.not_before_unix_ns)
        for retry in state.retries
    )
    notes = _encode_notes(state)
    return (
        state.count - state.settled.bit_count(),
        settled,
        retries,
        zlib.crc32(settled + retries + notes),
        state.delivered,
        state.counted(MessageState.DEAD),
        state.counted(MessageState.CANCELED),
        state.age_ns,
        notes,
    )


def encode_delay(count: int, not_before_unix_ns: int) -> tuple[bytes, int]:
    """Columns retries and state_check of a batch that is not to be delivered at once."""
    retries = _RETRY.pack(0, count, 1, not_before_unix_ns) if not_before_unix_ns else b""
    return retries, zlib.crc32(retries)


def decode_record(row: RecordRow) -> BatchRecord:
    """From the values of RECORD_COLUMNS. IntegrityError for what no Snavio wrote."""
    try:
        return _decode_record(row)
    except (TypeError, ValueError, struct.error) as error:
        # A column that was hit can read as NULL or as another type, whatever the schema says.
        raise IntegrityError(f"The row of batch {row[0]} is damaged.") from error


def _decode_record(row: RecordRow) -> BatchRecord:
    (
        batch_id,
        count,
        size,
        stored_unix_ns,
        settled,
        retries,
        state_check,
        age_ns,
        notes,
        shard,
        stored_age_ns,
    ) = row
    if zlib.crc32(settled + retries + notes) != state_check:
        return BatchRecord(batch_id, count, size, stored_unix_ns, shard=shard, stored_age_ns=stored_age_ns)
    ends, histories, revived = _decode_notes(notes)
    return BatchRecord(
        batch_id,
        count,
        size,
        stored_unix_ns,
        int.from_bytes(settled, "little"),
        tuple(
            Retry(first, end, attempt, not_before, histories.get(first, ()), revived.get(first, 0))
            for first, end, attempt, not_before in _RETRY.iter_unpack(retries)
        ),
        ends,
        age_ns,
        shard,
        stored_age_ns,
    )


def _encode_notes(state: Progress) -> bytes:
    """Ends, histories, revivals. Seldom, and for people: text, so that a person with the file at hand can read them."""
    ends = [
        [one.first, one.end, *_encode_ending(one.ending), _encode_history(one.ending.history)]
        for one in state.ends
    ]
    histories = [[one.first, _encode_history(one.history)] for one in state.retries if one.history]
    revived = [[one.first, one.revived_age_ns] for one in state.retries if one.revived_age_ns]
    if not ends and not histories and not revived:
        return b""
    return json.dumps([ends, histories, revived], separators=(",", ":")).encode()


def _encode_ending(ending: MessageEnding) -> list[Any]:
    return [
        int(ending.state),
        ending.attempt,
        ending.reason,
        ending.last_error,
        ending.at_unix_ns,
        ending.age_ns,
    ]


def _encode_history(history: History) -> list[list[Any]]:
    return [[one.attempt, one.at_unix_ns, int(one.outcome), one.reason] for one in history]


def _decode_notes(notes: bytes) -> tuple[tuple[EndedMessages, ...], dict[int, History], dict[int, int]]:
    if not notes:
        return (), {}, {}
    ends, histories, *revived = json.loads(notes)  # stores before schema 6 had no third part
    return (
        tuple(_decode_end(one) for one in ends),
        {first: _decode_history(one) for first, one in histories},
        dict(revived[0]) if revived else {},
    )


def _decode_end(one: list[Any]) -> EndedMessages:
    first, end, state, attempt, reason, last_error, at_unix_ns, age_ns, history = one
    ending = MessageEnding(
        MessageState(state), attempt, reason, last_error, at_unix_ns, age_ns, _decode_history(history)
    )
    return EndedMessages(first, end, ending)


def _decode_history(history: list[list[Any]]) -> History:
    return tuple(Attempt(attempt, at, AttemptOutcome(outcome), why) for attempt, at, outcome, why in history)
