"""A mailbox's store with small segments, on a disk that fails on demand."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import pytest

from snavio.adapters.embedded.disk import Buffer, SystemDisk
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.ports.mailbox_store import NewBatch, Origin, Progress, Send

TOPIC = "acme/billing"
KIB = 1 << 10
SEGMENT = 64 * KIB


def digest(message: bytes) -> bytes:
    """Stands in for BLAKE3."""
    return blake2b(message, digest_size=32).digest()


class FaultyDisk(SystemDisk):
    """Fails on demand: the next `write` (after half of it), `sync` or `sync_folder`; every read while `unreadable`."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.free: int | None = None
        self.unreadable = False
        self.written: list[int] = []
        self.synced: list[int] = []
        self.uncached: list[str] = []

    def _fail(self, call: str) -> None:
        if code := self.fails.pop(call, 0):
            raise OSError(code, os.strerror(code))

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        self.written.append(descriptor)
        if "rest" in self.fails:
            self._fail("rest")
        if "write" in self.fails:
            self.fails["rest"] = self.fails.pop("write")
            first = memoryview(buffers[0])
            return super().write(descriptor, [first[: len(first) // 2]], offset)
        return super().write(descriptor, buffers, offset)

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        if self.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(descriptor, length, offset)

    def sync(self, descriptor: int) -> None:
        self._fail("sync")
        self.synced.append(descriptor)
        super().sync(descriptor)

    def uncache(self, path: Path) -> None:
        super().uncache(path)
        self.uncached.append(path.name)

    def free_bytes(self, folder: Path) -> int:
        return super().free_bytes(folder) if self.free is None else self.free

    def sync_folder(self, folder: Path) -> None:
        self._fail("sync_folder")
        super().sync_folder(folder)


class Reopened:
    """Opens the store in `folder`; the one opened before is closed."""

    def __init__(self, folder: Path, disk: FaultyDisk) -> None:
        self._folder = folder
        self._disk = disk
        self._store: SqliteMailboxStore | None = None

    def __call__(self, max_bytes: int = 1 << 20) -> SqliteMailboxStore:
        self.close()
        self._store = SqliteMailboxStore(
            self._folder / "mailbox.db",
            digest=digest,
            segment_bytes=SEGMENT,
            max_bytes=max_bytes,
            disk=self._disk,
            inline_bytes=0,
        )
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def opened(tmp_path: Path, disk: FaultyDisk) -> Iterator[Reopened]:
    stores = Reopened(tmp_path, disk)
    yield stores
    stores.close()


def payload(mark: int, size: int = 16 * KIB) -> bytes:
    return mark.to_bytes(4, "big") * (size // 4)


def append(store: SqliteMailboxStore, *payloads: bytes) -> list[int]:
    """Each as a batch of one message."""
    batches = tuple(NewBatch(TOPIC, 1, one) for one in payloads)
    return list(store.commit([Send(Origin("fast/0", 1, 1), b"", batches)], [], now_unix_ns=1)[0])


def settle(store: SqliteMailboxStore, *batch_ids: int) -> None:
    store.commit([], [Progress(TOPIC, one, 1, 1) for one in batch_ids], now_unix_ns=1)


def keep_house(store: SqliteMailboxStore) -> None:
    while store.checkpoint():
        pass


def segments(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("payload-*.seg"))
