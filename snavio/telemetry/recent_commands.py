"""The last commands of one process, as telemetry columns.

Never decodes a block unless it is queried, and never grows: when full, the oldest block is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from snavio.native import blocks_with
from snavio.v1.telemetry_pb2 import TelemetryBlock

ID_BYTES: Final = 16
MAX_BLOCKS: Final = 200_000
_AT_ONCE: Final = 256
_OVERHEAD: Final = 128
"""Approximate cost of a block beside its bytes."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One row about a command, with its block."""

    block: TelemetryBlock
    row: int


class RecentCommands:
    """A ring of blocks. Keeping one costs an append; looking a command up reads all that are kept."""

    def __init__(self, *, max_bytes: int) -> None:
        self._blocks: deque[bytes] = deque()
        self._max_bytes = max_bytes
        self._bytes = 0

    def keep(self, columns: bytes) -> None:
        """Keep a serialised TelemetryBlock; it shares its bytes with the journal's block."""
        if not columns or not self._max_bytes:
            return
        self._blocks.append(columns)
        self._bytes += len(columns) + _OVERHEAD
        while self._blocks and (self._bytes > self._max_bytes or len(self._blocks) > MAX_BLOCKS):
            self._bytes -= len(self._blocks.popleft()) + _OVERHEAD

    def kept(self) -> tuple[bytes, ...]:
        """The current blocks, oldest first; not copies. Call it on the thread of `keep`: a deque that changes during an
        iteration on another thread ends the iteration.
        """
        return tuple(self._blocks)

    def oldest_unix_ns(self) -> int:
        """Time of the oldest block; 0 when there is none."""
        if not self._blocks:
            return 0
        settled: int = TelemetryBlock.FromString(self._blocks[0]).settled_unix_ns
        return settled

    def gauges(self) -> dict[str, float]:
        """Blocks and bytes in the ring."""
        return {"blocks": float(len(self._blocks)), "bytes": float(self._bytes)}


def rows_about(kept: Sequence[bytes], command_id: bytes) -> Iterator[Sighting]:
    """Rows about a command, newest first.

    Blocks are searched a few at a time, natively and without the GIL: a full ring takes milliseconds, during which
    commands go on.
    """
    for end in range(len(kept), 0, -_AT_ONCE):
        blocks = list(kept[max(0, end - _AT_ONCE) : end])
        for position in reversed(blocks_with(blocks, command_id)):
            yield from reversed(list(_rows(blocks[position], command_id)))


def _rows(columns: bytes, command_id: bytes) -> Iterator[Sighting]:
    block = TelemetryBlock.FromString(columns)
    at = block.command_id.find(command_id)
    while at >= 0:
        # Ids stand side by side: a match between two of them is chance.
        if at % ID_BYTES == 0:
            yield Sighting(block, at // ID_BYTES)
        at = block.command_id.find(command_id, at + 1)
