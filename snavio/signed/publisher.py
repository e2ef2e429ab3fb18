"""Publishes snapshots: signed as readers verify, parts before manifests, never over a newer one.

Never publishes a manifest that the readers' own rules refuse, and never deletes a part that may be being read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from snavio.clock import Clock
from snavio.errors import Conflict, NotFound, Saturated, SnavioError
from snavio.ports.archive import Archive
from snavio.signed.signed_document import Sign
from snavio.signed.snapshot_manifest import MAX_MANIFEST_BYTES, PLACES, Manifest, ManifestPart, read_manifest
from snavio.signed.snapshot_reader import Keys
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused
from snavio.signed.verification import verify_manifest, verify_part

GENERATED: Final = "Snavio.Snapshot.Generated"
FAILED: Final = "Snavio.Snapshot.Failed"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published:
    """The bytes at a manifest's place; `manifest` is None if they are not a valid one."""

    encoded: bytes | None
    manifest: Manifest | None

    def holds(self, version: int, epoch: int) -> bool:
        """True if it has that version."""
        found = self.manifest
        return found is not None and (found.version, found.epoch) == (version, epoch)

    def is_newer_than(self, version: int, epoch: int) -> bool:
        """True if it has a later version of the same epoch."""
        found = self.manifest
        return found is not None and found.epoch == epoch and found.version > version

    @property
    def paths(self) -> set[str]:
        """The places of its parts."""
        return {part.path for part in self.manifest.parts} if self.manifest is not None else set()


Tell = Callable[[str, str], None]
"""Tells somebody of a failure: its reason, and a sentence."""
TOLD_AGAIN_NS: Final = 3600 * 1_000_000_000
MOST_TOLD: Final = 512
"""Characters of the sentence."""


class PublishingMeter:
    """Counts the rounds of one writer by outcome, and times them, under the public names of metrics.

    `tell` hears of a failure when its reason is another than that of the round before, and every hour while it lasts.
    """

    def __init__(self, clock: Clock, *, what: str, unreadable: str, tell: Tell) -> None:
        self._tell = tell
        self._told: tuple[str, int] | None = None
        self._clock = clock
        self._what = what
        self._unreadable = unreadable
        """The reason that stands for a ValueError."""
        self._began_mono_ns = 0
        self.counts: Counter[str] = Counter()
        self.size_bytes = 0
        self._write_seconds = 0.0
        self.log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Rounds by outcome."""
        return dict(self.counts)

    def gauges(self) -> dict[str, float]:
        """Size of the newest snapshot, and the time that it took to write."""
        return {
            "Snavio.Snapshot.SizeBytes": float(self.size_bytes),
            "Snavio.Snapshot.WriteDuration": self._write_seconds,
        }

    async def guarded(self, publish: Callable[[], Awaitable[T]]) -> T | None:
        """The outcome of one round; None if it failed, which is counted and logged, not raised."""
        self._began_mono_ns = self._clock.mono_ns()
        try:
            done = await publish()
            self._told = None
            return done
        except SnapshotRefused as refused:
            self.failed(f"invalid-{refused.refusal.value}", refused.detail)
        except SnavioError as error:
            self.failed(error.reason, str(error))
        except ValueError as error:
            self.failed(self._unreadable, str(error))
        return None

    def generated(self) -> float:
        """Count a snapshot that this round wrote; the seconds that it took."""
        self.counts[GENERATED] += 1
        self._write_seconds = (self._clock.mono_ns() - self._began_mono_ns) / 1e9
        return self._write_seconds

    def failed(self, reason: str, detail: str) -> None:
        """Count, log and tell a round that published nothing."""
        self.counts[f"{FAILED}.{reason}"] += 1
        self.log.error(f"{self._what} not written", reason=reason, detail=detail)
        now = self._clock.mono_ns()
        # Rounds fail every half minute for as long as the cause lasts.
        if self._told is None or self._told[0] != reason or now - self._told[1] >= TOLD_AGAIN_NS:
            self._told = (reason, now)
            self._tell(reason, f"{self._what}: {detail}"[:MOST_TOLD])

    def went_back(self, what: str, version: int) -> None:
        """Count and log that the newest snapshot is ahead of its source, which came from a backup."""
        self.counts["Snavio.Snapshot.Superseded"] += 1
        self.log.warning(f"the {what} went back in time and takes a new epoch", version=version)


class Publisher:
    """One writer's access to an archive. Raises SnavioError or SnapshotRefused; earlier snapshots then stay."""

    def __init__(
        self, *, archive: Archive, sign: Sign, keys: Keys, clock: Clock, lifetime_s: float, max_bytes: int
    ) -> None:
        self._archive = archive
        self._sign = sign
        self._keys = keys
        self._clock = clock
        self._lifetime_ns = round(lifetime_s * 1e9)
        self._max_bytes = max_bytes
        self._key_id = ""
        self._log = structlog.get_logger()

    async def published(self, kind: str) -> Published:
        """The published snapshot, verified; with damaged parts it counts as invalid, so that it is replaced."""
        try:
            encoded = await self._archive.get(PLACES[kind], max_bytes=MAX_MANIFEST_BYTES)
        except NotFound:
            return Published(None, None)
        except Saturated as error:
            # Something that no reader accepts either: an operator put it there and has to take it away.
            raise Conflict(f"{PLACES[kind]} is not a manifest.", reason="not-a-manifest") from error
        try:
            found = read_manifest(encoded)
            manifest = verify_manifest(
                found,
                kind=kind,
                keys=await self._keys(),
                # At its own time: an expired one may still be newer than what we have.
                now_unix_ns=found.manifest.generated_unix_ns,
                max_bytes=self._max_bytes,
            )
            await self._verify_parts(manifest)
        except SnapshotRefused as refused:
            # Not kept: a forged version must not block ours for ever.
            self._log.warning("published snapshot is not good", kind=kind, reason=refused.refusal.value)
            return Published(encoded, None)
        return Published(encoded, manifest)

    def draft(
        self, kind: str, *, version: int, epoch: int, generated_unix_ns: int, parts: tuple[ManifestPart, ...]
    ) -> Manifest:
        """An unsigned manifest with this writer's lifetime."""
        return Manifest(kind, version, epoch, generated_unix_ns, generated_unix_ns + self._lifetime_ns, parts)

    async def signed(self, manifest: Manifest) -> Manifest:
        """The manifest with a signature that its readers accept."""
        signed = await manifest.signed(self._sign, key_id=self._key_id)
        self._key_id = signed.key_id
        # Exactly the readers' check; a signature that they refuse is worse than the old snapshot.
        verify_manifest(
            read_manifest(signed.encoded()),
            kind=signed.kind,
            keys=await self._keys(),
            now_unix_ns=self._clock.unix_ns(),
            max_bytes=self._max_bytes,
        )
        return signed

    async def put(self, part: ManifestPart, contents: bytes) -> None:
        """Store a part; before any manifest that names it."""
        await self._archive.put(part.path, contents)

    async def publish(self, manifest: Manifest, before: Published) -> None:
        """Write a signed manifest, if its place still holds `before`; otherwise Conflict."""
        await self._archive.swap(PLACES[manifest.kind], manifest.encoded(), expected=before.encoded)

    async def prune(self, names: Sequence[str], *, kept: set[str]) -> None:
        """Delete parts of these names except those `kept`: the newest, and the one before, which may be being read."""
        for name in names:
            for stored in await self._archive.names(f"registry/{name}"):
                if stored.name.endswith(".bin") and stored.name not in kept:
                    await self._archive.delete(stored.name)

    async def _verify_parts(self, manifest: Manifest) -> None:
        """Verify the parts, so that a damaged snapshot is replaced even while nothing changes."""
        for part in manifest.parts:
            try:
                contents = await self._archive.get(part.path, max_bytes=part.size)
            except (NotFound, Saturated) as error:
                raise SnapshotRefused(
                    RefusalReason.PART_MISSING, f"The part {part.name} is missing."
                ) from error
            await asyncio.to_thread(verify_part, part, contents, of=manifest)
