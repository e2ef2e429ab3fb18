"""The protocol of a queue that is not our own: one attempt at storing messages.

A message is a serialised Run with a single command. Retries, budgets and the answers to the sender are
`RetryingQueue`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from snavio.domain.verdict import Verdict


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One command on its way."""

    source: str
    command_id: str
    run: bytes


@dataclass(frozen=True, slots=True)
class DriverResult:
    """The result of one attempt, message by message.

    UNDECIDED messages were definitely not stored and may be tried again; OUTCOME_UNKNOWN ones may have been stored.
    """

    verdicts: tuple[Verdict, ...]
    retry_after_ms: int = 0
    detail: str = ""


class DriverFailed(Exception):
    """The attempt failed as a whole. With `perhaps`, messages may have been stored all the same."""

    def __init__(self, cause: str, *, perhaps: bool) -> None:
        super().__init__(cause)
        self.cause = cause
        self.perhaps = perhaps


class QueueDriver(Protocol):
    """A queue's own protocol. Any number of attempts may run at once."""

    async def deliver(
        self, topic: str, messages: Sequence[OutgoingMessage], *, token: str, timeout_s: float
    ) -> DriverResult:
        """Store the messages durably, in order; one verdict each.

        `token` names this delivery and is the same in every attempt at it. Raises DriverFailed, and nothing else
        that a network or a server can cause.
        """
        ...

    async def close(self) -> None:
        """Release connections. Bounded in time."""
        ...
