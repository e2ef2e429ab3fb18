"""Durable state of one process's journal: its last number, and events that must not be lost.

The journal itself is in memory; this is the small part that survives the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EndedLife:
    """An earlier life of this process; `kept` are (number, block) of events that were made durable."""

    epoch: int
    last_seq: int
    kept: tuple[tuple[int, bytes], ...] = ()


class JournalMark(Protocol):
    """One per process name; a second process of that name is refused with StateError."""

    def ended(self) -> Sequence[EndedLife]:
        """Earlier lives that are not settled, oldest first; at most 64, the oldest are dropped."""
        ...

    def reached(self, seq: int) -> None:
        """Record that events up to `seq` exist. Cheap; survives the death of the process, not a power cut."""
        ...

    def keep(self, seq: int, block: bytes) -> None:
        """Keep one event; durable when this returns. Saturated when too many are not settled."""
        ...

    def settled(self, epoch: int, seq: int) -> None:
        """Events of that life up to `seq` are stored by Relay and need not be kept."""
        ...

    def closed(self, epochs: Sequence[int]) -> None:
        """Forget those earlier lives."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...
