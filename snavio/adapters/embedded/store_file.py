"""A SQLite file of one process, used on one thread, and the checksums of its records.

Never leaves a thread or a lock behind when it cannot be opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from snavio.adapters.embedded.sqlite import Migrations, StoreLock, open_store, store_errors
from snavio.host.store_worker import StoreWorker

S = TypeVar("S")
T = TypeVar("T")


class StoreFile:
    """The file, its lock, its connection and its thread, which begin and end together."""

    def __init__(self, path: Path, connection: Any, *, lock: StoreLock, worker: StoreWorker) -> None:
        self.path = path
        self.connection = connection
        """For `work` on the file's thread."""
        self._lock = lock
        self._worker = worker

    @staticmethod
    async def open(
        path: Path,
        *,
        name: str,
        application_id: int,
        schema_version: int,
        schema: Sequence[str],
        begin: Callable[[StoreFile], S],
        migrations: Migrations | None = None,
        timeout_s: float = 10.0,
    ) -> S:
        """The store that `begin` makes of the file at `path`, on its thread; an empty file if there is none.

        `name` is for error messages. When `begin` fails, the file is closed.
        """
        worker = StoreWorker(name, timeout_s=timeout_s)

        def opening() -> S:
            lock = StoreLock(path)
            try:
                connection = open_store(
                    path,
                    application_id=application_id,
                    schema_version=schema_version,
                    create=schema,
                    migrations=migrations,
                )
                try:
                    with store_errors(path):
                        return begin(StoreFile(path, connection, lock=lock, worker=worker))
                except BaseException:
                    connection.close()
                    raise
            except BaseException:
                lock.release()
                raise

        return await worker.begin(opening)

    async def close(self) -> None:
        """Finish pending work and release the lock."""

        def end() -> None:
            self.connection.close()
            self._lock.release()

        await self._worker.close(end)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, on the file's thread."""

        def guarded() -> T:
            with store_errors(self.path):
                return work()

        return await self._worker.run(guarded)

    async def transaction(self, work: Callable[[Any], T]) -> T:
        """The result of `work` on the connection, on the file's thread, in one transaction."""

        def transact() -> T:
            with self.connection:
                return work(self.connection)

        return await self.run(transact)


def count(connection: Any, of: str, values: Sequence[Any] = ()) -> int:
    """The number of rows; `of` is the program's own SQL after FROM, never a caller's."""
    (found,) = connection.execute(f"SELECT count(*) FROM {of}", values).fetchone()  # noqa: S608
    return int(found)


def standing(connection: Any, where: str, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` for which there is a row; `where` is as in `count`, with the name as its one value."""
    return frozenset(name for name in names if count(connection, where, (name,)))


def checksum(parts: Iterable[Any]) -> bytes:
    """Detects damage and manual edits, not an attacker: write access to the file is enough to write a checksum too."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        piece = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return digest.digest()
