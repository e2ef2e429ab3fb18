"""A service's own telemetry: native column blocks in memory, bounded, numbered without gaps.

Never waits and never grows: when full, the oldest block makes room and its rows are counted as dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """One serialised TelemetryBlock with its number."""

    seq: int
    rows: int
    columns: bytes


class Journal:
    """The last blocks of one process. Relay reads them by number; `dropped_rows` tells what it missed."""

    def __init__(self, *, max_bytes: int = 16 << 20) -> None:
        self._blocks: deque[Block] = deque()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._next_seq = 1
        self.rows = 0
        self.dropped_rows = 0

    def append(self, columns: bytes, *, rows: int) -> None:
        """Add a block; an empty one is ignored."""
        if not columns:
            return
        self._blocks.append(Block(self._next_seq, rows, columns))
        self._next_seq += 1
        self._bytes += len(columns)
        self.rows += rows
        while self._bytes > self._max_bytes and len(self._blocks) > 1:
            oldest = self._blocks.popleft()
            self._bytes -= len(oldest.columns)
            self.dropped_rows += oldest.rows

    def counters(self) -> dict[str, int]:
        """What went through it so far."""
        return {"rows": self.rows, "dropped_rows": self.dropped_rows}

    def after(self, seq: int, *, limit: int) -> list[Block]:
        """Blocks numbered above `seq`, oldest first."""
        found = [block for block in self._blocks if block.seq > seq]
        return found[:limit]
