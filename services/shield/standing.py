"""Which sources are in good standing: their HMAC keys from Signer, their suspensions from Registry.

Never serves on data older than its stale limit: a key that was revoked meanwhile would still open the door.
"""

from __future__ import annotations

from services.shield.key_usage import KeyUsage
from snavio.clock import Clock
from snavio.errors import Unavailable
from snavio.native import Admission, snapshot_suspensions
from snavio.snapshot.manifest import Manifest
from snavio.snapshot.reader import Refused, SnapshotReader
from snavio.snapshot.verification import SUSPENSIONS, Snapshot
from snavio.transport.channel import MeshChannel
from snavio.transport.pull import Pull
from snavio.v1.registry_pb2 import ChangesRequest, ChangesResponse
from snavio.v1.signer_pb2 import KeysetChangesRequest, KeysetChangesResponse

CALL_SECONDS = 2.0
# However slowly routes are pulled: a revoked key has to be out within five seconds, a failed call included.
LONGEST_KEY_PAUSE_S = 1.0


class Standing:
    """Pulls both authorities into `admission`."""

    def __init__(
        self,
        *,
        admission: Admission,
        signer: MeshChannel,
        registry: MeshChannel,
        clock: Clock,
        interval_s: float,
        stale_ms: int,
        snapshots: SnapshotReader | None = None,
    ) -> None:
        self._admission = admission
        self._signer = signer
        self._registry = registry
        self._snapshots = snapshots
        self._stale_ns = stale_ms * 1_000_000
        self._keys_version = 0
        self._keys_epoch = 0
        self._sources: set[str] = set()
        self._directory_version = 0
        self._directory_epoch = 0
        self._suspended: set[str] = set()
        self._keys = Pull(
            "keysets", self._pull_keys, clock=clock, interval_s=min(interval_s, LONGEST_KEY_PAUSE_S)
        )
        self._usage = KeyUsage(admission=admission, signer=signer)
        # A pull of its own: a report that hangs must not hold up the news of a revocation.
        self._reports = Pull("key usage", self._usage.report, clock=clock, interval_s=interval_s)
        self._suspensions = Pull("suspensions", self._pull_suspensions, clock=clock, interval_s=interval_s)

    async def start(self, *, within_s: float) -> None:
        """Read both once, then keep reading."""
        # Not instead of the pull: a suspension of this minute must hold from the first command on.
        await self._load_snapshot()
        await self._keys.start(within_s=within_s)
        await self._suspensions.start(within_s=within_s)
        await self._reports.start(within_s=within_s)

    async def stop(self) -> None:
        """End both pulls."""
        await self._keys.stop()
        await self._suspensions.stop()
        await self._reports.stop()

    def counters(self) -> dict[str, int]:
        """What was forgotten because Signer was away for too long."""
        return {"key_use_dropped": self._usage.dropped}

    def require_fresh(self) -> None:
        """Unavailable when either authority has been away for too long."""
        for pull in (self._keys, self._suspensions):
            age = pull.age_ns()
            if age is None or age >= self._stale_ns:
                raise Unavailable("Keys or suspensions are out of date; refusing until they can be read.")

    def key_may_be_newer(self) -> None:
        """A command named a key version that is not known here: look again soon."""
        self._keys.nudge()

    async def _pull_keys(self) -> None:
        self._usage.collect()
        more = True
        while more:
            answer = await self._signer.call(
                "/snavio.v1.Signer/KeysetChanges",
                KeysetChangesRequest(since_version=self._keys_version),
                KeysetChangesResponse,
                timeout_s=CALL_SECONDS,
            )
            if answer.store_epoch != self._keys_epoch:
                restarted = self._keys_version != 0
                self._forget_keys()
                self._keys_epoch = answer.store_epoch
                if restarted:
                    continue
            for keyset in answer.keyset:
                if keyset.deleted:
                    self._admission.remove_keyset(keyset.source)
                    self._sources.discard(keyset.source)
                    continue
                self._sources.add(keyset.source)
                self._admission.set_keyset(
                    keyset.source,
                    [
                        (key.version, key.secret, key.not_before_unix_ns, key.not_after_unix_ns, key.revoked)
                        for key in keyset.version
                    ],
                )
            self._keys_version = answer.version
            more = answer.more

    def _forget_keys(self) -> None:
        for source in self._sources:
            self._admission.remove_keyset(source)
        self._sources.clear()
        self._keys_version = 0

    async def _load_snapshot(self) -> None:
        if self._snapshots is None:
            return
        loaded = await self._snapshots.load((SUSPENSIONS,), _suspended)
        if isinstance(loaded, Refused):
            return
        manifest, sources = loaded
        self._directory_version, self._directory_epoch = manifest.version, manifest.epoch
        self._suspended = set(sources)
        for source in sources:
            self._admission.set_suspended(source, True)

    async def _pull_suspensions(self) -> None:
        more = True
        lifted: set[str] = set()
        while more:
            answer = await self._registry.call(
                "/snavio.v1.Registry/Changes",
                ChangesRequest(since_version=self._directory_version, directory_epoch=self._directory_epoch),
                ChangesResponse,
                timeout_s=CALL_SECONDS,
            )
            if answer.directory_epoch != self._directory_epoch:
                # The answer already starts from 0. What the old directory suspended stays so until the
                # whole of the new one has been read: nobody is let in by a half-read list.
                lifted, self._suspended = self._suspended, set()
                self._directory_epoch = answer.directory_epoch
            for change in answer.change:
                if change.WhichOneof("value") == "suspension":
                    source = change.suspension.source
                    self._admission.set_suspended(source, not change.deleted)
                    (self._suspended.discard if change.deleted else self._suspended.add)(source)
            self._directory_version = answer.version
            more = answer.more
            if not more:
                for source in lifted - self._suspended:
                    self._admission.set_suspended(source, False)


def _suspended(snapshot: Snapshot) -> tuple[Manifest, list[str]]:
    return snapshot.manifest, snapshot_suspensions(snapshot.parts[SUSPENSIONS])
