"""The life of a stored message: its states, what became of each attempt, and how it ended.

Values only. A message is ready or inflight until it ends; an end other than an acknowledgement always says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAX_HISTORY = 8
"""Attempt records of one message; the oldest make room."""
MAX_REASON_BYTES = 256


class MessageState(IntEnum):
    """Where a message is. The numbers of `snavio.v1.MessageState`; they never change."""

    READY = 1
    """Waits to be received, now or from `next_run_at` on."""
    INFLIGHT = 2
    """Leased to a consumer."""
    DELIVERED = 3
    """Acknowledged, and kept for a while."""
    DEAD = 4
    """In the topic's DLQ, with a reason."""
    CANCELED = 5
    """Taken out by an operator, who may put it back."""
    PURGED = 6
    """Deleted; only the batch that it came with still knows."""


class AttemptOutcome(IntEnum):
    """Why an attempt was not the last. The numbers of `snavio.v1.AttemptOutcome`."""

    EXPIRED = 1
    """Nobody settled it before its deadline."""
    NACKED = 2
    """The consumer gave it back."""


class DeadReason:
    """Stable words for the DLQ and its metric."""

    MAX_ATTEMPTS = "max-attempts"
    NACK = "nack-dead"
    EXPIRED = "expired"
    INTEGRITY = "integrity"


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
    """How messages ended, if not by an acknowledgement."""

    state: MessageState
    """DEAD, CANCELED or PURGED."""
    attempt: int
    """The last one; for canceled messages the one that they have before them."""
    reason: str = ""
    last_error: str = ""
    at_unix_ns: int = 0
    """For people."""
    age_ns: int = 0
    """On the store's own clock of age, which retention goes by."""
    history: History = ()


def bounded(text: str, most: int = MAX_REASON_BYTES) -> str:
    """At most `most` bytes of the text, cut between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")
