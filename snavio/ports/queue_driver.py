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


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as it is now."""

    flaw: str = ""
    """Why no command can be stored there; empty when one can."""
    waiting: int = 0
    room: int | None = None
    """Messages that still fit; None where only the provider knows a bound."""

    @property
    def full(self) -> bool:
        """Nothing is wrong with it but that it has no room."""
        return self.room == 0


class DriverFailed(Exception):
    """The attempt failed as a whole. With `perhaps`, messages may have been stored all the same; with `unfit` the
    server answered, and may not be used as it is.
    """

    def __init__(self, cause: str, *, perhaps: bool, unfit: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.perhaps = perhaps
        self.unfit = unfit


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

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        """Look at a topic's queue afresh, as before a delivery, and store nothing. Raises DriverFailed."""
        ...

    async def close(self) -> None:
        """Release connections. Bounded in time."""
        ...
