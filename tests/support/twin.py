"""A slow and obvious twin of the native admission: signs, judges and remembers in plain Python.

It must never share code with the native side or be quick at the price of being obvious: it is what the native
code is compared with.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from snavio.domain.verdict import Verdict

TYPE = "snavio.command-sent"
NS = 1_000_000_000
MAX_I64 = 2**63 - 1
MIN_I64 = -(2**63)

# Field number -> name; all of them are length-delimited.
COMMAND_FIELDS = {
    1: "id",
    2: "timestamp",
    3: "type",
    4: "key_version",
    5: "audience",
    6: "hmac",
    7: "target",
    8: "name",
    9: "content_type",
    10: "payload",
    11: "traceparent",
    12: "source",
}
BINARY = {"hmac", "payload"}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?Z",
)
_KEY_VERSION = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_AUDIENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_TARGET = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_CONTENT_TYPE = re.compile(r"[\x20-\x7e]{0,128}")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class NotAMessageError(Exception):
    """The bytes are not fields."""


# --- protobuf, the little of it that this wire uses


def varint(number: int) -> bytes:
    """The shortest spelling of `number`."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def put(number: int, body: bytes) -> bytes:
    """One length-delimited field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def put_number(number: int, value: int) -> bytes:
    """One varint field; nothing for zero."""
    return varint(number << 3) + varint(value % 2**64) if value else b""


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. Only the shortest spelling is one."""
    for end in range(at + 1, min(at + 10, len(message)) + 1):
        if message[end - 1] < 0x80:
            number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(message[at:end]))
            if number >= 2**64 or varint(number) != message[at:end]:
                raise NotAMessageError
            return number, end
    raise NotAMessageError


def walk(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of every field."""
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**32:
            raise NotAMessageError
        if wire == 0:
            value, at = read_varint(message, at)
            yield number, wire, value
        elif wire in (1, 2):
            length, at = (8, at) if wire == 1 else read_varint(message, at)
            if at + length > len(message):
                raise NotAMessageError
            yield number, wire, message[at : at + length]
            at += length
        else:
            raise NotAMessageError


# --- one command


def parse_timestamp(text: str) -> int | None:
    """Nanoseconds since the epoch, clamped to 64 bits; None when it is no timestamp."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(digits) for digits in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since.days * 86_400 + since.seconds
    unix_ns = seconds * NS + int((match[7] or "").ljust(9, "0"))
    return max(MIN_I64, min(MAX_I64, unix_ns))


def format_timestamp(unix_ns: int) -> str:
    """Nine fractional digits and `Z`."""
    moment = datetime.fromtimestamp(unix_ns // NS, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{unix_ns % NS:09d}Z"


def signed_text(fields: dict[str, bytes]) -> bytes:
    """Bytes that the tag covers."""
    payload = fields.get("payload", b"")
    names = ("key_version", "audience", "id", "timestamp", "type", "target", "name", "content_type")
    lines = [b"SNAVIO1", *(fields.get(name, b"") for name in names), str(len(payload)).encode(), payload]
    return b"\n".join(lines)


def tag_of(secret: bytes, fields: dict[str, bytes]) -> bytes:
    """The full HMAC-SHA256."""
    return hmac.new(secret, signed_text(fields), hashlib.sha256).digest()


def encode(fields: dict[str, bytes]) -> bytes:
    """A Command; fields that are missing or empty are left out, but a `source` is written even when empty."""
    return b"".join(
        put(number, fields[name])
        for number, name in COMMAND_FIELDS.items()
        if fields.get(name) or (name == "source" and name in fields)
    )


def sign(secret: bytes, fields: dict[str, bytes]) -> bytes:
    """A Command with its tag, whatever else stands in it."""
    return encode({**fields, "hmac": tag_of(secret, fields)})


def parse_command(command: bytes) -> dict[str, bytes]:
    """Its fields, each at most once and text in UTF-8; NotAMessageError otherwise."""
    fields: dict[str, bytes] = {}
    for number, wire, value in walk(command):
        name = COMMAND_FIELDS.get(number)
        if name is None or wire != 2 or name in fields:
            raise NotAMessageError
        assert isinstance(value, bytes)
        fields[name] = value
    for name, body in fields.items():
        if name not in BINARY:
            try:
                body.decode("utf-8")
            except UnicodeDecodeError:
                raise NotAMessageError from None
    return fields


def schema_fault(fields: dict[str, bytes], *, max_payload_bytes: int) -> Verdict | None:
    """The first rule that the fields break, in the order of the verdicts; a source comes first."""
    text = {name: fields.get(name, b"").decode() for name in COMMAND_FIELDS.values() if name not in BINARY}
    trace = _TRACEPARENT.fullmatch(text["traceparent"])
    rules = [
        (Verdict.SOURCE_PRESENT, "source" not in fields),
        (Verdict.OVERSIZED, len(fields.get("payload", b"")) <= max_payload_bytes),
        (Verdict.INVALID_ID, _UUID.fullmatch(text["id"]) and set(text["id"]) != {"0", "-"}),
        (Verdict.INVALID_TIMESTAMP, parse_timestamp(text["timestamp"]) is not None),
        (Verdict.INVALID_TYPE, text["type"] == TYPE),
        (Verdict.INVALID_KEY_VERSION, _KEY_VERSION.fullmatch(text["key_version"])),
        (Verdict.INVALID_AUDIENCE, _AUDIENCE.fullmatch(text["audience"])),
        (Verdict.INVALID_HMAC, len(fields.get("hmac", b"")) == 32),
        (Verdict.INVALID_TARGET, _TARGET.fullmatch(text["target"])),
        (Verdict.INVALID_NAME, _NAME.fullmatch(text["name"])),
        (Verdict.INVALID_CONTENT_TYPE, _CONTENT_TYPE.fullmatch(text["content_type"])),
        (
            Verdict.INVALID_TRACEPARENT,
            not text["traceparent"] or (trace and int(trace[1], 16) and int(trace[2], 16)),
        ),
    ]
    return next((verdict for verdict, kept in rules if not kept), None)


# --- the nonces


@dataclass(slots=True)
class TwinNonces:
    """Every live tag with its tenant, by the second in which it may be forgotten."""

    capacity: int
    share_per_tenant: int
    now_unix_ns: int = MIN_I64
    seconds: dict[int, dict[bytes, str]] = field(default_factory=dict)
    live: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return self.live.total()

    def claim(self, source: str, tag: bytes, until_unix_ns: int, now_unix_ns: int) -> Verdict:
        """UNDECIDED when claimed."""
        self.now_unix_ns = max(self.now_unix_ns, now_unix_ns)
        for over in [second for second in self.seconds if second < self.now_unix_ns // NS]:
            self.live.subtract(self.seconds.pop(over).values())
        held = self.seconds.get(until_unix_ns // NS, {})
        if until_unix_ns < self.now_unix_ns or tag[:8] in held:
            return Verdict.REPLAYED
        tenant = source.partition("/")[0]
        if len(self) >= self.capacity or self.live[tenant] >= self.share_per_tenant:
            return Verdict.SATURATED
        self.seconds.setdefault(until_unix_ns // NS, {})[tag[:8]] = tenant
        self.live[tenant] += 1
        return Verdict.UNDECIDED


# --- a batch


@dataclass(frozen=True, slots=True)
class TwinKey:
    """One key version; `not_after_unix_ns` of 0 means for ever."""

    version: str
    secret: bytes = field(repr=False)
    not_before_unix_ns: int = 0
    not_after_unix_ns: int = 0
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class TwinJudgement:
    """The twin's judgement of a batch; `runs` as in the native Judgement."""

    frame_code: int = 0
    batch_seq: int = 0
    budget_ms: int = 0
    codes: bytes = b""
    runs: bytes = b""


@dataclass(slots=True)
class TwinAdmission:
    """The order of Shield's questions, one after the other."""

    audience: str
    window_ms: int = 60_000
    nonce_capacity: int = 40_000_000
    nonce_share_per_tenant: int = 20_000_000
    max_batch_bytes: int = 1 << 20
    max_batch_commands: int = 1000
    max_payload_bytes: int = 256 << 10
    keysets: dict[str, list[TwinKey]] = field(default_factory=dict)
    suspended: set[str] = field(default_factory=set)
    latest_unix_ns: int = MIN_I64
    nonces: TwinNonces = field(init=False)

    def __post_init__(self) -> None:
        self.nonces = TwinNonces(self.nonce_capacity, self.nonce_share_per_tenant)

    def judge(self, submission: bytes, *, source: str, cert_serial: str, now_unix_ns: int) -> TwinJudgement:
        """A code per command; 0 where accepted."""
        if len(submission) > self.max_batch_bytes:
            return TwinJudgement(frame_code=Verdict.OVERSIZED)
        commands: list[bytes] = []
        header: bytes | None = None
        numbers: dict[int, int] = {}
        try:
            for number, wire, value in walk(submission):
                if wire != 2 or number not in (2, 3) or (number == 2 and header is not None):
                    raise NotAMessageError
                assert isinstance(value, bytes)
                if number == 2:
                    header = value
                    numbers = read_header(header)
                elif len(commands) >= self.max_batch_commands:
                    return TwinJudgement(frame_code=Verdict.OVERSIZED)
                else:
                    commands.append(value)
        except NotAMessageError:
            return TwinJudgement(frame_code=Verdict.MALFORMED)

        self.latest_unix_ns = now = max(self.latest_unix_ns, now_unix_ns)
        codes = bytearray()
        accepted: list[tuple[str, bytes]] = []
        for command in commands:
            code = self.decide(command, source=source, now_unix_ns=now)
            codes.append(code)
            if code == Verdict.UNDECIDED:
                accepted.append((parse_command(command)["key_version"].decode(), command))
        return TwinJudgement(
            batch_seq=numbers.get(1, 0),
            budget_ms=numbers.get(2, 0),
            codes=bytes(codes),
            runs=join_runs(accepted, source=source, cert_serial=cert_serial, now_unix_ns=now),
        )

    def decide(self, command: bytes, *, source: str, now_unix_ns: int) -> Verdict:
        """One command, question by question."""
        try:
            fields = parse_command(command)
        except NotAMessageError:
            return Verdict.MALFORMED
        fault = schema_fault(fields, max_payload_bytes=self.max_payload_bytes)
        if fault is not None:
            return fault
        if self.suspended & {source, source.partition("/")[0] + "/*"}:
            return Verdict.SUSPENDED
        version = fields["key_version"].decode()
        key = next((key for key in self.keysets.get(source, []) if key.version == version), None)
        if key is None:
            return Verdict.UNKNOWN_KEY_VERSION
        if key.revoked:
            return Verdict.KEY_REVOKED
        sent = parse_timestamp(fields["timestamp"].decode())
        assert sent is not None
        if sent < key.not_before_unix_ns or (key.not_after_unix_ns and sent >= key.not_after_unix_ns):
            return Verdict.KEY_EXPIRED
        if fields["audience"].decode() != self.audience:
            return Verdict.WRONG_AUDIENCE
        window_ns = self.window_ms * 1_000_000
        if abs(sent - now_unix_ns) > window_ns:
            return Verdict.TIMESTAMP_OUTSIDE_WINDOW
        if not hmac.compare_digest(tag_of(key.secret, fields), fields["hmac"]):
            return Verdict.HMAC_MISMATCH
        return self.nonces.claim(source, fields["hmac"], min(sent + window_ns, MAX_I64), now_unix_ns)


def read_header(header: bytes) -> dict[int, int]:
    """BatchHeader's two numbers."""
    numbers: dict[int, int] = {}
    for number, wire, value in walk(header):
        if wire != 0 or number not in (1, 2) or number in numbers:
            raise NotAMessageError
        assert isinstance(value, int)
        if number == 2 and value >= 2**32:
            raise NotAMessageError
        numbers[number] = value
    return numbers


def join_runs(accepted: list[tuple[str, bytes]], *, source: str, cert_serial: str, now_unix_ns: int) -> bytes:
    """`Batch.run` fields: a new run wherever the key version changes."""
    out = b""
    body = b""
    for position, (version, command) in enumerate(accepted):
        if position == 0 or accepted[position - 1][0] != version:
            out += put(3, body) if body else b""
            body = put(1, source.encode()) + put(2, version.encode()) + put(3, cert_serial.encode())
            body += put_number(4, now_unix_ns)
        body += put(5, command)
    return out + (put(3, body) if body else b"")


def submission(commands: list[bytes], *, batch_seq: int = 1, budget_ms: int = 5000) -> bytes:
    """A serialised Submission."""
    header = put_number(1, batch_seq) + put_number(2, budget_ms)
    return put(2, header) + b"".join(put(3, command) for command in commands)
