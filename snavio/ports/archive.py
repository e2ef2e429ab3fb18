"""Where snapshots lie: named bytes that one service writes and others read, and what a reader remembers of them.

A name holds what was last put there in whole or what was there before, never a mixture; readers trust none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One name of an archive."""

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
        """What is there. NotFound; Saturated with reason `oversized` instead of reading more than `max_bytes`."""
        ...

    async def names(self, prefix: str) -> list[StoredObject]:
        """What lies under a folder, in order of names."""
        ...

    async def delete(self, name: str) -> None:
        """Idempotent."""
        ...

    async def sweep(self, prefix: str) -> int:
        """Remove what killed writers left unfinished under a folder; how many. Only for who alone writes there."""
        ...

    async def close(self) -> None:
        """Release it."""
        ...


class Watermark(Protocol):
    """Bytes that one process keeps over restarts, such as the newest snapshot that it has accepted."""

    def read(self) -> bytes | None:
        """What was kept last; None before the first time. Unavailable when it cannot be read."""
        ...

    def keep(self, contents: bytes) -> None:
        """Durable when this returns. Unavailable when it cannot be written."""
        ...
