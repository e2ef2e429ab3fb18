"""The states of a stored message, the results of its attempts, and its endings.

Values only. A message is ready or inflight until it ends; an ending other than an acknowledgement always has a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAX_HISTORY = 8
"""Attempt records of one message; the oldest are dropped."""
MAX_REASON_BYTES = 256


class MessageState(IntEnum):
    """State of a message. The numbers of `snavio.v1.MessageState`; they never change."""

    READY = 1
    """Can be received, now or from `next_run_at` on."""
    INFLIGHT = 2
    """Leased to a consumer."""
    DELIVERED = 3
    """Acknowledged, and kept for the retention time."""
    DEAD = 4
    """In the topic's DLQ, with a reason."""
    CANCELED = 5
    """Removed by an operator, who may restore it."""
    PURGED = 6
    """Deleted; only its batch's record still mentions it."""


KEPT_STATES: Final = frozenset(MessageState) - {MessageState.PURGED}
"""States of a message that can still be looked at."""


class AttemptOutcome(IntEnum):
    """Result of an attempt without acknowledgement. The numbers of `snavio.v1.AttemptOutcome`."""

    EXPIRED = 1
    """The lease ended without a settlement."""
    NACKED = 2
    """The consumer returned it."""


class DeadReason:
    """Stable names for the DLQ and its metric."""

    MAX_ATTEMPTS = "max-attempts"
    NACK = "nack-dead"
    EXPIRED = "expired"
    INTEGRITY = "integrity"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery that did not end with an acknowledgement."""

    attempt: int
    at_unix_ns: int
    outcome: AttemptOutcome
    reason: str = ""


History = tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class MessageEnding:
    """Ending of messages other than by acknowledgement."""

    state: MessageState
    """DEAD, CANCELED or PURGED."""
    attempt: int
    """The last attempt; for canceled messages the next one."""
    reason: str = ""
    last_error: str = ""
    at_unix_ns: int = 0
    """Wall-clock time, for display."""
    age_ns: int = 0
    """Time on the store's own clock, which retention uses."""
    history: History = ()


def bounded(text: str, most: int = MAX_REASON_BYTES) -> str:
    """The text cut to at most `most` bytes, between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")
