"""A disk that forgets what was not synced: SQLite's files as a power cut would leave them, at many moments."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw


@dataclass
class _Image:
    """What is surely on disk of one file, and the writes that are only in the page cache."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Callable[[bytearray], None]] = field(default_factory=list)

    def after_cut(self, dice: random.Random) -> bytes:
        """A disk may have written any of what was not synced, in any order: each write is there or is not."""
        survivor = bytearray(self.durable)
        share = dice.choice([0.0, 0.5, 1.0])
        for write in self.pending:
            if dice.random() < share:
                write(survivor)
        return bytes(survivor)


class ForgetfulDisk:
    """Counts writes and syncs; at chosen ones it takes a picture together with what `witness` says."""

    def __init__(self, *, dice: random.Random, moments: set[int], witness: Callable[[], Any]) -> None:
        self.pictures: list[tuple[dict[str, bytes], Any]] = []
        self.operations = 0
        self._dice = dice
        self._moments = moments
        self._witness = witness
        self._images: dict[str, _Image] = {}
        self._lock = threading.RLock()

    def wrote(self, path: str, write: Callable[[bytearray], None]) -> None:
        with self._lock:
            self._images.setdefault(path, _Image()).pending.append(write)
            self._happened()

    def synced(self, path: str, sync: Callable[[], None]) -> None:
        with self._lock:
            self._happened()
            sync()
            image = self._images.setdefault(path, _Image())
            for write in image.pending:
                write(image.durable)
            image.pending.clear()

    def deleted(self, path: str) -> None:
        with self._lock:
            self._images.pop(path, None)

    def _happened(self) -> None:
        self.operations += 1
        if self.operations in self._moments:
            files = {Path(path).name: image.after_cut(self._dice) for path, image in self._images.items()}
            self.pictures.append((files, self._witness()))


class _File(apsw.VFSFile):
    def __init__(self, disk: ForgetfulDisk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        content = bytes(data)

        def write(image: bytearray) -> None:
            image.extend(bytes(max(0, offset + len(content) - len(image))))
            image[offset : offset + len(content)] = content

        self._disk.wrote(self._path, write)
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.wrote(self._path, lambda image: image.__delitem__(slice(size, None)))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._path, lambda: super(_File, self).xSync(flags))


class _Files(apsw.VFS):
    def __init__(self, disk: ForgetfulDisk) -> None:
        super().__init__("forgetful", "unix", makedefault=True)
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _File(self._disk, name, flags) if name is not None else apsw.VFSFile("unix", name, flags)

    def xDelete(self, path: str, sync_folder: bool) -> None:
        self._disk.deleted(path)
        super().xDelete(path, sync_folder)


@contextmanager
def on(disk: ForgetfulDisk) -> Iterator[None]:
    """Every SQLite file opened meanwhile is on `disk`."""
    files = _Files(disk)
    try:
        yield
    finally:
        apsw.set_default_vfs("unix")
        files.unregister()
