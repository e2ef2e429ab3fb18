"""Reads server-sent events from chunks of bytes, wherever they are cut.

Never holds more than one event of the largest size, and never hands out one that was not ended by an empty line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from snavio.errors import BadRequest

MOST_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One event; `event_id` is None where it has none."""

    data: bytes = field(repr=False)
    event_id: str | None = None


class EventReader:
    """One stream. Lines may end with LF, CR or both, and may have any length up to that of an event."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._rest = bytearray()
        self._seen = 0
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[EventFrame]:
        """The events that end in this chunk; BadRequest `oversized` for one that is too large."""
        if self._after_cr and chunk:
            self._after_cr = False
            # The second half of a line's end that was cut in two.
            chunk = chunk.removeprefix(b"\n")
        self._rest += chunk
        for line in self._lines():
            if line:
                self._take(line)
                continue
            if self._data:
                yield EventFrame(b"\n".join(self._data), self._id)
            self._data, self._size, self._id = [], 0, None
        if self._size + len(self._rest) > self._most:
            raise BadRequest(f"An event has more than {self._most} bytes.", reason="oversized")

    def _lines(self) -> Iterator[bytes]:
        begin = 0
        while True:
            ends = [at for at in (self._find(b"\n", begin), self._find(b"\r", begin)) if at >= 0]
            if not ends:
                break
            end = min(ends)
            yield bytes(self._rest[begin:end])
            begin = end + 1
            if self._rest[end] == 0x0D:
                if begin == len(self._rest):
                    self._after_cr = True
                elif self._rest[begin] == 0x0A:
                    begin += 1
        del self._rest[:begin]
        self._seen = len(self._rest)

    def _find(self, end: bytes, begin: int) -> int:
        # What was searched before is not searched again: a long line would cost its square.
        return self._rest.find(end, max(begin, self._seen if begin == 0 else begin))

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value)
            self._data.append(value)
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
