"""Topics and messages as documents, rows and records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snavio.cli.output import ago, count
from snavio.cli.render import (
    AGE,
    CLIPPED,
    NUMBER,
    SHARE,
    Block,
    Record,
    Row,
    Table,
    TableColumn,
    one_line,
    payload_document,
    payload_text,
    picked,
    share_text,
    time_text,
)

if TYPE_CHECKING:
    from snavio.admin.queue import Preview, TopicMessage, TopicStats


def _oldest_s(one: Row) -> float | None:
    return one["oldest_age_ms"] / 1000 if one["ready"] + one["inflight"] else None


LEASED = TableColumn("leased", "inflight", NUMBER)
DEAD = TableColumn("dead", kind=NUMBER)
OLDEST = TableColumn("oldest", _oldest_s, AGE)
FULL = TableColumn("full", "saturation", SHARE)


def topic_document(one: TopicStats) -> dict[str, Any]:
    """A topic as JSON."""
    return asdict(one) | {"saturation": round(one.saturation, 4)}


def topics_table(rows: Sequence[Row], none: str) -> Table:
    """A row per topic."""
    return Table(
        (
            "topic",
            TableColumn("ready", kind=NUMBER),
            *(LEASED, DEAD, TableColumn("canceled", kind=NUMBER), OLDEST, FULL),
        ),
        rows,
        none=none,
        style=style,
    )


def topic_record(one: Row) -> Record:
    """One topic, a line per thing."""
    died = ", ".join(f"{reason} {count(number)}" for reason, number in sorted(one["died"].items()))
    profile = "" if one["dlq_profile"] == "durable" else " (ephemeral: a restart empties it)"
    moved = f"{count(one['stored_total'])} in, {count(one['acked_total'])} out since the mailbox started"
    return Record(
        (
            ("topic", one["topic"]),
            ("ready", count(one["ready"])),
            ("leased", count(one["inflight"])),
            ("delivered", f"{count(one['delivered'])} kept"),
            ("dead", f"{count(one['dead'])}{profile}"),
            ("canceled", count(one["canceled"])),
            ("oldest", oldest(one)),
            ("full", f"{share_text(one['saturation'])} of {count(one['capacity'])}"),
            ("died", died or "nothing since the mailbox started"),
            ("moved", moved),
        )
    )


def message_document(one: TopicMessage) -> dict[str, Any]:
    """A message as JSON; payload only when it was asked for."""
    told: dict[str, Any] = {
        **picked(one, "msg_id", "attempt", "source", "command_id", "target", "name", "shard", "idem_key"),
        **picked(one, "content_type", "payload_bytes", "reason", "last_error", "unreadable"),
        "state": one.state.name.lower(),
        "stored": time_text(one.stored_unix_ns, milliseconds=True),
        "next_run_at": time_text(one.next_run_at_unix_ns, milliseconds=True),
        "ended": time_text(one.ended_unix_ns, milliseconds=True),
        "attributes": dict(one.attributes),
        "attempts": [
            {
                "attempt": each.attempt,
                "at": time_text(each.at_unix_ns, milliseconds=True),
                "outcome": each.outcome.name.lower(),
                "reason": each.reason,
            }
            for each in one.attempts
        ],
    }
    return told | payload_document(one.payload) if one.payload else told


def _rows(messages: Sequence[TopicMessage]) -> list[dict[str, Any]]:
    return [
        {
            **picked(one, "reason", "source"),
            "id": one.msg_id,
            "state": _state(one),
            "try": one.attempt,
            "stored": clock(one.stored_unix_ns),
            "ended": clock(one.ended_unix_ns),
            "command": one.name,
            "payload": _payload(one),
            "last error": one.last_error,
        }
        for one in messages
    ]


_TRY = (TableColumn("try", kind=NUMBER),)
_WHAT = (TableColumn("source", kind=CLIPPED), TableColumn("command", kind=CLIPPED))


def messages_table(messages: Sequence[TopicMessage], none: str = "") -> Table:
    """A row per message."""
    columns = ("id", "state", *_TRY, "stored", *_WHAT, TableColumn("payload", kind=CLIPPED))
    return Table(columns, _rows(messages), none=none)


def dead_blocks(messages: Sequence[TopicMessage], total: int) -> Iterator[Block]:
    """A row per dead message, their payloads where they were asked for, and the number of all."""
    columns = ("id", "reason", *_TRY, "ended", *_WHAT, TableColumn("last error", kind=CLIPPED))
    yield Table(columns, _rows(messages))
    for one in messages:
        if one.payload:
            yield f"{one.msg_id}  {one_line(_payload(one))}"
    if total > len(messages):
        yield f"{count(len(messages))} shown; {count(total)} are dead."


def preview_document(preview: Preview) -> dict[str, Any]:
    """A preview as JSON."""
    return {"matched": preview.matched, "samples": [message_document(one) for one in preview.samples]}


def preview_blocks(preview: Preview, would: str) -> Iterator[Block]:
    """The effect of a change, and the options that apply it."""
    yield messages_table(preview.samples, "" if preview.matched else "Nothing matches.")
    if preview.matched > len(preview.samples):
        yield f"… and {count(preview.matched - len(preview.samples))} more."
    if preview.matched:
        plural = "message" if preview.matched == 1 else "messages"
        yield f"{count(preview.matched)} {plural} {would}. Nothing was changed:"
        yield f"the same with `--yes --at-most {preview.matched}` does it."


def style(one: Row) -> str:
    """Red when senders are about to be refused, yellow when something died."""
    if one["saturation"] >= 0.9:
        return "red"
    return "yellow" if one["dead"] else ""


def oldest(one: Row) -> str:
    """The age of the oldest message that waits."""
    age_s = _oldest_s(one)
    return "-" if age_s is None else ago(age_s)


def clock(unix_ns: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%m-%d %H:%M:%S") if unix_ns else "-"


def _state(one: TopicMessage) -> str:
    from snavio.domain.message import MessageState

    delayed = one.state is MessageState.READY and one.next_run_at_unix_ns
    return f"from {clock(one.next_run_at_unix_ns)}" if delayed else one.state.name.lower()


def _payload(one: TopicMessage) -> str:
    return "(damaged)" if one.unreadable else payload_text(one.payload, one.payload_bytes)
