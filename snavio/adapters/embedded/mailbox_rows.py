"""The mailbox's tables and what stands in a batch's row beside the place of its bytes.

Never lets a damaged state hide a message: without a state that checks, it is delivered once more.
"""

from __future__ import annotations

import struct
import zlib

from snavio.ports.mailbox_store import BatchRecord, Progress, Retry

APPLICATION_ID = 0x534E4D42
SCHEMA_VERSION = 2

# Batches stand in order of topic, so that a window of a topic is one short read. The index is for compaction:
# without it, moving what is left of a segment would cost a pass over the whole backlog.
CREATE = (
    # The last id outlives the batches: a reused id would let an old receipt settle a new message.
    """CREATE TABLE counters (
        id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, last_batch_id INTEGER NOT NULL
    ) STRICT""",
    "INSERT INTO counters VALUES (1, 0, 0)",
    "CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
    """CREATE TABLE batches (
        topic_id INTEGER NOT NULL, id INTEGER NOT NULL, count INTEGER NOT NULL, unsettled INTEGER NOT NULL,
        segment INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL,
        stored_unix_ns INTEGER NOT NULL, settled BLOB NOT NULL, retries BLOB NOT NULL,
        state_check INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic_id, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX batches_of_segment ON batches (segment)",
    """CREATE TABLE peers (
        peer TEXT NOT NULL, slot INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
        codes BLOB NOT NULL, stored_unix_ns INTEGER NOT NULL, PRIMARY KEY (peer, slot)
    ) STRICT, WITHOUT ROWID""",
)
UNTOUCHED = zlib.crc32(b"")
"""The check of a batch's state when nothing has happened to it."""
_RETRY = struct.Struct("<HHIq")

RecordRow = tuple[int, int, int, int, bytes, bytes, int]


def encode_state(state: Progress) -> tuple[int, bytes, bytes, int]:
    """Columns unsettled, settled, retries and state_check."""
    settled = state.settled.to_bytes((state.count + 7) // 8, "little")
    retries = b"".join(
        _RETRY.pack(retry.first, retry.end, retry.attempt, retry.not_before_unix_ns)
        for retry in state.retries
    )
    return state.count - state.settled.bit_count(), settled, retries, zlib.crc32(settled + retries)


def decode_record(row: RecordRow) -> BatchRecord:
    """From id, count, size, stored_unix_ns, settled, retries and state_check."""
    batch_id, count, size, stored_unix_ns, settled, retries, state_check = row
    if zlib.crc32(settled + retries) != state_check:
        return BatchRecord(batch_id, count, size, stored_unix_ns)
    return BatchRecord(
        batch_id,
        count,
        size,
        stored_unix_ns,
        int.from_bytes(settled, "little"),
        tuple(Retry(*fields) for fields in _RETRY.iter_unpack(retries)),
    )
