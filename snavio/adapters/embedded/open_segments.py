"""Open segment files, for several readers at a time.

Never closes a file that somebody reads: its descriptor may be another file's by then. Never holds a lock while the
disk works, so that one read that hangs holds up no other.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from snavio.adapters.embedded.disk import Disk

MAX_DESCRIPTORS = 32


@dataclass(slots=True, eq=False)
class _Open:
    descriptor: int
    readers: int = 0
    dropped: bool = False


class OpenSegments:
    """By segment number. `exists(number)` tells whether a segment may still be read; called under the lock."""

    def __init__(self, disk: Disk, *, path: Callable[[int], Path], exists: Callable[[int], bool]) -> None:
        self._disk = disk
        self._path = path
        self._exists = exists
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _Open] = OrderedDict()

    def read(self, number: int, length: int, offset: int) -> bytes:
        """See Disk.read. FileNotFoundError when the segment is gone."""
        one = self._enter(number)
        try:
            return self._disk.read(one.descriptor, length, offset)
        finally:
            with self._lock:
                one.readers -= 1
                self._close(one)

    def _enter(self, number: int) -> _Open:
        with self._lock:
            if not self._exists(number):
                raise FileNotFoundError(number)
            one = self._open.get(number)
            if one is not None:
                self._open.move_to_end(number)
                one.readers += 1
                return one
        fresh = _Open(self._disk.open(self._path(number)), readers=1)
        with self._lock:
            if not self._exists(number):
                # Removed, or taken over to be written anew, since it was looked up.
                self._disk.close(fresh.descriptor)
                raise FileNotFoundError(number)
            if (one := self._open.get(number)) is not None:
                self._disk.close(fresh.descriptor)
                one.readers += 1
                return one
            self._open[number] = fresh
            if len(self._open) > MAX_DESCRIPTORS:
                self._drop(next(iter(self._open)))
        return fresh

    @contextlib.contextmanager
    def removing(self, number: int) -> Iterator[bool]:
        """True if nobody reads the segment, which is closed then; while the block runs, nobody begins to."""
        with self._lock:
            one = self._open.get(number)
            if one is not None and one.readers:
                yield False
                return
            self._drop(number)
            yield True

    def close(self) -> None:
        """All that nobody reads; the others when their read is over."""
        with self._lock:
            for number in list(self._open):
                self._drop(number)

    def _drop(self, number: int) -> None:
        if (one := self._open.pop(number, None)) is not None:
            one.dropped = True
            self._close(one)

    def _close(self, one: _Open) -> None:
        if one.dropped and not one.readers:
            self._disk.close(one.descriptor)
