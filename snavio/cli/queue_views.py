"""Topics and messages for people and for programs: tables, plain lines, JSON documents.

Never lets a control character of somebody's payload or error reach the terminal.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snavio.cli.output import ago, console, count, fancy, line

if TYPE_CHECKING:
    from snavio.admin.queue import Preview, TopicMessage, TopicStats

Rows = Sequence[Sequence[str]]
MOST_LETTERS = 60


def topic_document(one: TopicStats) -> dict[str, Any]:
    """A topic as JSON."""
    return {
        "topic": one.topic,
        "ready": one.ready,
        "inflight": one.inflight,
        "delivered": one.delivered,
        "dead": one.dead,
        "canceled": one.canceled,
        "oldest_age_ms": one.oldest_age_ms,
        "capacity": one.capacity,
        "saturation": round(one.saturation, 4),
        "dlq_profile": one.dlq_profile,
        "died": dict(one.died),
        "stored_total": one.stored_total,
        "acked_total": one.acked_total,
    }


def show_topics(topics: Sequence[TopicStats]) -> None:
    """A row per topic."""
    names = ("topic", "ready", "leased", "dead", "canceled", "oldest", "full")
    rows = [
        (
            one.topic,
            count(one.ready),
            count(one.inflight),
            count(one.dead),
            count(one.canceled),
            oldest(one),
            share(one.saturation),
        )
        for one in topics
    ]
    table(names, rows, numbers_from=1, styles=[style(one) for one in topics])


def show_topic(one: TopicStats) -> None:
    """One topic, a line per thing."""
    died = ", ".join(f"{reason} {count(number)}" for reason, number in sorted(one.died.items()))
    profile = "" if one.dlq_profile == "durable" else " (ephemeral: a restart empties it)"
    for name, value in (
        ("topic", one.topic),
        ("ready", count(one.ready)),
        ("leased", count(one.inflight)),
        ("delivered", f"{count(one.delivered)} kept"),
        ("dead", f"{count(one.dead)}{profile}"),
        ("canceled", count(one.canceled)),
        ("oldest", oldest(one)),
        ("full", f"{share(one.saturation)} of {count(one.capacity)}"),
        ("died", died or "nothing since the mailbox started"),
        ("moved", f"{count(one.stored_total)} in, {count(one.acked_total)} out since the mailbox started"),
    ):
        line(f"{name:<10} {value}")


def message_document(one: TopicMessage) -> dict[str, Any]:
    """A message as JSON; payload only when it was asked for."""
    told: dict[str, Any] = {
        "msg_id": one.msg_id,
        "state": one.state.name.lower(),
        "attempt": one.attempt,
        "stored": moment(one.stored_unix_ns),
        "next_run_at": moment(one.next_run_at_unix_ns),
        "source": one.source,
        "command_id": one.command_id,
        "target": one.target,
        "name": one.name,
        "shard": one.shard,
        "idem_key": one.idem_key,
        "attributes": dict(one.attributes),
        "content_type": one.content_type,
        "payload_bytes": one.payload_bytes,
        "reason": one.reason,
        "last_error": one.last_error,
        "ended": moment(one.ended_unix_ns),
        "unreadable": one.unreadable,
        "attempts": [
            {
                "attempt": each.attempt,
                "at": moment(each.at_unix_ns),
                "outcome": each.outcome.name.lower(),
                "reason": each.reason,
            }
            for each in one.attempts
        ],
    }
    if one.payload:
        try:
            told["payload"] = one.payload.decode()
        except UnicodeDecodeError:
            told["payload_base64"] = base64.b64encode(one.payload).decode()
    return told


def show_messages(messages: Sequence[TopicMessage]) -> None:
    """A row per message."""
    names = ("id", "state", "try", "stored", "source", "command", "payload")
    rows = [
        (
            str(one.msg_id),
            _state(one),
            str(one.attempt),
            clock(one.stored_unix_ns),
            printable(one.source),
            printable(one.name),
            _payload(one),
        )
        for one in messages
    ]
    table(names, rows)


def show_dead(messages: Sequence[TopicMessage], total: int) -> None:
    """A row per dead message, and how many there are."""
    names = ("id", "reason", "try", "ended", "source", "command", "last error")
    rows = [
        (
            str(one.msg_id),
            printable(one.reason),
            str(one.attempt),
            clock(one.ended_unix_ns),
            printable(one.source),
            printable(one.name),
            printable(one.last_error),
        )
        for one in messages
    ]
    table(names, rows)
    payloads = [one for one in messages if one.payload]
    for one in payloads:
        line(f"{one.msg_id}  {_payload(one)}")
    if total > len(messages):
        line(f"{count(len(messages))} shown; {count(total)} are dead.")


def preview_document(preview: Preview) -> dict[str, Any]:
    """A preview as JSON."""
    return {"matched": preview.matched, "samples": [message_document(one) for one in preview.samples]}


def show_preview(preview: Preview, would: str) -> None:
    """What a change would do, and how to have it done."""
    if not preview.matched:
        line("Nothing matches.")
        return
    show_messages(preview.samples)
    if preview.matched > len(preview.samples):
        line(f"… and {count(preview.matched - len(preview.samples))} more.")
    plural = "message" if preview.matched == 1 else "messages"
    line(f"{count(preview.matched)} {plural} {would}. Nothing was changed:")
    line(f"the same with `--yes --at-most {preview.matched}` does it.")


def table(
    names: Sequence[str], rows: Rows, *, numbers_from: int | None = None, styles: Sequence[str] = ()
) -> None:
    """Rows under their names; a rich table where it can be read."""
    out = console()
    if fancy(out):
        from rich import box
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
        for place, name in enumerate(names):
            right = numbers_from is not None and place >= numbers_from
            shown.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=place == 0)
        for place, row in enumerate(rows):
            # As text: brackets in a payload are not markup.
            shown.add_row(*(Text(cell) for cell in row), style=styles[place] if styles else "")
        out.print(shown)
        return
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in [names, *rows]:
        cells = [
            cell.rjust(width) if numbers_from is not None and place >= numbers_from else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line("  ".join(cells).rstrip())


def style(one: TopicStats) -> str:
    """Red when senders are about to be refused, yellow when something died."""
    if one.saturation >= 0.9:
        return "red"
    return "yellow" if one.dead else ""


def oldest(one: TopicStats) -> str:
    """How long the oldest has waited."""
    return ago(one.oldest_age_ms / 1000) if one.ready + one.inflight else "-"


def share(part: float) -> str:
    """12 % · 0.3 % · 0 %."""
    percent = part * 100
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


def printable(text: str, most: int = MOST_LETTERS) -> str:
    """What may stand on a terminal, on one line."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text.rstrip("\n"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def moment(unix_ns: int) -> str | None:
    """A time for programs; None for none."""
    if not unix_ns:
        return None
    return (
        datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def clock(unix_ns: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%m-%d %H:%M:%S") if unix_ns else "-"


def _state(one: TopicMessage) -> str:
    from snavio.domain.message import MessageState

    delayed = one.state is MessageState.READY and one.next_run_at_unix_ns
    return f"from {clock(one.next_run_at_unix_ns)}" if delayed else one.state.name.lower()


def _payload(one: TopicMessage) -> str:
    if one.unreadable:
        return "(damaged)"
    try:
        return printable(one.payload.decode()) if one.payload else f"({one.payload_bytes} bytes)"
    except UnicodeDecodeError:
        return f"({one.payload_bytes} bytes)"
