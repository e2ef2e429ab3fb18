"""A journal's mark in three small files: its last number, earlier lives of the process, and events kept durably.

Never trusts the files: a torn line counts as absent, and Relay reports the gap that it leaves; damage counts as absent
too, and is logged.
"""

from __future__ import annotations

import base64
import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson
import structlog

from snavio.adapters.embedded.sqlite import StoreLock
from snavio.durable_files import fsync_folder, replace_private_file
from snavio.errors import Saturated, Unavailable
from snavio.ports.journal_mark import EndedLife

MAX_ENDED: Final = 64
MAX_KEPT: Final = 10_000
# Epoch and number twice, the second time inverted: one flipped bit must not hide how much was lost.
_MARK: Final = struct.Struct("<8sQQQQ")
_MAGIC: Final = b"snavioJ2"
_FIRST_MARK: Final = struct.Struct("<8sQQ")
_FIRST_MAGIC: Final = b"snavioJ1"
_ALL_ONES: Final = (1 << 64) - 1


class FileJournalMark:
    """A `JournalMark`; used on one thread."""

    def __init__(self, folder: Path, *, instance: str, epoch: int) -> None:
        self._mark_path = folder / f"{instance}.journal"
        self._ended_path = folder / f"{instance}.journal-ended"
        self._kept_path = folder / f"{instance}.journal-kept"
        self._epoch = epoch
        self._lock = StoreLock(self._mark_path)
        try:
            self._kept = _read_kept(self._kept_path)
            self._ended = self._find_ended()
            # Durable before the mark is overwritten: a crash in between must not lose the life that ended.
            self._write_ended()
            self._map = self._take_over()
        except OSError as error:
            self._lock.release()
            raise Unavailable(f"{self._mark_path} cannot be written: {error.strerror}.") from error

    def ended(self) -> Sequence[EndedLife]:
        return [
            replace(life, kept=tuple((seq, block) for epoch, seq, block in self._kept if epoch == life.epoch))
            for life in self._ended
        ]

    def reached(self, seq: int) -> None:
        # Aligned stores into a shared page: the kernel keeps them when this process dies, one or both.
        struct.pack_into("<Q", self._map, 16, seq)
        struct.pack_into("<Q", self._map, 32, seq ^ _ALL_ONES)

    def keep(self, seq: int, block: bytes) -> None:
        if len(self._kept) >= MAX_KEPT:
            raise Saturated("Too many events wait for Relay.", retry_after_ms=1000)
        line = _line(self._epoch, seq, block)
        try:
            fresh = not self._kept_path.exists()
            descriptor = os.open(self._kept_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if fresh:
                fsync_folder(self._kept_path.parent)
        except OSError as error:
            raise Unavailable(f"{self._kept_path} cannot be written: {error.strerror}.") from error
        self._kept.append((self._epoch, seq, block))

    def settled(self, epoch: int, seq: int) -> None:
        if any(kept[0] == epoch and kept[1] <= seq for kept in self._kept):
            self._kept = [kept for kept in self._kept if kept[0] != epoch or kept[1] > seq]
            self._write_kept()

    def closed(self, epochs: Sequence[int]) -> None:
        self._ended = [life for life in self._ended if life.epoch not in epochs]
        with contextlib.suppress(OSError):
            self._write_ended()

    def close(self) -> None:
        self._map.close()
        self._lock.release()

    def _find_ended(self) -> list[EndedLife]:
        found = {life.epoch: life for life in _read_ended(self._ended_path)}
        if (marked := _read_mark(self._mark_path)) is not None:
            epoch, seq = marked
            if epoch not in found and epoch != self._epoch:
                found[epoch] = EndedLife(epoch, seq)
        for epoch, seq, _ in self._kept:
            known = found.get(epoch, EndedLife(epoch, 0))
            found[epoch] = replace(known, last_seq=max(known.last_seq, seq))
        return sorted(found.values(), key=lambda life: life.epoch)[-MAX_ENDED:]

    def _take_over(self) -> mmap.mmap:
        replace_private_file(
            self._mark_path, _MARK.pack(_MAGIC, self._epoch, 0, self._epoch ^ _ALL_ONES, _ALL_ONES)
        )
        descriptor = os.open(self._mark_path, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, _MARK.size)
        finally:
            os.close(descriptor)

    def _write_ended(self) -> None:
        lives = [[str(life.epoch), str(life.last_seq)] for life in self._ended]
        body = orjson.dumps(lives)
        replace_private_file(self._ended_path, b"%08x %s" % (zlib.crc32(body), body))

    def _write_kept(self) -> None:
        with contextlib.suppress(OSError):  # What stays too long is sent again, and recognised.
            replace_private_file(self._kept_path, b"".join(_line(*kept) for kept in self._kept))


def _line(epoch: int, seq: int, block: bytes) -> bytes:
    body = b"%d %d %s" % (epoch, seq, base64.b64encode(block))
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _read_mark(path: Path) -> tuple[int, int] | None:
    """The epoch of the last life, and the number of its last event."""
    try:
        contents = path.read_bytes()
    except OSError:
        return None
    with contextlib.suppress(struct.error):
        magic, epoch, seq = _FIRST_MARK.unpack(contents[: _FIRST_MARK.size])
        if magic == _FIRST_MAGIC and len(contents) == _FIRST_MARK.size:
            return epoch, seq
        magic, epoch, seq, epoch_again, seq_again = _MARK.unpack(contents)
        if magic == _MAGIC and epoch == epoch_again ^ _ALL_ONES:
            # They also differ after a crash between the two stores; the larger one may report too many losses, never
            # too few.
            return epoch, max(seq, seq_again ^ _ALL_ONES)
    _tell_damage(path, "the last life's losses cannot be told")
    return None


def _read_kept(path: Path) -> list[tuple[int, int, bytes]]:
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    read = [_kept(line) for line in lines]
    if None in read:
        _tell_damage(path, "events that were kept are lost", events=read.count(None))
    # Bytes after the last line end may be torn: their event was never reported as kept. Or the line end itself is
    # damaged.
    last = _kept(rest) or _kept(rest[:-1])
    return [kept for kept in (*read, last) if kept is not None]


def _kept(line: bytes) -> tuple[int, int, bytes] | None:
    with contextlib.suppress(ValueError):
        checksum, _, body = line.partition(b" ")
        if int(checksum, 16) == zlib.crc32(body):
            epoch, seq, block = body.split(b" ")
            return int(epoch), int(seq), base64.b64decode(block)
    return None


def _read_ended(path: Path) -> list[EndedLife]:
    try:
        contents = path.read_bytes()
    except OSError:
        return []
    try:
        # Without a checksum before it: written by an earlier Snavio.
        checksum, _, body = (b"", b"", contents) if contents[:1] == b"[" else contents.partition(b" ")
        if checksum and int(checksum, 16) != zlib.crc32(body):
            raise ValueError
        return [EndedLife(int(epoch), int(seq)) for epoch, seq in orjson.loads(body)]
    except (ValueError, TypeError):
        _tell_damage(path, "losses of earlier lives cannot be told")
        return []


def _tell_damage(path: Path, what: str, **more: int) -> None:
    structlog.get_logger().error(
        "journal file is damaged", path=str(path), what=what, reason="integrity", **more
    )
