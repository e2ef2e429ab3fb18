"""Suspended sources and tenants: from a verified snapshot or from Registry's dump, then by pulling changes.

Never admits a source by a half-read list: a suspension stays until the whole of a new list has been read.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.native import Admission, snapshot_suspensions
from snavio.replication.directory_feed import DirectoryFeed
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.signed.snapshot_manifest import Manifest
from snavio.signed.snapshot_reader import Refused, SnapshotReader
from snavio.signed.verification import SUSPENSIONS, VerifiedSnapshot
from snavio.v1.registry_pb2 import Change

KIND = "suspension"


class SuspensionCache(Poller):
    """Keeps `admission`'s suspended sources."""

    def __init__(
        self,
        *,
        admission: Admission,
        registry: MeshChannel,
        clock: Clock,
        interval_s: float,
        instance: str = "",
        bound_ms: int = 0,
        snapshots: SnapshotReader | None = None,
    ) -> None:
        self._admission = admission
        self._snapshots = snapshots
        self._clock = clock
        self._ends: dict[str, int] = {}
        """Monotonic time at which a suspension ends by itself; those of a snapshot end with Registry's tombstone."""
        self.sources: set[str] = set()
        self._before: set[str] = set()
        """Those of the directory before this one, until all of this one has been read."""
        self.feed = DirectoryFeed(
            registry,
            clock=clock,
            take=self._take,
            forget=self._begin_again,
            kind=KIND,
            instance=instance,
            bound_ms=bound_ms,
        )
        super().__init__("suspensions", self._pull, clock=clock, interval_s=interval_s)

    async def start(self, *, within_s: float) -> None:
        """Read them once, then keep reading."""
        # Not instead of the pull: a suspension of this minute must hold from the first command on.
        await self._load_snapshot()
        await super().start(within_s=within_s)

    async def _load_snapshot(self) -> None:
        if self._snapshots is None:
            return
        loaded = await self._snapshots.load((SUSPENSIONS,), _suspended)
        if isinstance(loaded, Refused):
            return
        manifest, sources = loaded
        self.feed.go_on_from(manifest.version, manifest.epoch)
        for source in sources:
            self._set(source, suspended=True)

    async def _pull(self) -> None:
        # First, so that a Registry that is away does not prolong a suspension.
        self._end()
        await self.feed.catch_up()
        self._lift()

    def _take(self, change: Change) -> None:
        if change.WhichOneof("value") != KIND:
            return
        suspension = change.suspension
        self._set(suspension.source, suspended=not change.deleted)
        self._ends.pop(suspension.source, None)
        if suspension.until_unix_ns and not change.deleted:
            # On the monotonic clock from here on: a wall clock that is set neither ends it nor prolongs it.
            left_ns = suspension.until_unix_ns - self._clock.unix_ns()
            self._ends[suspension.source] = self._clock.mono_ns() + left_ns

    def _end(self) -> None:
        """Lift suspensions whose time is over. Registry's tombstone may come later: it waits for Signer."""
        now = self._clock.mono_ns()
        for source in [source for source, end_ns in self._ends.items() if end_ns <= now]:
            del self._ends[source]
            self._set(source, suspended=False)

    def _begin_again(self, _asked_mono_ns: int | None) -> None:
        self._before |= self.sources
        self.sources = set()
        self._ends = {}

    def _lift(self) -> None:
        for source in self._before - self.sources:
            self._admission.set_suspended(source, False)
        self._before = set()

    def _set(self, source: str, *, suspended: bool) -> None:
        self._admission.set_suspended(source, suspended)
        (self.sources.add if suspended else self.sources.discard)(source)


def _suspended(snapshot: VerifiedSnapshot) -> tuple[Manifest, list[str]]:
    return snapshot.manifest, snapshot_suspensions(snapshot.parts[SUSPENSIONS])
