"""Keeps the counts of key use, and the events about them, over a restart of Signer.

Never makes a report of Shield wait for the disk, never writes more than once a minute, and never claims to have
watched while nobody did: after a long absence the watch begins anew, and counts that were kept are still told.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog

from services.signer.keys.key_expiry_watch import KeyExpiryWatch
from services.signer.keys.key_traffic import KeyTraffic
from snavio.clock import Clock
from snavio.domain.key_retirement import DAY_NS
from snavio.errors import SnavioError
from snavio.host.store_worker import StoreWorker
from snavio.native import blake3_hex
from snavio.ports.archive import Watermark

WRITE_EVERY_NS: Final = 60 * 1_000_000_000
# Meanwhile Shields keep their counts and tell them later. Longer, and one of them may have been restarted and have
# forgotten some: "unused for a day" could then be said of a version that was used.
LONGEST_ABSENCE_NS: Final = 10 * 60 * 1_000_000_000
MAX_FILE_BYTES: Final = 64 << 20
DISK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _KeptCounts:
    at_ns: int
    since_ns: int
    use: list[list[Any]]
    said: list[list[Any]]
    rehearsals: list[list[Any]] | None = None
    """None in a file of before counts were kept for two days."""


class TrafficLedger:
    """One file; `load` before the first report."""

    def __init__(
        self, *, file: Watermark, usage: KeyTraffic, key_expiry_watch: KeyExpiryWatch, clock: Clock
    ) -> None:
        self._file = file
        self._usage = usage
        self._key_expiry_watch = key_expiry_watch
        self._clock = clock
        self._written_mono_ns: int | None = None
        # Its own thread, with a bound on waiting: a disk that hangs must hold up neither rotations nor, by using up the
        # threads that all share, signatures.
        self._disk = StoreWorker("key use", max_waiting=1, timeout_s=DISK_SECONDS)
        self._log = structlog.get_logger()

    async def load(self) -> None:
        """Load the file, if it is intact."""
        try:
            self._restore(_decoded(await self._disk.run(self._file.read)))
        except SnavioError as error:
            self._log.warning("key use not read", reason=error.reason)
        except (ValueError, TypeError, KeyError):
            self._log.warning("key use not read", reason="damaged")

    def _restore(self, kept: _KeptCounts | None) -> None:
        now = self._clock.unix_ns()
        # From the future: the clock was set back, and none of these times mean anything.
        if kept is None or kept.at_ns > now:
            return
        watched = now - kept.at_ns <= LONGEST_ABSENCE_NS
        since = kept.since_ns if kept.rehearsals is not None else max(kept.since_ns, now - DAY_NS)
        self._usage.restore(kept.use, observed_since_ns=since if watched else now)
        self._usage.resume(kept.rehearsals or [])
        self._key_expiry_watch.restore(kept.said)

    async def write(self, *, now: bool = False) -> None:
        """Write the counts if the last write is a minute ago, or with `now` in any case."""
        mono = self._clock.mono_ns()
        recent = self._written_mono_ns is not None and mono - self._written_mono_ns < WRITE_EVERY_NS
        if recent and not now:
            return
        # Also without news: how long we have watched is news.
        self._written_mono_ns = mono
        kept = _KeptCounts(
            self._clock.unix_ns(),
            self._usage.observed_since_ns,
            self._usage.told(),
            self._key_expiry_watch.told(),
            self._usage.rehearsals(),
        )
        try:
            await self._disk.run(lambda: self._keep(kept))
        except SnavioError as error:
            # Counts are for people who wonder; a disk that refuses them must not hold up what keys need.
            self._log.warning("key use not kept", reason=error.reason)

    async def close(self) -> None:
        """Write the counts, and end."""
        await self.write(now=True)
        with contextlib.suppress(SnavioError):
            await self._disk.close(lambda: None)

    def _keep(self, kept: _KeptCounts) -> None:
        body = orjson.dumps(kept)
        self._file.keep(blake3_hex(body).encode() + b"\n" + body)


def _decoded(encoded: bytes | None) -> _KeptCounts | None:
    """None when there is no file; ValueError, TypeError or KeyError for one that was cut or changed."""
    if encoded is None:
        return None
    checksum, _, body = encoded.partition(b"\n")
    if checksum != blake3_hex(body).encode():
        raise ValueError("checksum")
    return _KeptCounts(**orjson.loads(body))
