"""Typed face of the Rust extension. `snavio/native.py` is its only importer.

Times are integers: `*_unix_ns` are wall-clock nanoseconds since the epoch, `*_mono_ns` are monotonic
nanoseconds. Every call that takes a whole batch releases the GIL.
"""

SOURCE_DIGEST: str

class Ledger:
    """Who still waits for an answer in one batch, and how replies from the next hops map back onto it.

    A batch goes on as one or more *parts* (subsets of its commands, in order). Replies speak of positions
    within a part; the ledger translates them, sees that each command is decided once, and knows when all are.
    """

    @property
    def batch_seq(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def done(self) -> bool:
        """Every command of the batch is decided."""
    @property
    def codes(self) -> bytes:
        """A Verdict per command as decided so far; 0 where undecided."""
    def opening(self) -> bytes:
        """Verdicts for what was refused before any hop, serialised; empty when nothing was refused."""
    def merge(self, part: int, offset: int, reply: Reply) -> bytes:
        """Translate `reply` to this batch: `offset` is where the part starts in the batch that `reply` answers.

        Returns serialised Verdicts (`final` set when it completes the batch), or empty bytes when the reply
        decides nothing new here. Codes for commands that are already decided are ignored.
        """
    def close(self, code: int, retry_after_ms: int, detail: str) -> bytes:
        """Decide everything undecided as `code`; final Verdicts, or empty bytes when nothing was open.

        A Refusal with the hint stands once, for the first command closed, when `code` is a refusal (>= 16).
        """
    def close_part(
        self, part: int, first: int, count: int, code: int, retry_after_ms: int, detail: str
    ) -> bytes:
        """As `close`, for positions `first .. first+count` of one part."""

class Reply:
    """A parsed Verdicts message."""

    @property
    def batch_seq(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def codes(self) -> bytes: ...
    @property
    def final(self) -> bool: ...
    @property
    def is_hello(self) -> bool: ...
    def refusals(self) -> list[tuple[int, int, int, int, str]]:
        """(index, reason, retry_after_ms, throttle_until_unix_ns, detail)."""

def read_verdicts(frame: bytes) -> Reply:
    """Raises ValueError when the bytes are not a Verdicts message."""

def batch_header(batch_seq: int, budget_ms: int) -> bytes:
    """Field 2 (`header`) of Submission, Batch, ArbitrationBatch and SendBatch, serialised; bodies follow it."""

class NonceSet:
    """Fingerprints in one-second buckets, by the second in which they may be forgotten.

    Refuses when full; never evicts.
    """

    def __init__(self, *, capacity: int, share_per_source: int) -> None: ...
    def claim(self, source: str, tag: bytes, until_unix_ns: int, now_unix_ns: int) -> int:
        """0 when claimed, or the Verdict: REPLAYED, SATURATED."""
    def __len__(self) -> int: ...

class Admission:
    """Shield's decision about a batch: parse, schema, suspension, key, audience, window, HMAC, nonce; in that order."""

    def __init__(
        self,
        *,
        audience: str,
        window_ms: int = 60_000,
        nonce_capacity: int = 40_000_000,
        nonce_share_per_source: int = 20_000_000,
        max_batch_bytes: int = 1 << 20,
        max_batch_commands: int = 1000,
        max_payload_bytes: int = 256 << 10,
    ) -> None: ...
    def set_keyset(self, source: str, versions: list[tuple[str, bytes, int, int, bool]]) -> None:
        """(version, secret, not_before_unix_ns, not_after_unix_ns or 0, revoked); replaces what was there."""
    def remove_keyset(self, source: str) -> None: ...
    def set_suspended(self, source: str, suspended: bool) -> None: ...
    def judge(self, submission: bytes, *, source: str, cert_serial: str, now_unix_ns: int) -> Judgement:
        """Judge a serialised Submission (hello absent). Never raises on bad bytes."""
    def judge_one(
        self, command: bytes, *, source: str, cert_serial: str, now_unix_ns: int, budget_ms: int
    ) -> Judgement:
        """Judge one serialised Command, as a batch of one with batch_seq 0."""
    def key_usage(self) -> list[tuple[str, str, int]]:
        """(source, key version, commands let in) since the last call; what was told is forgotten."""
    def counters(self) -> dict[str, int]:
        """Commands per verdict name since start, plus `nonces_live`."""

class Judgement:
    @property
    def ledger(self) -> Ledger:
        """One part (0): the accepted commands, in order."""
    @property
    def budget_ms(self) -> int:
        """From the header; 0 when absent."""
    @property
    def accepted(self) -> int: ...
    @property
    def runs(self) -> bytes:
        """Serialised `Batch.run` fields for the accepted commands; concatenates with others'. Empty when none."""
    @property
    def frame_code(self) -> int:
        """0, or why the frame as a whole was refused (MALFORMED, OVERSIZED); then nothing is accepted."""
    def telemetry(self, settled_unix_ns: int) -> bytes:
        """Serialised TelemetryBlock with one row per command that Shield refused; empty when none."""

class Dispatch:
    """Fast's decision about a batch, from memory alone."""

    def __init__(
        self,
        *,
        max_batch_bytes: int = (1 << 20) + (64 << 10),
        max_batch_commands: int = 4000,
        route_fresh_ms: int = 60_000,
        route_stale_ms: int = 180_000,
    ) -> None: ...
    def put_route(
        self, target: str, name: str, *, queue: int, topic: str, profile: int, strict: bool
    ) -> None:
        """`queue` numbers the TargetQueue; `profile` is the wire's Profile number."""
    def drop_route(self, target: str, name: str) -> None: ...
    def allow(self, source: str, target: str, name: str, version: int) -> None: ...
    def deny(self, source: str, target: str, name: str) -> None: ...
    def clear(self) -> None:
        """Forget every route and ACL (the directory's epoch changed); everything escalates until told again."""
    def load_snapshot(self, routes_part: bytes, acl_part: bytes, *, now_unix_ns: int = 0) -> int:
        """Replace everything by a snapshot's parts, all or nothing; its version. ValueError on bad parts.

        Verify the parts before. What was loaded counts as never read until `renewed`; routes that have ended
        by `now_unix_ns` are left out.
        """
    def renewed(self, read_mono_ns: int) -> None:
        """The authority was read at this time (when the request was sent). Never moves back."""
    def plan(self, batch: bytes, *, now_mono_ns: int) -> Plan:
        """Plan a serialised Batch (hello absent). Never raises on bad bytes."""
    def counters(self) -> dict[str, int]:
        """`dispatched`, `refused`, one `escalated.<reason>` each, `usage.fresh|stale|expired`, `routes`, `acls`."""

class Plan:
    @property
    def ledger(self) -> Ledger:
        """Parts 0..len(sends)-1 are `sends`; the last part (len(sends)) is the escalations."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def sends(self) -> list[tuple[int, int, bytes]]:
        """(queue, count, serialised `SendBatch.topic` fields)."""
    @property
    def escalated(self) -> int: ...
    @property
    def escalations(self) -> bytes:
        """Serialised `ArbitrationBatch.escalation` fields."""
    @property
    def frame_code(self) -> int: ...
    @property
    def stale_used(self) -> bool:
        """Some entry was used in its stale phase: refresh in the background."""
    def telemetry(self, settled_unix_ns: int) -> bytes:
        """Serialised TelemetryBlock, one row per command that this service settled (escalated ones are Slow's)."""

class SnapshotTables:
    """A snapshot that is being gathered from the directory's records."""

    def __init__(self) -> None: ...
    def add(self, kind: str, records: bytes) -> int:
        """Take lines `<checksum, 16 hex digits> <version> <JSON>` of `route`, `acl` or `suspension`; how many.

        ValueError when a record is damaged or cannot be told in a snapshot; the tables are useless then.
        """
    def parts(self, *, version: int, epoch: int) -> tuple[bytes, bytes, bytes]:
        """Routes, ACL and suspensions, each compressed."""

def snapshot_header(part: bytes) -> tuple[str, int, int, int]:
    """(`routes`, `acl` or `suspensions`; version; epoch; rows) as a part says of itself. ValueError on bad parts."""

def snapshot_suspensions(part: bytes) -> list[str]:
    """Sources of a suspensions part. ValueError on bad parts."""

class Arbitration:
    """An opened ArbitrationBatch: what Slow must decide, command by command, without parsing payloads in Python."""

    @staticmethod
    def open(frame: bytes, max_batch_bytes: int = ..., max_batch_commands: int = ...) -> Arbitration: ...
    @property
    def ledger(self) -> Ledger:
        """No parts until `dispatch` was called; then one part per send, as in Plan."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def frame_code(self) -> int: ...
    def keys(self) -> list[tuple[str, str, str, int]]:
        """Distinct (source, target, name, escalation reason), in order of first appearance."""
    def refuse(self, key: int, code: int, retry_after_ms: int, detail: str) -> bytes:
        """Refuse every command of keys()[key]; serialised Verdicts."""
    def dispatch(self, approved: list[tuple[int, int, str]]) -> list[tuple[int, int, bytes]]:
        """(key, queue, topic) per approved key; returns `sends` as in Plan. Call once."""
    def telemetry(self, settled_unix_ns: int) -> bytes: ...

class Sending:
    """An opened SendBatch: what the mailbox must store."""

    @staticmethod
    def open(frame: bytes, max_batch_bytes: int = ..., max_batch_commands: int = ...) -> Sending: ...
    @property
    def ledger(self) -> Ledger:
        """One part per entry of `topics`."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def frame_code(self) -> int: ...
    @property
    def topics(self) -> list[tuple[str, int, bytes]]:
        """(topic, count, serialised Run messages as repeated field 5: exactly a Parcel's `run` fields)."""

def slice_runs(runs: bytes, first: int, count: int) -> bytes:
    """`run` fields (field 5) for the commands `first .. first+count` of stored runs. Raises ValueError on bad bytes."""

def open_parcels(
    response: bytes,
) -> tuple[int, list[tuple[int, int, int, str, str, str, str, str, str, bytes, str, int]]]:
    """What a serialised ReceiveResponse holds; ValueError on bad bytes.

    The boot epoch, and per message: msg_id, attempt, stored_unix_ns, source, id, timestamp, target, name,
    content_type, payload, traceparent, admitted_unix_ns.
    """

def sign_command(
    secret: bytes,
    *,
    key_version: str,
    audience: str,
    command_id: str,
    timestamp_unix_ns: int,
    target: str,
    name: str,
    payload: bytes,
    content_type: str = "",
    traceparent: str = "",
) -> bytes:
    """A serialised, signed Command. Raises ValueError, naming the field, on what Shield would refuse as schema."""

def sign_batch(
    secret: bytes,
    *,
    key_version: str,
    audience: str,
    timestamp_unix_ns: int,
    commands: list[tuple[str, str, bytes]],
    content_type: str = "",
    max_batch_bytes: int = ...,
    max_batch_commands: int = ...,
) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Sign (target, name, payload) many at once under fresh ids and one timestamp.

    Returns the ids as text, 36 bytes each without separators, and (count, serialised `Submission.command`
    fields) for as many submissions as the limits ask for. Raises ValueError, naming the command and the field.
    """

def hmac_sha256(secret: bytes, message: bytes) -> bytes: ...
def format_timestamp(unix_ns: int) -> str:
    """RFC 3339 with nine fractional digits and `Z`."""

def parse_timestamp(text: str) -> int:
    """Nanoseconds since the epoch. Raises ValueError; OverflowError is never raised (years past 2262 are clamped)."""

def canonical_json(document: bytes) -> bytes:
    """RFC 8785. Raises ValueError on duplicate keys, integers from 2^53, NaN, lone surrogates and bad JSON."""

def ed25519_public_key(seed: bytes) -> bytes: ...
def ed25519_sign(seed: bytes, message: bytes) -> bytes: ...
def ed25519_sign_batch(seed: bytes, messages: list[bytes]) -> list[bytes]:
    """One signature per message, made without the GIL. Raises ValueError on a seed that is not 32 bytes."""

def ed25519_is_weak(public_key: bytes) -> bool:
    """Whether no signature under it means anything: small order, not canonical, not a point, not 32 bytes."""

def ed25519_verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Strict: small-order keys and non-canonical points are refused. False, never an exception, on bad lengths."""

def blake3_hex(message: bytes) -> str: ...
def blake3_digest(message: bytes) -> bytes: ...
def uuid7() -> str:
    """Time-ordered UUID in lower-case text; monotonic within the process."""
