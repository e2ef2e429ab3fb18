"""Storage of snapshots and exports: named bytes that one service writes and others read, and a reader's watermark.

A name holds the last complete write or the one before, never a mixture; readers verify what they read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One name in an archive."""

    name: str
    size: int


class Archive(Protocol):
    """Names are relative paths such as `registry/acl/latest.json`; BadRequest for anything else.

    Unavailable when the archive cannot be reached or is full (`archive-full`); nothing has changed then that a
    reader could see.
    """

    async def put(self, name: str, contents: bytes) -> None:
        """Durable when this returns."""
        ...

    async def swap(self, name: str, contents: bytes, *, expected: bytes | None) -> None:
        """As `put`, if the name holds `expected` (None: nothing) at that moment; otherwise Conflict."""
        ...

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        """The bytes of a name. NotFound; Saturated with reason `oversized` instead of reading more than `max_bytes`."""
        ...

    async def names(self, prefix: str) -> list[StoredObject]:
        """The objects in a folder, in order of names."""
        ...

    async def folders(self, prefix: str) -> list[str]:
        """The folders in a folder, in order of names."""
        ...

    async def drop(self, prefix: str) -> None:
        """Remove a folder in which nothing is left; one that has something stays. Only for its single writer."""
        ...

    async def delete(self, name: str) -> None:
        """Idempotent."""
        ...

    async def sweep(self, prefix: str) -> int:
        """Remove unfinished files of killed writers from a folder; their number. Only for the single writer of that
        folder.
        """
        ...

    async def close(self) -> None:
        """Release it."""
        ...


class Watermark(Protocol):
    """Bytes that one process keeps across restarts, such as the newest snapshot that it has accepted."""

    def read(self) -> bytes | None:
        """The bytes kept last; None before the first time. Unavailable when they cannot be read."""
        ...

    def keep(self, contents: bytes) -> None:
        """Durable when this returns. Unavailable when it cannot be written."""
        ...
