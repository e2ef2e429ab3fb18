"""Knows when each source last polled its keys: exact in memory, on disk at most once a minute.

Never makes a poll wait for the disk. A crash loses a minute of polls, so that a source only seems to have
polled earlier than it did; no source is ever taken to know a key that it does not know.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.ports.keystore import KeyStore

WRITE_EVERY_NS = 60 * 1_000_000_000


class KeyPolls:
    """Bounded by the key store: only sources with a key set are noted."""

    def __init__(self, *, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._at: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._written_mono_ns: int | None = None

    async def load(self) -> None:
        """Load the times from disk."""
        self._at = {**await self._store.polls(), **self._at}

    def note(self, source: str) -> None:
        """Note that `source`, which has a key set, has polled its keys."""
        self._at[source] = self._unwritten[source] = self._clock.unix_ns()

    def last_ns(self, source: str) -> int | None:
        """Time of the last poll of a source, if any."""
        return self._at.get(source)

    async def write(self, *, now: bool = False) -> None:
        """Write the times if the last write is a minute ago, or with `now` in any case."""
        mono = self._clock.mono_ns()
        recent = self._written_mono_ns is not None and mono - self._written_mono_ns < WRITE_EVERY_NS
        if not self._unwritten or (recent and not now):
            return
        # Before the attempt: a disk that fails must not be tried more often than one that works.
        self._written_mono_ns = mono
        noted, self._unwritten = self._unwritten, {}
        try:
            await self._store.record_polls(noted)
        except BaseException:
            self._unwritten = {**noted, **self._unwritten}
            raise
