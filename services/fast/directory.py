"""Keeps Fast's routes, ACLs and bans in step with Registry: from a verified snapshot if there is one, then by pulling.

Never keeps an entry across a change of the directory's epoch, and counts age from the time of the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from snavio.clock import Clock
from snavio.domain import directory as domain
from snavio.native import Dispatch
from snavio.replication.directory_feed import DirectoryFeed
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.signed.snapshot_manifest import Manifest
from snavio.signed.snapshot_reader import Refused, SnapshotReader
from snavio.signed.verification import ACL, BANS, ROUTES, TERMS, VerifiedSnapshot
from snavio.telemetry.cache_meter import CacheMeter
from snavio.v1.registry_pb2 import (
    DEDUPE_MODE_STRICT,
    DISPATCH_MODE_COLD_ONLY,
    Ban,
    Change,
    Fairness,
    Route,
)

LASTS_MONO_NS = 2**63 - 1
"""The end of a ban that lasts until it is lifted."""


class CachedDirectory(Poller):
    """Pulls `Changes` into the native dispatch tables."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        registry: MeshChannel,
        clock: Clock,
        interval_s: float,
        instance: str = "",
        bound_ms: int = 0,
        snapshots: SnapshotReader | None = None,
        meters: Sequence[CacheMeter] = (),
    ) -> None:
        self._meters = meters
        self._dispatch = dispatch
        self._snapshots = snapshots
        self._forgotten_mono_ns: int | None = None
        """When the entries of another epoch were read, until this one is read as a whole."""
        self.feed = DirectoryFeed(
            registry,
            clock=clock,
            take=self._apply,
            forget=self._forget,
            hear_time=dispatch.heard_time,
            instance=instance,
            bound_ms=bound_ms,
        )
        super().__init__("directory", self._pull, clock=clock, interval_s=interval_s)

    async def start(self, *, within_s: float) -> None:
        """Begin with a snapshot, or else read everything once; then keep up."""
        if await self._load_snapshot():
            # Old entries escalate by their age, so the start need not wait for a Registry that is away.
            self.begin()
        else:
            await super().start(within_s=within_s)

    async def _load_snapshot(self) -> bool:
        if self._snapshots is None:
            return False
        loaded = await self._snapshots.load((ROUTES, ACL, BANS), self._take, optional=(TERMS,))
        if isinstance(loaded, Refused):
            # Whatever it was, nothing of it may stay.
            self._dispatch.clear()
            return False
        self.feed.go_on_from(loaded.version, loaded.epoch)
        # From when Registry was read, not from now: a right that was taken away since must not look fresh.
        age_ns = self._clock.unix_ns() - loaded.generated_unix_ns
        self._dispatch.renewed(self._clock.mono_ns() - age_ns)
        return True

    def _take(self, snapshot: VerifiedSnapshot) -> Manifest:
        """On another thread; ValueError when the parts cannot be read."""
        parts = snapshot.parts
        self._dispatch.load_snapshot(
            parts[ROUTES],
            parts[ACL],
            bans_part=parts[BANS],
            terms_part=parts.get(TERMS),
            now_unix_ns=self._clock.unix_ns(),
            now_mono_ns=self._clock.mono_ns(),
        )
        return snapshot.manifest

    async def _pull(self) -> None:
        asked = await self.feed.catch_up()
        # Only now: a half-read list lacks revocations, and renewing the age of what it grants
        # would keep a revoked right alive.
        now = self._clock.mono_ns()
        age_ns, another = self._dispatch.age_ns(now), ""
        if self._forgotten_mono_ns is not None:
            age_ns, another = now - self._forgotten_mono_ns, f"directory {self.feed.epoch}"
            self._forgotten_mono_ns = None
        self._dispatch.renewed(asked)
        for meter in self._meters:
            meter.refreshed(took_ns=now - asked, age_ns=age_ns, another=another)

    def _forget(self, asked_mono_ns: int | None) -> None:
        if asked_mono_ns is not None:
            self._forgotten_mono_ns = asked_mono_ns - (self._dispatch.age_ns(asked_mono_ns) or 0)
        self._dispatch.clear()

    def _apply(self, change: Change) -> None:
        match change.WhichOneof("value"):
            case "route":
                if change.deleted:
                    self._dispatch.drop_route(change.route.target, change.route.name)
                else:
                    self._put_route(change.route)
            case "acl":
                entry = change.acl
                if change.deleted:
                    self._dispatch.deny(entry.source, entry.target, entry.name)
                else:
                    self._dispatch.allow(
                        entry.source,
                        entry.target,
                        entry.name,
                        change.version,
                        profile=entry.profile,
                        ends_unix_ns=max(0, entry.expires_unix_ns),
                    )
            case "source_quota":
                quota = change.source_quota
                # One for while the source is banned is Slow's alone: nothing that is banned goes from memory.
                limited = quota.always and not change.deleted
                self._dispatch.limit_source(
                    quota.source, quota.target, quota.name, limited=limited, shadow=quota.shadow
                )
            case "ban":
                self._put_ban(change.ban, lifted=change.deleted)

    def _put_route(self, route: Route) -> None:
        self._dispatch.put_route(
            route.target,
            route.name,
            queue=max(0, route.queue_kind - 1),
            topic=route.topic,
            profile=route.profile,
            strict=route.dedupe_mode == DEDUPE_MODE_STRICT,
            cold_only=route.dispatch_mode == DISPATCH_MODE_COLD_ONLY,
            limited=route.HasField("limit"),
            shadow=route.limit.shadow,
            fairness=_fairness(route.fairness),
        )

    def _put_ban(self, ban: Ban, *, lifted: bool) -> None:
        key = (ban.list, ban.source, ban.target, ban.name)
        if lifted:
            self._dispatch.lift_ban(*key)
            return
        # On the monotonic clock from here on: a wall clock that is set neither ends a ban nor prolongs it.
        left_ns = ban.until_unix_ns - self._clock.unix_ns()
        until = self._clock.mono_ns() + left_ns if ban.until_unix_ns else LASTS_MONO_NS
        self._dispatch.put_ban(*key, until_mono_ns=min(until, LASTS_MONO_NS))


def _fairness(fairness: Fairness) -> tuple[int, float, float, int, int, int]:
    """A route's fairness rule, with the defaults of the fields that it leaves out."""
    given = domain.Fairness(**{field.name: value for field, value in fairness.ListFields()})
    return (
        given.window_seconds,
        given.dominant_share,
        given.competing_share,
        given.competitors,
        given.minimum_volume,
        given.ban_seconds,
    )
