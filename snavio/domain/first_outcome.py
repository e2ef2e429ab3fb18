"""The sentence about the first outcome of an id, where the queue is not the mailbox.

Never names a message: a foreign queue's own number for it is not known here; it bears the command's id.
"""

from __future__ import annotations

from datetime import UTC, datetime


def delivered_at(unix_ns: int) -> str:
    """When the first one was delivered."""
    at = datetime.fromtimestamp(unix_ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")
    return f"Delivered at {at.removesuffix('+00:00')}Z; the message bears the same id."
