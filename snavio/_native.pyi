"""Typed face of the Rust extension. `snavio/native.py` is its only importer.

Times are integers: `*_unix_ns` are wall-clock nanoseconds since the epoch, `*_mono_ns` are monotonic
nanoseconds. Every call that takes a whole batch releases the GIL.
"""

from collections.abc import Sequence

SOURCE_DIGEST: str
MESH_BATCH_BYTES: int
"""The size limit of a frame between services; of producers, Shield takes half of it."""
MESH_BATCH_COMMANDS: int

class Ledger:
    """The undecided commands of one batch, and the mapping of replies from the next hops back onto it.

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
    def decide_each(
        self, codes: bytes, hints: dict[int, tuple[int, str]], places: bytes | None = None
    ) -> bytes:
        """Decide undecided commands by `codes`, one per command; 0 leaves it open. Verdicts as from `close`.

        `hints` has (retry_after_ms, detail) by code; each stands once, for the first command refused with it.
        `places` has 16 bytes as `<Qq` per command: the message that it is, or of which it is a duplicate, 0 for
        nothing to tell; and when that was stored, 0 where it is not known.
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
    def shares(self) -> list[tuple[int, float, float, int]]:
        """(index, source_share, competing_share, dispatch_volume) of refusals for fairness."""

def read_verdicts(frame: bytes) -> Reply:
    """Raises ValueError when the bytes are not a Verdicts message."""

class PartBuffer:
    """The body of a batch part, measured and not yet written: ranges of the frame that it came in.

    It holds no more memory than a third above its length: where less of the frame goes on, it is written at once.
    `bytes` writes it; `batch_frame` writes it into the frame that it leaves in, which saves a copy.
    """

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...

def batch_frame(batch_seq: int, budget_ms: int, bodies: list[bytes | PartBuffer]) -> bytes:
    """A whole batch message: the header and behind it the bodies."""

def batch_header(batch_seq: int, budget_ms: int) -> bytes:
    """Field 2 (`header`) of Submission, Batch, ArbitrationBatch and SendBatch, serialised; bodies follow it."""

class NonceSet:
    """Fingerprints in one-second buckets, by the second in which they may be forgotten.

    Refuses when full; never evicts.
    """

    def __init__(self, *, capacity: int, share_per_tenant: int, reserve: int = 0) -> None: ...
    def holders(self) -> dict[str, int]: ...
    def claim(self, source: str, tag: bytes, until_unix_ns: int, now_unix_ns: int) -> int:
        """0 when claimed, or the Verdict: REPLAYED, SATURATED."""
    def __len__(self) -> int: ...

def measure_submission(
    submission: bytes, *, max_batch_bytes: int, max_batch_commands: int
) -> tuple[int, int, int]:
    """(verdict, number of the batch, commands) of a Submission; a verdict of 0 where it is one within the limits."""

class Admission:
    """Shield's decision about a batch: parse, schema, suspension, key, audience, window, HMAC, nonce; in that order."""

    def __init__(
        self,
        *,
        audience: str,
        window_ms: int = 60_000,
        nonce_capacity: int = 40_000_000,
        nonce_share_per_tenant: int = 20_000_000,
        nonce_reserve: int = 0,
        max_batch_bytes: int = 1 << 20,
        max_batch_commands: int = 1000,
        max_payload_bytes: int = 256 << 10,
    ) -> None: ...
    def set_keyset(self, source: str, versions: list[tuple[str, bytes, int, int, bool]]) -> None:
        """(version, secret, not_before_unix_ns, not_after_unix_ns or 0, revoked); replaces what was there."""
    def remove_keyset(self, source: str) -> None: ...
    def set_suspended(self, source: str, suspended: bool) -> None: ...
    def nonce_holders(self) -> dict[str, int]:
        """Live nonces by tenant."""
    def judge(self, submission: bytes, *, source: str, cert_serial: str, now_unix_ns: int) -> Judgement:
        """Judge a serialised Submission (hello absent). Never raises on bad bytes."""
    def judge_one(
        self, command: bytes, *, source: str, cert_serial: str, now_unix_ns: int, budget_ms: int
    ) -> Judgement:
        """Judge one serialised Command, as a batch of one with batch_seq 0."""
    def flood_telemetry(self, now_unix_ns: int) -> list[tuple[int, bytes]]:
        """(rows, TelemetryBlock) per second that is over and had refusals beyond those reported one by one."""
    def key_usage(self) -> list[tuple[str, str, int]]:
        """(source, key version, admitted commands) since the last call; resets the counts."""
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
    def buffer(self) -> PartBuffer:
        """The same as `runs`, not yet written."""
    @property
    def frame_code(self) -> int:
        """0, or the Verdict of a frame that was refused as a whole (MALFORMED, OVERSIZED); then nothing is accepted."""
    @property
    def rows(self) -> int:
        """The number of rows that `telemetry` writes."""
    def telemetry(self, settled_unix_ns: int) -> bytes:
        """Serialised TelemetryBlock: a row per command that Shield refused, and those about clock skew; or empty."""

    def telemetry_closed(self, settled_unix_ns: int) -> bytes:
        """TelemetryBlock of admitted commands that were closed here and not by Fast; empty when there are none."""

class Dispatch:
    """Fast's decision about a batch, from memory alone. Knows no wall time, so no step of it changes a decision."""

    def __init__(
        self,
        *,
        max_batch_bytes: int = (1 << 20) + (64 << 10),
        max_batch_commands: int = 4000,
        route_fresh_ms: int = 60_000,
        route_stale_ms: int = 180_000,
        acl_ms: Sequence[tuple[int, int]] = ...,
        shorten_permille: int = 0,
        cold_only: bool = False,
        duplicates: int = 65_536,
        dedupe_ms: int = 300_000,
        unknown_routes: int = 65_536,
        unknown_routes_per_source: int = 1024,
        unknown_ms: int = 2000,
        counted_sources: int = 262_144,
    ) -> None:
        """`shorten_permille` is taken off every fresh time; `acl_ms` are the ages at which a right is stale and
        expired, of the profiles critical, moderate and low. The other numbers are bounds; see docs/dispatch.md."""
    def put_route(
        self,
        target: str,
        name: str,
        *,
        queue: int,
        topic: str,
        profile: int,
        strict: bool,
        cold_only: bool = False,
        limited: bool = False,
        shadow: bool = False,
        fairness: tuple[int, float, float, int, int, int] | None = None,
    ) -> None:
        """`queue` numbers the TargetQueue; `profile` is the wire's Profile number.

        `fairness` is (window seconds, dominant share, competing share, competitors, minimum volume, ban seconds).
        A route that was there before loses its permits and keeps its window and its bans.
        """
    def drop_route(self, target: str, name: str) -> None: ...
    def allow(
        self, source: str, target: str, name: str, version: int, *, profile: int = 0, ends_unix_ns: int = 0
    ) -> None:
        """A right; 0 is no profile of its own, and no end. An end is compared with `heard_time`."""
    def limit_source(
        self, source: str, target: str, name: str, *, limited: bool, shadow: bool = False
    ) -> None:
        """The source's own limit on a route, beside the route's; permits of the one before are lost."""
    def heard_time(self, unix_ns: int, mono_ns: int) -> None:
        """The authority's clock said `unix_ns` at or after `mono_ns`; until it has, rights with an end escalate."""
    def deny(self, source: str, target: str, name: str) -> None: ...
    def put_ban(self, ban_list: int, source: str, target: str, name: str, *, until_mono_ns: int) -> None:
        """`ban_list` is the wire's BanList number; an empty target and name mean every route."""
    def lift_ban(self, ban_list: int, source: str, target: str, name: str) -> None: ...
    def set_cold_only(self, cold_only: bool) -> None:
        """Turn on or off that every command is escalated to Slow."""
    def clear(self) -> None:
        """Forget every route, right and ban (the directory's epoch changed); everything escalates until set again."""
    def load_snapshot(
        self,
        routes_part: bytes,
        acl_part: bytes,
        *,
        bans_part: bytes | None = None,
        terms_part: bytes | None = None,
        now_unix_ns: int = 0,
        now_mono_ns: int = 0,
    ) -> int:
        """Replace everything by a snapshot's parts, all or nothing; its version. ValueError on bad parts.

        Verify the parts before. What was loaded counts as never read until `renewed`; routes and bans that have
        ended by `now_unix_ns` are left out.
        """
    def renewed(self, read_mono_ns: int) -> None:
        """The authority was read at this time (when the request was sent). Never moves back."""
    def age_ns(self, now_mono_ns: int) -> int | None:
        """Time since then; None before the first reading."""
    def grant(
        self,
        target: str,
        name: str,
        *,
        permits: int,
        interval: int,
        ends_mono_ns: int,
        now_mono_ns: int,
        source: str = "",
    ) -> bool:
        """Hold permits until they end; False, with nothing held, where none are needed or they have ended.

        With `source` they are of its own limit on the route.
        """
    def needs(self, *, now_mono_ns: int) -> list[tuple[str, str, str, int, int, int]]:
        """(source, target, name, wanted since the last call, sent without a permit and still to be paid, left).

        The source is empty for the limit of the route.
        """
    def give_up(self, *, now_mono_ns: int) -> list[tuple[str, str, str, int, int]]:
        """(source, target, name, interval, permits) of every permit that is left; none is held afterwards."""
    def plan(self, batch: bytes, *, now_mono_ns: int) -> Plan:
        """Plan a serialised Batch (hello absent). Never raises on bad bytes."""
    def learn(self, plan: Plan, *, now_mono_ns: int) -> None:
        """Remember from the answers to a plan: routes that Slow does not know, strict deliveries."""
    def sweep(self, *, now_mono_ns: int) -> None:
        """Free idle windows and old answers. To be called now and then."""
    def counters(self) -> dict[str, int]:
        """`dispatched`, `refused`, one `escalated.<reason>` each, `usage.fresh|stale|expired`, `usage.acl.stale`,
        `usage.routing.stale`, `strict`, `duplicates`, `route_missing`, `unknown_saturated`, `warm_bans`; and gauges:
        `routes`, `acls`, `bans`, `unknown_routes`, `remembered_deliveries`, `counted_sources`.
        """

class PlannedSend:
    """A batch part for one queue."""

    @property
    def queue(self) -> int:
        """Number of the TargetQueue."""
    @property
    def count(self) -> int: ...
    @property
    def body(self) -> bytes | PartBuffer:
        """Serialised `SendBatch.topic` fields; a PartBuffer in a Plan, bytes in an Arbitration."""

class PlannedEscalation:
    """A batch part for Slow: commands of one source."""

    @property
    def source(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def body(self) -> bytes:
        """Serialised `ArbitrationBatch.escalation` fields."""

class WarmBan:
    """A source that lost a route's warm path, and the shares that caused it."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def source_share(self) -> float: ...
    @property
    def competing_share(self) -> float: ...
    @property
    def volume(self) -> int: ...
    @property
    def ban_ns(self) -> int: ...
    @property
    def window_ns(self) -> int: ...

class Plan:
    @property
    def ledger(self) -> Ledger:
        """Parts 0..len(sends)-1 are `sends`; those after them are `escalations`."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def sends(self) -> list[PlannedSend]:
        """One per queue, or several where one frame could not hold them."""
    @property
    def escalated(self) -> int:
        """Commands in all escalations."""
    @property
    def escalations(self) -> list[PlannedEscalation]:
        """One per source, or several where one frame could not hold them."""
    @property
    def frame_code(self) -> int: ...
    @property
    def stale_used(self) -> bool:
        """Some entry was used in its stale phase: refresh in the background."""
    @property
    def thirsty(self) -> bool:
        """Permits of some route were wanted for the first time since `needs`: fetch in the background."""
    @property
    def teaches(self) -> bool:
        """There is something to `learn` once everything is answered."""
    @property
    def warm_bans(self) -> list[WarmBan]:
        """Bans that began here; bans of one source on one route within one window are one offence."""
    def telemetry(self, settled_unix_ns: int) -> bytes:
        """TelemetryBlock of the commands that this service settled since the last call; empty when there are none.

        Escalated ones are Slow's to tell, unless they were closed here.
        """

class SnapshotTables:
    """A snapshot that is being gathered from the directory's records."""

    def __init__(self) -> None: ...
    def add(self, kind: str, records: bytes) -> int:
        """Take lines `<checksum, 16 hex digits> <version> <JSON>` of a route, acl, suspension or ban; how many.

        ValueError when a record is damaged or cannot be told in a snapshot; the tables are useless then.
        """
    def parts(self, *, version: int, epoch: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Routes, ACL, suspensions, bans and terms of single rights, each compressed."""

def snapshot_header(part: bytes) -> tuple[str, int, int, int]:
    """(`routes`, `acl`, `suspensions` or `bans`; version; epoch; rows) as a part says. ValueError on bad parts."""

def snapshot_suspensions(part: bytes) -> list[str]:
    """Sources of a suspensions part. ValueError on bad parts."""

class LaneKey:
    """Source, target, name and escalation reason of the commands that one decision is about."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> int: ...

class IdClaim:
    """The id of a strict command, to be claimed."""

    @property
    def index(self) -> int:
        """The command's index in the batch."""
    @property
    def id(self) -> bytes:
        """16 bytes."""
    @property
    def contents(self) -> bytes:
        """BLAKE3 of the command's target, name and payload."""

class Committed:
    """Strict commands that are known to be delivered; when full, the oldest makes room."""

    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...

class Arbitration:
    """A parsed ArbitrationBatch: the commands for Slow to decide, without parsing payloads in Python."""

    @staticmethod
    def open(frame: bytes, max_batch_bytes: int = ..., max_batch_commands: int = ...) -> Arbitration: ...
    @property
    def ledger(self) -> Ledger:
        """No parts until `dispatch` was called; then one part per send, as in Plan."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def frame_code(self) -> int: ...
    def keys(self) -> list[LaneKey]:
        """Distinct keys, in order of first appearance."""
    def undecided(self) -> list[int]:
        """The number of undecided commands of each key."""
    def refuse(
        self,
        key: int,
        code: int,
        retry_after_ms: int,
        detail: str,
        *,
        spare: int = ...,
        throttle_until_unix_ns: int = ...,
        source_share: float = ...,
        competing_share: float = ...,
        dispatch_volume: int = ...,
    ) -> bytes:
        """Refuse the undecided commands of keys()[key] but for the first `spare`; serialised Verdicts."""
    def decide(self, indices: list[int], code: int, retry_after_ms: int, detail: str) -> bytes:
        """Decide commands by their numbers in the batch; serialised Verdicts."""
    def settle_known(self, key: int, known: Committed, now_mono_ns: int) -> bytes:
        """Answer as duplicates those commands of the key that `known` remembers; serialised Verdicts."""
    def settle_duplicates(self, found: list[tuple[int, str]]) -> bytes:
        """Decide commands by their numbers as duplicates, each with a word on its first one; serialised Verdicts."""
    def remember(self, known: Committed, until_mono_ns: int, now_mono_ns: int) -> None:
        """Add what was delivered under keys that were dispatched with `once_ms`."""
    def claims(self, key: int) -> list[IdClaim]:
        """One for each undecided command of the key."""
    def spent(self, key: int) -> int:
        """The number of commands of the key that were delivered, may have been, or are still undecided."""
    def duplicates(self, key: int) -> tuple[int, int]:
        """The number of commands of the key, and of those that were delivered before."""
    def dispatch(
        self,
        approved: list[tuple[int, int, str, int]],
        grants: bytes | None = None,
        acl_versions: list[int] | None = None,
    ) -> list[PlannedSend]:
        """(key, queue, topic, once_ms) per approved key, each key at most once; returns `sends` as in Plan.

        With `once_ms` the queue stores each id once for at least so long; 0 for any number of times.

        `grants` tells telemetry by what permit each goes: 1 unlimited, 3 arbitrated, 4 under a shadow limit;
        `acl_versions` by which version of its right.

        Each send is a new part of the ledger; parts are numbered across calls.
        """
    def telemetry(self, settled_unix_ns: int) -> bytes:
        """TelemetryBlock of the commands that were decided since the last call; empty when there are none."""

class Sending:
    """A parsed SendBatch: the rows for the mailbox to store."""

    @staticmethod
    def open(
        frame: bytes, max_batch_bytes: int = ..., max_batch_commands: int = ..., secret: bytes = ...
    ) -> Sending:
        """`secret`, of 32 bytes, is what `keys` are fingerprinted under."""
    @property
    def ledger(self) -> Ledger:
        """One part per entry of `topics`."""
    @property
    def budget_ms(self) -> int: ...
    @property
    def frame_code(self) -> int: ...
    @property
    def topics(self) -> list[tuple[str, int, bytes]]:
        """(topic, count, serialised Run messages as repeated field 5: exactly a LeasedBatch's `run` fields)."""
    @property
    def keys(self) -> list[bytes]:
        """Per entry of `topics`: 32 bytes for each command when `once` is set, for a ReplayWindow; else empty."""
    @property
    def once_ms(self) -> list[int]:
        """Per entry of `topics`: minimum time to keep its keys, in milliseconds; 0 means the topic's window."""

class ReplayWindow:
    """The keys of stored messages, for as long as the replay window of their topic lasts.

    Keys are columns of 32 bytes: fingerprints of the key, of the payload and of the tenant that it counts for.
    Times are nanoseconds of one clock that does not step back. Refuses when full; never evicts.
    """

    def __init__(self, *, capacity: int, share_per_owner: int) -> None: ...
    def sift(
        self, batches: list[tuple[bytes, bytes, bytes, int]], now_ns: int, *, closed: bool = False
    ) -> list[tuple[bytes, int, bytes, bytes, bytes]]:
        """For each batch: a Verdict per message, how many are new, and keys and runs of those alone.

        A batch is (keys, runs, groups, number of the send). `groups` is empty, or has four bytes a message: twice the
        number of its group in the send, and 1 more where duplicates refuse the group. Of a refused group nothing is
        new, and what would have been has no Verdict. Nothing is remembered; the second of two with one key in this
        call is a duplicate. While `closed`, nothing new is let in. Last, for every duplicate and conflict, 24 bytes as
        `<IiQq`: its number, where the first is: (-1, msg_id) when it was stored before, else (batch of this call,
        position among what is new in it); and when that was stored. ValueError when keys and runs do not match.
        """
    def remember(self, keys: bytes, batch_id: int, at_ns: int, window_ns: int) -> None:
        """The batch whose messages have these keys is stored, since `at_ns`."""
    def first(self, key: bytes, now_ns: int) -> tuple[int, int] | None:
        """The first message with the key of a column, while it is known: its id, and when it was stored."""
    def room_in_ms(self) -> int:
        """Milliseconds until the oldest keys are forgotten, as of the last `sift`; 0 when there are none."""
    def __len__(self) -> int: ...

def replay_keys(secret: bytes, topic: str, scope: str, messages: list[tuple[bytes, bytes]]) -> bytes:
    """Columns for (key, payload) pairs. Keys of two scopes (a source, or a tenant) never collide."""

def blocks_with(blocks: list[bytes], id: bytes) -> list[int]:
    """Positions of the blocks in which `id` stands, at whatever place; without the GIL."""

def telemetry_rows(block: bytes) -> int:
    """Rows of a serialised TelemetryBlock. ValueError on bad bytes."""

def read_journal_page(
    page: bytes,
) -> tuple[str, int, int, list[tuple[int, bytes]], list[tuple[int, int]]]:
    """(instance, epoch, first_seq, [(events, block field with its tag)], [(ended epoch, last_seq)]).

    Every block is one that `telemetry_columns` can read; ValueError otherwise.
    """

class Tombstones:
    """Rights that were revoked lately."""

    def __init__(self) -> None: ...
    def add(self, source: str, target: str, name: str, *, version: int, revoked_unix_ns: int) -> None: ...
    def forget(self, before_unix_ns: int) -> None:
        """Drop those that were revoked earlier."""
    def __len__(self) -> int: ...

def telemetry_columns(
    pages: list[tuple[int, bytes]], tombstones: Tombstones
) -> tuple[
    int,
    dict[str, tuple[bytes, bytes | None, list[str] | None]],
    list[tuple[int, int, str, bytes]],
    list[tuple[str, str, str, int, int, int]],
]:
    """The archive's columns of (first seq, block fields) pages. ValueError on bad bytes.

    Rows; per column (little-endian values, validity bits or None, dictionary or None), without values when all are
    null; events that are no rows (seq, at_unix_ns, name, JSON); and commands that went by a right after it was taken
    away: (source, target, name, revoked_unix_ns, settled_unix_ns, count). Times are in microseconds, ids 16 bytes,
    other numbers 8 bytes, places in a dictionary 4.
    """

def slice_runs(runs: bytes, first: int, count: int) -> bytes:
    """`run` fields (field 5) for the commands `first .. first+count` of stored runs. Raises ValueError on bad bytes."""

def seal_runs(runs: bytes, context: bytes) -> bytes:
    """16 bytes per command of stored runs: where it stands, and a check of it, its head and `context`.

    ValueError on bytes that are not stored runs.
    """

def salvage_runs(body: bytes, count: int, context: bytes) -> tuple[bytes, list[bool]]:
    """Readable runs of a damaged row, given as runs and seals: `count` commands, and a flag for each damaged one.

    A damaged command is replaced with an empty one, so that the others keep their numbers.
    """

class WalWalk:
    """Walks a write-ahead log of SQLite: a torn end is accepted, damage is found. ValueError for an invalid header."""

    def __init__(self, header: bytes) -> None: ...
    @staticmethod
    def header_flip(header: bytes) -> tuple[int, int] | None:
        """The byte and bit that make a damaged header whole."""
    @property
    def frame_bytes(self) -> int: ...
    @property
    def committed_end(self) -> int:
        """End of the last transaction that SQLite would read, as an offset in the log."""
    @property
    def committed(self) -> int:
        """Transactions that SQLite would read."""
    @property
    def behind(self) -> int:
        """Transactions in the log that SQLite would not read: behind the first frame that does not verify."""
    @property
    def behind_end(self) -> int:
        """End of the last of those, as an offset in the log."""
    @property
    def damage(self) -> tuple[int, tuple[int, int] | None] | None:
        """Offset of the damaged frame, and the byte and bit that make it whole if it is one bit away."""
    def feed(self, frames: bytes) -> None:
        """Whole frames; less than one at the end is left out."""

def reseal_wal(log: bytes, end: int) -> bytes:
    """The log up to the byte `end` with sums that verify, whatever its frames hold; ValueError on what is no log."""

class Received:
    """One message of a ReceiveResponse."""

    @property
    def msg_id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def stored_unix_ns(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def timestamp(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def content_type(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def traceparent(self) -> str: ...
    @property
    def admitted_unix_ns(self) -> int: ...
    @property
    def idem_key(self) -> str:
        """Its sender's; empty for a command."""
    @property
    def attrs(self) -> tuple[tuple[str, str], ...]:
        """Those of its sender; a command has none."""
    @property
    def shard(self) -> int: ...
    @property
    def integrity(self) -> int:
        """0 not verified, 1 verified, 2 not as the mailbox stored it, 3 not as its sender hashed it."""

def frame_leased_batch(
    runs: bytes,
    *,
    topic: str,
    batch_id: int,
    first: int,
    attempt: int,
    stored_unix_ns: int,
    shard: int,
) -> bytes:
    """A serialised `ReceiveResponse.batch` field with stored runs, and payload_hash and hash_chain of every message.

    Runs that hold no commands get no hashes: their reader refuses them by itself.
    """

def read_leased_batches(response: bytes, topic: str | None = None) -> tuple[int, list[Received]]:
    """Boot epoch and messages of a serialised ReceiveResponse; ValueError on others.

    With `topic`, each message is compared with its hashes.
    """

def split_batch(body: bytes) -> list[tuple[str, bool, list[tuple[str, str, bytes]]]]:
    """Serialised `SendBatch.topic` fields, command by command; ValueError on bad bytes.

    Per topic: its name, whether each (source, id) is to be stored once, and (source, id, run) per command, in
    the order of their numbers; the run is serialised and holds that command alone.
    """

def read_single(run: bytes) -> tuple[str, str, str, str, str, str, bytes, str, int]:
    """Of one command: (source, id, timestamp, target, name, content_type, payload, traceparent, admitted_unix_ns).

    ValueError on bad bytes.
    """

def request_topic(request: bytes) -> str:
    """The topic of a serialised SendRequest; ValueError when it names none."""

def group_topics(request: bytes) -> list[str]:
    """Every topic of a serialised SendAllRequest, each once; ValueError when it cannot be read."""

def read_message_groups(
    request: bytes,
    *,
    topics: list[tuple[str, int]],
    source: str,
    cert_serial: str,
    scope: str,
    now_unix_ns: int,
    secret: bytes,
    skip: list[int],
) -> tuple[
    tuple[
        list[tuple[int, int, int, int, bytes, bytes, list[int], bytes]],
        list[tuple[int, int, int, int, int]],
        list[int],
        list[tuple[int, str, str]],
        bool,
    ]
    | None,
    tuple[int, str, str] | None,
]:
    """The groups of a serialised SendAllRequest but those of `skip`, by topic; `topics` with their shards.

    Batches: (number of the topic, shard, delay_ms, replay_ms, runs, keys, places of the copies in the answer, groups
    for a ReplayWindow). Then what each group asks for: (group, topic, shard, copies, bytes at most); the copies of
    every group; groups that are refused for what is in them: (group, reason, sentence); and whether anything has a
    key. Or none of it, and why not: (-1, reason, sentence).
    """

def read_new_messages(
    request: bytes,
    *,
    topic: str,
    source: str,
    cert_serial: str,
    scope: str,
    now_unix_ns: int,
    secret: bytes,
    shards: int,
) -> tuple[list[tuple[int, int, int, bytes, bytes, list[int]]], tuple[int, str, str] | None]:
    """The messages of a serialised SendRequest as batches: (shard, delay_ms, replay_ms, runs, keys, their numbers).

    Within a shard, batches stand in the order of their messages; `keys` is for a ReplayWindow and empty for
    messages without. Or no batches, and why not: (number of the message or -1, reason, sentence).
    """

def shard_of(key: str, shards: int) -> int:
    """The shard that a key belongs to; the same for ever."""

def envelope(
    *,
    topic: str,
    msg_id: int,
    stored_unix_ns: int,
    id: str,
    idem_key: str,
    attrs: list[tuple[str, str]],
    payload: bytes,
) -> tuple[str, str, str, str]:
    """ts, payload_hash, corr_id and hash_chain of a message; hashes as `b3:` and 64 hex digits."""

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
) -> tuple[bytes, list[tuple[int, PartBuffer]]]:
    """Sign (target, name, payload) many at once under fresh ids and one timestamp.

    Returns the ids as text, 36 bytes each without separators, and (count, `Submission.command` fields) for as
    many submissions as the limits ask for. Raises ValueError, naming the command and the field.
    """

def hmac_sha256(secret: bytes, message: bytes) -> bytes: ...
def cut_by_tenant(
    pages: list[bytes], *, told: int, troubles: int, part_events: int, part_bytes: int
) -> tuple[
    list[tuple[str, str, int, bytes]],
    list[tuple[int, int, str, bytes]],
    list[tuple[int, str]],
    int,
    int,
]:
    """Events of block fields by source and family. ValueError on bad bytes.

    (source, family, events, JSON array in its canonical form); rare events (position of the page, at_unix_ns, name,
    JSON); tenants that pages speak of (position, tenant); commands that were counted, not told; rows of nobody.
    """

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
    """True if no signature under it means anything: small order, not canonical, not a point, not 32 bytes."""

def ed25519_verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Strict: small-order keys and non-canonical points are refused. False, never an exception, on bad lengths."""

def blake3_hex(message: bytes) -> str: ...
def blake3_digest(message: bytes) -> bytes: ...
def uuid7() -> str:
    """Time-ordered UUID in lower-case text; monotonic within the process."""

def panic_for_test(detached: bool) -> None:
    """Panics, which arrives as a `NativeFault`; `detached` without the GIL. For the test that shows it."""
