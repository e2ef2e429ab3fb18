"""A disk that forgets what was not synced: the store's files as a power cut would leave them, at many moments."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from snavio.adapters.embedded.commit_mark import mark_path
from snavio.adapters.embedded.disk import Buffer, SystemDisk

SECTOR = 512
"""The smallest that disks write as one: a page of SQLite, aligned or not, is several."""
CHECKSUMS = "cksmvfs"
Write = Callable[[bytearray], None]


@dataclass
class Image:
    """Bytes of one file that are surely on disk, and the writes that are only in the page cache."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)

    def after_cut(self, dice: random.Random) -> bytes:
        """A disk may have written any of what was not synced, in any order: each sector is there or is not."""
        survivor = bytearray(self.durable)
        # Nearly all of it as well: with half of their sectors, hardly any page of SQLite would be left whole.
        share = dice.choice([0.0, 0.5, 0.95, 1.0])
        for write in self.pending:
            if dice.random() < share:
                write(survivor)
        return bytes(survivor)

    def sync(self) -> None:
        for write in self.pending:
            write(self.durable)
        self.pending.clear()


Names = dict[str, Image]


@dataclass(frozen=True)
class Picture:
    """The files after a cut at an operation of this kind, and what the witness said just then."""

    kind: str
    files: dict[str, bytes]
    said: Any


class ForgetfulDisk:
    """Sees every write, sync and name; with `chances` of its kind, takes a picture at it.

    Kinds are "write" and "sync" for SQLite's files, and "payload write", "payload sync", "create", "rename",
    "remove" and "folder sync"; with "beside: " before it when another thread than the first one does it.
    """

    def __init__(
        self, *, dice: random.Random, chances: Mapping[str, float], witness: Callable[[], Any]
    ) -> None:
        self.pictures: list[Picture] = []
        self.kinds: set[str] = set()
        self._dice = dice
        self._chances = chances
        self._witness = witness
        self._names: Names = {}
        self._durable_names: Names = {}
        self._pending_names: list[Callable[[Names], None]] = []
        self._lock = threading.RLock()
        self._first = threading.get_ident()

    def image(self, path: str) -> Image:
        """One of SQLite's files; it sees to their names itself."""
        with self._lock:
            return self._durable_names.setdefault(path, self._names.setdefault(path, Image()))

    def wrote(self, image: Image, *writes: Write, kind: str) -> None:
        with self._lock:
            image.pending.extend(writes)
            self._happened(kind)

    def synced(self, image: Image, *, kind: str) -> None:
        with self._lock:
            # Once before and once after: the second is the moment between a sync and what relies on it.
            self._happened(kind)
            image.sync()
            self._happened(kind)

    def deleted(self, path: str) -> None:
        with self._lock:
            self._names.pop(path, None)
            self._durable_names.pop(path, None)

    def renamed(self, change: Callable[[Names], None], *, kind: str) -> Names:
        """A name came, went or changed: lost as well until the folder is synced."""
        with self._lock:
            change(self._names)
            self._pending_names.append(change)
            self._happened(kind)
            return self._names

    def synced_names(self) -> None:
        with self._lock:
            self._happened("folder sync")
            for change in self._pending_names:
                change(self._durable_names)
            self._pending_names.clear()
            self._happened("folder sync")

    def _happened(self, kind: str) -> None:
        if threading.get_ident() != self._first:
            kind = "beside: " + kind
        self.kinds.add(kind)
        if self._dice.random() >= self._chances.get(kind, 0):
            return
        names = dict(self._durable_names)
        share = self._dice.choice([0.0, 0.5, 1.0])
        for change in self._pending_names:
            if self._dice.random() < share:
                change(names)
        files = {Path(path).name: image.after_cut(self._dice) for path, image in names.items()}
        # Never synced, so any state of it may be on disk; the newest promises most.
        for mark in {mark_path(Path(path)) for path in names}:
            if self._dice.random() < 0.5 and mark.exists():
                files[mark.name] = mark.read_bytes()
        self.pictures.append(Picture(kind, files, self._witness()))


def _put(offset: int, content: bytes) -> Write:
    def write(image: bytearray) -> None:
        image.extend(bytes(max(0, offset + len(content) - len(image))))
        image[offset : offset + len(content)] = content

    return write


def _torn(offset: int, content: bytes) -> Iterator[Write]:
    """One write as its sectors, each of which reaches the disk by itself."""
    at = 0
    while at < len(content):
        end = min(len(content), at + SECTOR - (offset + at) % SECTOR)
        yield _put(offset + at, content[at:end])
        at = end


def _cut_off(size: int) -> Write:
    return lambda image: image.__delitem__(slice(size, None))


class ForgetfulFiles(SystemDisk):
    """Payload files on `disk`. A write may be torn at any sector."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self._disk = disk
        self._images: dict[int, Image] = {}

    def create(self, path: Path) -> int:
        descriptor, image = super().create(path), Image()
        self._images[descriptor] = image
        self._disk.renamed(lambda names: names.__setitem__(str(path), image), kind="create")
        return descriptor

    def take_over(self, path: Path, name: Path) -> int:
        def change(names: Names) -> None:
            if str(path) in names:
                names[str(name)] = names.pop(str(path))

        descriptor = super().take_over(path, name)
        self._images[descriptor] = self._disk.renamed(change, kind="rename")[str(name)]
        return descriptor

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        written = super().write(descriptor, buffers, offset)
        content = b"".join(buffers)[:written]
        self._disk.wrote(self._images[descriptor], *_torn(offset, content), kind="payload write")
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        self._disk.wrote(self._images[descriptor], _cut_off(size), kind="payload write")

    def sync(self, descriptor: int) -> None:
        self._disk.synced(self._images[descriptor], kind="payload sync")

    def sync_folder(self, folder: Path) -> None:
        self._disk.synced_names()

    def remove(self, path: Path) -> None:
        super().remove(path)

        def change(names: Names) -> None:
            names.pop(str(path), None)

        self._disk.renamed(change, kind="remove")

    def close(self, descriptor: int) -> None:
        self._images.pop(descriptor, None)
        super().close(descriptor)


class _File(apsw.VFSFile):
    """One of SQLite's. A write may be torn at any sector, as those of payload files are."""

    def __init__(self, disk: ForgetfulDisk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.wrote(self._disk.image(self._path), *_torn(offset, bytes(data)), kind="write")
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.wrote(self._disk.image(self._path), _cut_off(size), kind="write")
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._disk.image(self._path), kind="sync")


class _Files(apsw.VFS):
    def __init__(self, disk: ForgetfulDisk) -> None:
        super().__init__("forgetful", "unix", makedefault=True)
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _File(self._disk, name, flags) if name is not None else apsw.VFSFile("unix", name, flags)

    def xDelete(self, path: str, sync_folder: bool) -> None:
        self._disk.deleted(path)
        super().xDelete(path, sync_folder)


class FailingSync(ForgetfulDisk):
    """Fails SQLite's next sync once it is armed, after everything was written."""

    armed = False

    def synced(self, image: Any, *, kind: str) -> None:
        if self.armed and kind.endswith("sync"):
            self.armed = False
            raise apsw.IOError("simulated")
        super().synced(image, kind=kind)


@contextmanager
def on(disk: ForgetfulDisk) -> Iterator[None]:
    """Every SQLite file opened meanwhile is on `disk`, checksums and all."""
    files = _Files(disk)
    _without_checksums()
    try:
        yield
    finally:
        _without_checksums()
        apsw.set_default_vfs("unix")
        files.unregister()


def _without_checksums() -> None:
    """The next store loads them anew: they stand on what is the default just then."""
    if CHECKSUMS in apsw.vfs_names():
        apsw.unregister_vfs(CHECKSUMS)
