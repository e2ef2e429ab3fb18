"""A journal's mark in three small files: how far it has come, lives that have ended, and events that must not be lost.

Never trusts what it finds: a torn line or a damaged mark is taken for nothing, and Relay reports the gap it leaves.
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

from snavio.adapters.embedded.files import fsync_folder, replace_private_file
from snavio.adapters.embedded.sqlite import StoreLock
from snavio.errors import Saturated, Unavailable
from snavio.ports.journal_mark import EndedLife

MAX_ENDED: Final = 64
MAX_KEPT: Final = 10_000
_MARK: Final = struct.Struct("<8sQQ")
_MAGIC: Final = b"snavioJ1"


class FileJournalMark:
    """A `JournalMark`; lives on one thread."""

    def __init__(self, folder: Path, *, instance: str, epoch: int) -> None:
        self._mark_path = folder / f"{instance}.journal"
        self._ended_path = folder / f"{instance}.journal-ended"
        self._kept_path = folder / f"{instance}.journal-kept"
        self._epoch = epoch
        self._lock = StoreLock(self._mark_path)
        try:
            self._kept = _read_kept(self._kept_path)
            self._ended = self._find_ended()
            # Durable before the mark is taken over: dying in between must not forget the life that ended.
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
        # One aligned store into a shared page: the kernel keeps it when this process dies.
        struct.pack_into("<Q", self._map, 16, seq)

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
        with contextlib.suppress(OSError, struct.error):
            magic, epoch, seq = _MARK.unpack(self._mark_path.read_bytes()[: _MARK.size])
            if magic == _MAGIC and epoch not in found and epoch != self._epoch:
                found[epoch] = EndedLife(epoch, seq)
        for epoch, seq, _ in self._kept:
            known = found.get(epoch, EndedLife(epoch, 0))
            found[epoch] = replace(known, last_seq=max(known.last_seq, seq))
        return sorted(found.values(), key=lambda life: life.epoch)[-MAX_ENDED:]

    def _take_over(self) -> mmap.mmap:
        replace_private_file(self._mark_path, _MARK.pack(_MAGIC, self._epoch, 0))
        descriptor = os.open(self._mark_path, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, _MARK.size)
        finally:
            os.close(descriptor)

    def _write_ended(self) -> None:
        lives = [[str(life.epoch), str(life.last_seq)] for life in self._ended]
        replace_private_file(self._ended_path, orjson.dumps(lives))

    def _write_kept(self) -> None:
        with contextlib.suppress(OSError):  # What stays too long is sent again, and recognised.
            replace_private_file(self._kept_path, b"".join(_line(*kept) for kept in self._kept))


def _line(epoch: int, seq: int, block: bytes) -> bytes:
    body = b"%d %d %s" % (epoch, seq, base64.b64encode(block))
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _read_kept(path: Path) -> list[tuple[int, int, bytes]]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            # The last line may be torn: its event was never reported as kept.
            with contextlib.suppress(ValueError):
                checksum, _, body = line.partition(b" ")
                if int(checksum, 16) == zlib.crc32(body):
                    epoch, seq, block = body.split(b" ")
                    found.append((int(epoch), int(seq), base64.b64decode(block)))
    return found


def _read_ended(path: Path) -> list[EndedLife]:
    try:
        return [EndedLife(int(epoch), int(seq)) for epoch, seq in orjson.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError):
        return []
