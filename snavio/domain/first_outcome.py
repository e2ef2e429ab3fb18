"""Sentences about the first outcome of an id: when it was stored, and as which message.

Never names a message of a foreign queue: the queue's own number for it is not known here; it bears the command's id.
"""

from __future__ import annotations

from datetime import UTC, datetime


def delivered_at(unix_ns: int) -> str:
    """Where the queue is not the mailbox."""
    return f"Delivered at {_time(unix_ns)}; the message bears the same id."


def stored_at(msg_id: int, unix_ns: int) -> str:
    """In the mailbox; as `Ledger.decide_each` says it. 0 for a time that nobody knows."""
    if unix_ns:
        return f"Stored at {_time(unix_ns)} as message {msg_id}."
    return f"Stored as message {msg_id}, before the mailbox last started."


def _time(unix_ns: int) -> str:
    at = datetime.fromtimestamp(unix_ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")
    return at.removesuffix("+00:00") + "Z"
