"""What one process remembers of its journal over its own death: how far it had come, and what must not be lost.

Journals live in memory; this is the little that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EndedLife:
    """A life of this process that has ended; `kept` are (number, block) of events that were made durable."""

    epoch: int
    last_seq: int
    kept: tuple[tuple[int, bytes], ...] = ()


class JournalMark(Protocol):
    """One per process name; a second process of that name is refused with StateError."""

    def ended(self) -> Sequence[EndedLife]:
        """Lives before this one that nobody has settled, oldest first; at most 64, the oldest are forgotten."""
        ...

    def reached(self, seq: int) -> None:
        """Events up to `seq` are written down. Cheap; survives the death of the process, not a power cut."""
        ...

    def keep(self, seq: int, block: bytes) -> None:
        """Keep one event; durable when this returns. Saturated when too many wait to be settled."""
        ...

    def settled(self, epoch: int, seq: int) -> None:
        """Events of that life up to `seq` are safe elsewhere, and need not be kept."""
        ...

    def closed(self, epochs: Sequence[int]) -> None:
        """Those ended lives are settled for good."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
