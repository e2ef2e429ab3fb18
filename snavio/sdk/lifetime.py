"""Base classes for async context managers with start and close.

Never closes what did not begin: a `start` that raises has to let go itself of what it holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closable(ABC):
    """Open from when it is made."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything."""


class Startable(Closable):
    """Open from when it has started."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @abstractmethod
    async def start(self) -> None:
        """Begin; raises when that does not work."""
