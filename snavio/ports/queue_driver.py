"""One way of putting commands into a queue that is not our own.

An entry is a serialised Run with a single command. A carrier makes one attempt; patience, budgets and the
answers to the sender are the courier's.
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
    """What one attempt came to, entry by entry.

    UNDECIDED entries were definitely not stored and may be tried again; of OUTCOME_UNKNOWN nobody knows.
    """

    verdicts: tuple[Verdict, ...]
    retry_after_ms: int = 0
    detail: str = ""


class DriverFailed(Exception):
    """The attempt failed as a whole. `perhaps` tells whether entries may have been stored all the same."""

    def __init__(self, cause: str, *, perhaps: bool) -> None:
        super().__init__(cause)
        self.cause = cause
        self.perhaps = perhaps


class QueueDriver(Protocol):
    """A queue's own protocol. Any number of attempts may run at once."""

    async def deliver(
        self, topic: str, messages: Sequence[OutgoingMessage], *, token: str, timeout_s: float
    ) -> DriverResult:
        """Store the entries durably, in order; one verdict each.

        `token` names this delivery and is the same in every attempt at it. Raises NotCarried, and nothing else
        that a network or a server can cause.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. Bounded in time."""
        ...
