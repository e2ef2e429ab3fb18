"""Keeps Fast's routes and ACLs in step with Registry: from a verified snapshot if there is one, then by pulling.

Never keeps an entry across a change of the directory's epoch, and counts age from when the question was asked.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.native import Dispatch
from snavio.snapshot.manifest import Manifest
from snavio.snapshot.reader import Refused, SnapshotReader
from snavio.snapshot.verification import ACL, ROUTES, Snapshot
from snavio.transport.channel import MeshChannel
from snavio.transport.pull import Pull
from snavio.v1.registry_pb2 import (
    DEDUPE_MODE_STRICT,
    Change,
    ChangesRequest,
    ChangesResponse,
)

CALL_SECONDS = 2.0
MAILBOX_QUEUE = 0
"""Number of the mailbox among Fast's target queues."""


class CachedDirectory:
    """Pulls `Changes` into the native dispatch tables."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        registry: MeshChannel,
        clock: Clock,
        interval_s: float,
        snapshots: SnapshotReader | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._registry = registry
        self._clock = clock
        self._snapshots = snapshots
        self._version = 0
        self._epoch = 0
        self._pull = Pull("directory", self._refresh, clock=clock, interval_s=interval_s)

    async def start(self, *, within_s: float) -> None:
        """Begin with a snapshot, or else read everything once; then keep up."""
        if await self._load_snapshot():
            # Old entries escalate by their age, so nobody has to wait for a Registry that is away.
            self._pull.begin()
        else:
            await self._pull.start(within_s=within_s)

    async def stop(self) -> None:
        """End the pull."""
        await self._pull.stop()

    def refresh_soon(self) -> None:
        """A stale entry was used, or a command was not found: look again now."""
        self._pull.nudge()

    async def _load_snapshot(self) -> bool:
        if self._snapshots is None:
            return False
        loaded = await self._snapshots.load((ROUTES, ACL), self._take)
        if isinstance(loaded, Refused):
            # Whatever it was, nothing of it may stay.
            self._dispatch.clear()
            return False
        self._version, self._epoch = loaded.version, loaded.epoch
        # From when Registry was read, not from now: a right that was taken away since must not look fresh.
        age_ns = self._clock.unix_ns() - loaded.generated_unix_ns
        self._dispatch.renewed(self._clock.mono_ns() - age_ns)
        return True

    def _take(self, snapshot: Snapshot) -> Manifest:
        """On another thread; ValueError when the parts cannot be read."""
        parts = snapshot.parts
        self._dispatch.load_snapshot(parts[ROUTES], parts[ACL], now_unix_ns=self._clock.unix_ns())
        return snapshot.manifest

    async def _refresh(self) -> None:
        while True:
            asked = self._clock.mono_ns()
            answer = await self._registry.call(
                "/snavio.v1.Registry/Changes",
                ChangesRequest(since_version=self._version, directory_epoch=self._epoch),
                ChangesResponse,
                timeout_s=CALL_SECONDS,
            )
            if answer.directory_epoch != self._epoch:
                self._dispatch.clear()
                self._epoch = answer.directory_epoch
            for change in answer.change:
                self._apply(change)
            self._version = answer.version
            if not answer.more:
                # Only now: a half-read list lacks revocations, and renewing the age of what it grants
                # would keep a revoked right alive.
                self._dispatch.renewed(asked)
                return

    def _apply(self, change: Change) -> None:
        match change.WhichOneof("value"):
            case "route":
                route = change.route
                if change.deleted:
                    self._dispatch.drop_route(route.target, route.name)
                    return
                self._dispatch.put_route(
                    route.target,
                    route.name,
                    queue=MAILBOX_QUEUE,
                    topic=route.topic,
                    profile=route.profile,
                    strict=route.dedupe_mode == DEDUPE_MODE_STRICT,
                )
            case "acl":
                entry = change.acl
                if change.deleted:
                    self._dispatch.deny(entry.source, entry.target, entry.name)
                else:
                    self._dispatch.allow(entry.source, entry.target, entry.name, change.version)
