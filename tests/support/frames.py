"""Builds the frames that mesh services exchange, and reads their answers, with the protobuf library alone.

It must never use the native code: tests compare the native code with what this says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from snavio.v1.batch_pb2 import Batch, Run, Verdicts
from snavio.v1.command_pb2 import Command
from snavio.v1.mailbox_pb2 import SendBatch
from snavio.v1.slow_pb2 import ArbitrationBatch
from snavio.v1.telemetry_pb2 import TelemetryBlock

SOURCE = "acme/billing"
TARGET = "discord-bot"
NAME = "delete-user"
TOPIC = "acme/discord-bot"
TIMESTAMP = "2026-11-16T02:00:00.000000007Z"
TIMESTAMP_UNIX_NS = 1_794_794_400_000_000_007


def command(
    *,
    target: str = TARGET,
    name: str = NAME,
    payload: bytes = b"{}",
    command_id: str | None = None,
    timestamp: str = TIMESTAMP,
    content_type: str = "application/json",
    traceparent: str = "",
) -> bytes:
    """A serialised Command, as Shield would have let it in."""
    built: bytes = Command(
        id=command_id or str(uuid.uuid4()),
        timestamp=timestamp,
        type="snavio.command-sent",
        key_version="hmac-v1",
        audience="epoch-1",
        hmac=b"\x07" * 32,
        target=target,
        name=name,
        content_type=content_type,
        payload=payload,
        traceparent=traceparent,
    ).SerializeToString()
    return built


@dataclass(frozen=True, slots=True)
class RunOf:
    """Commands of one source."""

    commands: Sequence[bytes]
    source: str = SOURCE
    key_version: str = "hmac-v1"
    cert_serial: str = "c0ffee"
    admitted_unix_ns: int = 1_794_794_400_500_000_000

    def message(self) -> Run:
        """The Run message."""
        return Run(
            source=self.source,
            key_version=self.key_version,
            cert_serial=self.cert_serial,
            admitted_unix_ns=self.admitted_unix_ns,
            command=self.commands,
        )


def batch(*runs: RunOf, batch_seq: int = 7, budget_ms: int = 5000) -> bytes:
    """A serialised Batch."""
    built = Batch(run=[run.message() for run in runs])
    built.header.batch_seq = batch_seq
    built.header.budget_ms = budget_ms
    frame: bytes = built.SerializeToString()
    return frame


def escalated(*escalations: tuple[int, Sequence[RunOf]], batch_seq: int = 7, budget_ms: int = 5000) -> bytes:
    """A serialised ArbitrationBatch of (reason, runs)."""
    built = ArbitrationBatch()
    built.header.batch_seq = batch_seq
    built.header.budget_ms = budget_ms
    for reason, runs in escalations:
        built.escalation.add(reason=reason, run=[run.message() for run in runs])
    frame: bytes = built.SerializeToString()
    return frame


def sent(*topics: tuple[str, Sequence[RunOf]], batch_seq: int = 7, budget_ms: int = 5000) -> bytes:
    """A serialised SendBatch of (topic, runs)."""
    built = SendBatch()
    built.header.batch_seq = batch_seq
    built.header.budget_ms = budget_ms
    for topic, runs in topics:
        built.topic.add(topic=topic, run=[run.message() for run in runs])
    frame: bytes = built.SerializeToString()
    return frame


def run_of(message: Run) -> RunOf:
    """The value of a Run message."""
    return RunOf(
        commands=list(message.command),
        source=message.source,
        key_version=message.key_version,
        cert_serial=message.cert_serial,
        admitted_unix_ns=message.admitted_unix_ns,
    )


def topics_of(fields: bytes) -> list[tuple[str, list[RunOf]]]:
    """(topic, runs) of serialised `SendBatch.topic` fields."""
    return [(entry.topic, [run_of(run) for run in entry.run]) for entry in SendBatch.FromString(fields).topic]


def escalations_of(fields: bytes) -> list[tuple[int, list[RunOf]]]:
    """(reason, runs) of serialised `ArbitrationBatch.escalation` fields."""
    opened = ArbitrationBatch.FromString(fields).escalation
    return [(entry.reason, [run_of(run) for run in entry.run]) for entry in opened]


Hint = tuple[int, int, int, int, str]
"""(index, reason, retry_after_ms, throttle_until_unix_ns, detail)."""


@dataclass(frozen=True, slots=True)
class Said:
    """Contents of one Verdicts message."""

    batch_seq: int
    decided: dict[int, int] = field(default_factory=dict)
    hints: tuple[Hint, ...] = ()
    final: bool = False


def said(frame: bytes) -> Said:
    """Reads a serialised Verdicts message."""
    read = Verdicts.FromString(frame)
    decided = {read.first + place: code for place, code in enumerate(read.codes) if code}
    hints = tuple(
        (hint.index, hint.reason, hint.retry_after_ms, hint.throttle_until_unix_ns, hint.detail)
        for hint in read.refusal
    )
    return Said(read.batch_seq, decided, hints, read.final)


def verdicts(
    codes: bytes, *, first: int = 0, batch_seq: int = 1, final: bool = False, hints: Iterable[Hint] = ()
) -> bytes:
    """A serialised Verdicts message, as a next hop would answer."""
    built = Verdicts(batch_seq=batch_seq, first=first, codes=codes, final=final)
    for index, reason, retry_after_ms, throttle_until_unix_ns, detail in hints:
        built.refusal.add(
            index=index,
            reason=reason,
            retry_after_ms=retry_after_ms,
            throttle_until_unix_ns=throttle_until_unix_ns,
            detail=detail,
        )
    frame: bytes = built.SerializeToString()
    return frame


@dataclass(frozen=True, slots=True)
class TelemetryRow:
    """One command of a TelemetryBlock."""

    command_id: str
    verdict: int
    source: str
    target: str
    name: str
    sent_unix_ns: int
    admitted_unix_ns: int
    escalation: int
    kind: int = 0
    key_version: str = ""
    topic: str = ""
    phase: int = 0
    acl_version: int = 0
    acl_age_ms: int = 0
    grant: int = 0


def rows(block: bytes) -> list[TelemetryRow]:
    """The rows of a serialised TelemetryBlock; checks that every column has as many entries."""
    read = TelemetryBlock.FromString(block)
    count = len(read.verdict)
    assert all(len(column) == count for column in (read.lane, read.run, read.sent_unix_ns))
    assert len(read.kind) in (0, count)
    assert len(read.command_id) == 16 * count
    assert not block or read.dictionary[0] == ""
    words = read.dictionary
    lanes = [read.lanes[lane] for lane in read.lane]
    runs = [read.runs[run] for run in read.run]
    return [
        TelemetryRow(
            command_id=str(uuid.UUID(bytes=bytes(read.command_id[16 * row : 16 * row + 16]))),
            verdict=read.verdict[row],
            source=words[lane.source],
            target=words[lane.target],
            name=words[lane.name],
            sent_unix_ns=read.sent_unix_ns[row],
            admitted_unix_ns=run.admitted_unix_ns,
            escalation=lane.escalation,
            kind=read.kind[row] if read.kind else 0,
            key_version=words[run.key_version],
            topic=words[lane.topic],
            phase=lane.phase,
            acl_version=lane.acl_version,
            acl_age_ms=lane.acl_age_ms,
            grant=lane.grant,
        )
        for row, (lane, run) in enumerate(zip(lanes, runs, strict=True))
    ]
