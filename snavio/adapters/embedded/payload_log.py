"""Payload bytes in append-only segment files: what `append` has returned is on disk until nobody needs it.

Never writes behind a tail that a crash or a failed sync may have torn, never trusts a segment to a second sync
after a failed one, and never removes a segment that holds live bytes.
"""

from __future__ import annotations

import contextlib
import errno
import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from snavio.adapters.embedded.disk import Buffer, Disk
from snavio.adapters.embedded.open_segments import OpenSegments
from snavio.errors import IntegrityError, Saturated, SnavioError, Unavailable, Unreadable

SEGMENT_BYTES = 64 << 20
MAX_BUFFERS = 1024
"""In one call; the system takes no more."""
MAX_SPARES = 2
CACHED_SEGMENTS = 8
"""Not written any more, and kept in the system's cache for receivers that are a little behind."""
FULL_RETRY_MS = 1000
RESERVE_BYTES = 16 << 20
"""Left free on the disk for acknowledgements: without space for them, a full disk would stay full."""
_NAME = re.compile(r"payload-([0-9]{1,18})\.seg")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNREADABLE = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""The disk's own word that the bytes are not to be had, as opposed to too many open files and the like."""


@dataclass(frozen=True, slots=True)
class PayloadLocation:
    """Where a payload is."""

    segment: int
    offset: int
    length: int


@dataclass(slots=True)
class _Segment:
    number: int
    size: int
    live: int
    immovable: bool = False
    """Compaction can do no more for it."""
    failed: bool = False
    cold: bool = False
    """Not in the system's cache, as far as we know."""


class SegmentGone(Exception):
    """The segment was removed: its live payloads have been moved, or there are none."""


class PayloadLog:
    """`append` by any thread, one at a time; reading and counting beside it. `live` is what refers to it by segment."""

    def __init__(
        self, folder: Path, *, disk: Disk, live: Mapping[int, int], segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._appending, self._counting = threading.Lock(), threading.Lock()
        self._segments: dict[int, _Segment] = {}
        self._files = OpenSegments(disk, path=self._path, exists=self._segments.__contains__)
        for path in folder.iterdir():
            if found := _NAME.fullmatch(path.name):
                number = int(found[1])
                size = path.stat().st_size
                self._segments[number] = _Segment(number, size, live.get(number, 0), cold=True)
        # Every start begins a segment of its own, with a number that nothing on disk or in a row has.
        self._spares: dict[int, int] = {}
        self._warm: deque[_Segment] = deque()
        self._last = max((*self._segments, *live), default=0)
        self._size = sum(segment.size for segment in self._segments.values())
        self._current: _Segment | None = None
        self._current_descriptor = -1

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size

    def live(self) -> dict[int, int]:
        """Bytes that are referred to, by segment."""
        with self._counting:
            return {segment.number: segment.live for segment in self._segments.values()}

    # -- writing ---------------------------------------------------------------------------------------

    def append(self, payloads: Sequence[bytes], *, room: int | None = None) -> list[PayloadLocation]:
        """Store payloads together, durably, and count them as live: refer to them, or `release` them.

        Saturated when all segments would be larger than `room` or the disk is full, Unavailable when it
        failed; nothing is stored then. Without `room`, the disk's last reserve is used as well.
        """
        growth = sum(map(len, payloads))
        with self._appending:
            if room is not None:
                self.require_room(growth, room)
            try:
                segment = self._segment_for(growth)
                self._write(segment, payloads)
            except OSError as error:
                raise self._failure(error) from error
            places, offset = [], segment.size
            for payload in payloads:
                places.append(PayloadLocation(segment.number, offset, len(payload)))
                offset += len(payload)
            with self._counting:
                segment.size = offset
                segment.live += growth
                self._size += growth
        return places

    def require_room(self, growth: int, room: int) -> None:
        """Saturated when that much more would be over `room`, or would use up the disk's last reserve."""
        if self._size + growth > room:
            raise Saturated(f"{self._folder} holds all it may.", retry_after_ms=FULL_RETRY_MS)
        try:
            if self._disk.free_bytes(self._folder) < growth + RESERVE_BYTES:
                raise OSError(errno.ENOSPC, "the reserve is kept")
        except OSError as error:
            raise self._failure(error) from error

    def _segment_for(self, growth: int) -> _Segment:
        current = self._current
        if current is not None and (current.size == 0 or current.size + growth <= self._segment_bytes):
            return current
        self._seal()
        self._last += 1
        path = self._path(self._last)
        with self._counting:
            spare, stale = self._spares.popitem() if self._spares else (None, 0)
            self._size -= stale
        disk = self._disk
        descriptor = disk.create(path) if spare is None else disk.take_over(self._path(spare), path)
        try:
            # Before anything refers to it: a synced file without a name is lost all the same.
            self._disk.sync_folder(self._folder)
        except OSError:
            self._disk.close(descriptor)
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            raise
        with self._counting:
            self._current = self._segments[self._last] = _Segment(self._last, 0, 0)
            self._current_descriptor = descriptor
        return self._current

    def _write(self, segment: _Segment, payloads: Sequence[bytes]) -> None:
        descriptor, offset = self._current_descriptor, segment.size
        try:
            for first in range(0, len(payloads), MAX_BUFFERS):
                offset = self._write_all(descriptor, payloads[first : first + MAX_BUFFERS], offset)
        except OSError as error:
            if error.errno not in _FULL:
                self._seal(failed=True)
                raise
            # What was written of it gives its space back; if not even that works, the segment has ended.
            try:
                self._disk.truncate(descriptor, segment.size)
            except OSError:
                self._seal(failed=True)
            raise
        try:
            self._disk.sync(descriptor)
        except OSError:
            # The system may have dropped the pages and call them clean: a second sync would succeed and lie.
            self._seal(failed=True)
            raise

    def _write_all(self, descriptor: int, payloads: Sequence[bytes], offset: int) -> int:
        buffers: list[Buffer] = list(payloads)
        while buffers:
            written = self._disk.write(descriptor, buffers, offset)
            if not written and any(buffers):
                raise OSError(errno.EIO, "nothing was written")
            offset += written
            while buffers and written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            if written:
                buffers[0] = memoryview(buffers[0])[written:]
        return offset

    def _seal(self, *, failed: bool = False) -> None:
        """End the current segment. One that `failed` is never written again, not even as a spare."""
        if self._current is not None:
            with self._counting:
                self._current.failed = failed
                self._warm.append(self._current)
                self._current = None
            with contextlib.suppress(OSError):
                self._disk.close(self._current_descriptor)

    def _failure(self, error: OSError) -> SnavioError:
        if error.errno in _FULL:
            return Saturated(f"{self._folder} is on a full disk.", retry_after_ms=FULL_RETRY_MS)
        return Unavailable(f"{self._folder} cannot be written now: {errno.errorcode.get(error.errno or 0)}.")

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, place: PayloadLocation) -> bytes:
        """The payload, unverified. SegmentGone: look its place up anew; IntegrityError when its end is missing."""
        try:
            content = self._files.read(place.segment, place.length, place.offset)
        except FileNotFoundError:
            raise SegmentGone from None
        except OSError as error:
            what = f"{self._path(place.segment)} cannot be read now: {errno.errorcode.get(error.errno or 0)}."
            raise (Unreadable if error.errno in _UNREADABLE else Unavailable)(what) from error
        if len(content) != place.length:
            raise IntegrityError(f"{self._path(place.segment)} ends before what was stored in it.")
        return content

    def _path(self, number: int) -> Path:
        return self._folder / f"payload-{number}.seg"

    # -- housekeeping ----------------------------------------------------------------------------------

    def release(self, places: Iterable[PayloadLocation]) -> None:
        """Nothing refers to these any more, and that is durable."""
        with self._counting:
            for place in places:
                if (segment := self._segments.get(place.segment)) is not None:
                    segment.live -= place.length

    def remove_dead(self, *, spare: bool) -> None:
        """Remove segments without live bytes. Not on the way of a commit: freeing 64 MiB takes a while.

        With `spare`, a few are kept to be written over: a file that does not grow is synced for much less. Not a cold
        one: each write that ends within a page would have to read that page first.
        """
        with self._counting:
            dead = [one for one in self._segments.values() if one is not self._current and not one.live]
        surplus: dict[int, int] = {}
        for segment in dead:
            with self._files.removing(segment.number) as unread:
                if not unread:
                    continue  # next time: written over, it would give a reader somebody else's bytes
                with self._counting:
                    del self._segments[segment.number]
                    # A spare stays cached until it is written again.
                    with contextlib.suppress(ValueError):
                        self._warm.remove(segment)
                    fit = 2 * segment.size > self._segment_bytes and not (segment.failed or segment.cold)
                    fit = fit and len(self._spares) < MAX_SPARES
                    (self._spares if fit else surplus)[segment.number] = segment.size
        if not spare:
            with self._counting:
                surplus.update(self._spares)
                self._spares.clear()
        for number, size in surplus.items():
            try:
                self._disk.remove(self._path(number))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise Unavailable(f"{self._path(number)} cannot be removed.") from error
            with self._counting:
                self._size -= size

    def cool(self) -> None:
        """Take all but the latest segments out of the system's cache.

        A backlog that nobody reads would fill the machine's memory, at the cost of everybody's cache and of a fresh
        page for each one written: more than half of what a send costs once it goes on for a minute.
        """
        while len(self._warm) > CACHED_SEGMENTS:
            with self._counting:
                segment = self._warm.popleft()
                segment.cold = True
            # Advice: the segment may have been removed meanwhile, and a cache that stays as it is harms nobody.
            with contextlib.suppress(OSError):
                self._disk.uncache(self._path(segment.number))

    def sparse(self, share: float) -> int | None:
        """The segment of which least is live, if that is less than `share` and it may be compacted."""
        with self._counting:
            found = [
                (one.live / one.size, one.number)
                for one in self._segments.values()
                if one is not self._current and not one.immovable and 0 < one.live < one.size * share
            ]
        return min(found)[1] if found else None

    def leave(self, number: int) -> None:
        """Do not offer this segment as sparse again: what is live in it cannot be moved."""
        with self._counting:
            self._segments[number].immovable = True

    def seal_if_sparse(self, share: float) -> None:
        """End the current segment if so little of it is live, so that its space can be had again."""
        with self._appending:
            current = self._current
            if current is not None and current.live < current.size * share:
                self._seal()

    def close(self) -> None:
        """Nothing is called after this."""
        with self._appending:
            self._seal()
        self._files.close()
