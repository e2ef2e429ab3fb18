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

T = TypeVar("T")


class LedgerFile:
    """The file, its lock, its connection and its thread, which begin and end together."""

    def __init__(self, connection: Any, *, path: Path, lock: StoreLock, worker: StoreWorker) -> None:
        self._connection = connection
        self._path = path
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
        migrations: Migrations | None = None,
    ) -> LedgerFile:
        """The ledger at `path`, an empty one if there is none; `name` is for error messages."""
        worker = StoreWorker(name)

        def begin() -> LedgerFile:
            lock = StoreLock(path)
            try:
                connection = open_store(
                    path,
                    application_id=application_id,
                    schema_version=schema_version,
                    create=schema,
                    migrations=migrations,
                )
            except BaseException:
                lock.release()
                raise
            return LedgerFile(connection, path=path, lock=lock, worker=worker)

        return await worker.begin(begin)

    async def close(self) -> None:
        """Finish pending work and release the lock."""

        def end() -> None:
            self._connection.close()
            self._lock.release()

        await self._worker.close(end)

    async def transaction(self, work: Callable[[Any], T]) -> T:
        """The result of `work` on the connection, on the file's thread, in one transaction."""

        def transact() -> T:
            with store_errors(self._path), self._connection:
                return work(self._connection)

        return await self._worker.run(transact)


def count(connection: Any, of: str, values: Sequence[Any] = ()) -> int:
    """The number of rows; `of` is the program's own SQL after FROM, never a caller's."""
    (found,) = connection.execute(f"SELECT count(*) FROM {of}", values).fetchone()  # noqa: S608
    return int(found)


def checksum(parts: Iterable[Any]) -> bytes:
    """Detects damage and manual edits, not an attacker: write access to the file is enough to write a checksum too."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        piece = str(part).encode()
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return digest.digest()
