"""Dead letters of queues that keep none themselves: moved there with a reason, listed, and sent again.

Each move is one step: a message is in its queue or among the dead letters, never in both and never in neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that was given up."""

    letter_id: str
    reason: str
    """`max-attempts`, or the consumer's own."""
    attempts: int
    died_unix_ns: int
    stored_unix_ns: int
    """When it came into its queue."""
    run: bytes = field(repr=False)
    """A serialised Run with the single command."""


class DeadLetters(Protocol):
    """See the module. Unavailable while the server is away."""

    async def sweep(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Move what was delivered too often and is not worked on; how many, by topic, of those with any."""
        ...

    async def listed(self, topic: str, *, limit: int, after: str = "") -> list[DeadLetter]:
        """Dead letters, oldest first, beyond an id."""
        ...

    async def redrive(self, topic: str, letter_ids: Sequence[str]) -> int:
        """Put these back at the end of the queue, as new; how many were there."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
