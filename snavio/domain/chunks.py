"""Splits a response that exceeds the agreed frame size into chunks on a stream, and puts it together again.

A frame is one message on the stream and a chunk the most that one frame carries; the size of a whole response is
bounded separately. Never gathers more than the largest possible response.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from snavio.domain.varint import varint
from snavio.errors import IntegrityError

CHUNK_BYTES: Final = 64 << 10
MAX_WHOLE_BYTES: Final = 2 << 20
"""Bytes of one response: a megabyte of messages with their framing, or one message of any size."""


@dataclass(frozen=True, slots=True)
class ChunkTags:
    """The bytes before a piece, and those that say that another follows, in one kind of message."""

    piece: bytes
    more: bytes


RESPONSE: Final = ChunkTags(b"\x2a", b"\x30\x01")
JOURNAL_PAGE: Final = ChunkTags(b"\x3a", b"\x40\x01")
_AROUND: Final = 16
"""Most bytes of a frame around its piece."""


def in_chunks(response: bytes, chunk_bytes: int, tags: ChunkTags = RESPONSE) -> Iterator[bytes]:
    """Frames of at most `chunk_bytes` each; the response itself when it fits, or when `chunk_bytes` is 0."""
    if not chunk_bytes or len(response) <= chunk_bytes:
        yield response
        return
    length = chunk_bytes - _AROUND
    for first in range(0, len(response), length):
        piece = response[first : first + length]
        more = tags.more if first + length < len(response) else b""
        yield b"".join((tags.piece, varint(len(piece)), piece, more))


class Reassembly:
    """Reassembles the responses of one stream. IntegrityError for frames that are not pieces of one response."""

    def __init__(self, *, max_bytes: int = MAX_WHOLE_BYTES, tags: ChunkTags = RESPONSE) -> None:
        self._max_bytes = max_bytes
        self._tags = tags
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, frame: bytes) -> bytes | None:
        """Add a frame; the response that it completes, or None while more frames are needed."""
        if not frame.startswith(self._tags.piece):
            if self._pieces:
                raise IntegrityError("A response came between two pieces of another.", reason="malformed")
            return frame
        length, start = _read_varint(frame, 1)
        piece, rest = frame[start : start + length], frame[start + length :]
        if len(piece) != length or not piece or rest not in (b"", self._tags.more):
            raise IntegrityError("A piece of a response cannot be read.", reason="malformed")
        self._size += length
        if self._size > self._max_bytes:
            raise IntegrityError("A response in pieces is larger than any can be.", reason="malformed")
        self._pieces.append(piece)
        if rest:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole


def _read_varint(frame: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(frame):
            break
        byte = frame[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IntegrityError("A piece of a response cannot be read.", reason="malformed")
