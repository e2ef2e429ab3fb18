"""Publishes snapshots of the directory: built beside the serving path, checked as readers check, manifests last.

Never replaces a newer snapshot, never publishes one that its readers would refuse, and never fails a request: when
something goes wrong the snapshot before stays, and it is counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from snavio.clock import Clock
from snavio.domain.directory import AclEntry, Ban, Route, SourceQuota, Suspension
from snavio.native import SnapshotTables, blake3_hex, snapshot_header
from snavio.ports.archive import Archive
from snavio.ports.directory import Directory
from snavio.ports.survey import Survey
from snavio.signed.publisher import FAILED, Published, Publisher, PublishingMeter
from snavio.signed.signed_document import Sign
from snavio.signed.snapshot_manifest import ACL, SNAPSHOT, Manifest, ManifestPart, part_path
from snavio.signed.snapshot_reader import Keys
from snavio.signed.verification import ACL as ACL_PART
from snavio.signed.verification import (
    BANS,
    ROUTES,
    SUSPENSIONS,
    TERMS,
    VerifiedSnapshot,
    examine,
    verify_part,
)
from snavio.telemetry.events import EventJournal, SnapshotFailed, SnapshotTooLarge, SnapshotWritten

PARTS: Final = (ROUTES, ACL_PART, SUSPENSIONS, BANS, TERMS)


class PublishOutcome(StrEnum):
    """Outcome of one round."""

    WRITTEN = "written"
    RENEWED = "renewed"
    """Nothing had changed; the same parts got a manifest with a new time."""
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    """A newer snapshot exists and stays; the next round writes one of a new epoch."""
    TOO_LARGE = "too-large"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Interval, lifetime and largest size of snapshots."""

    interval_s: float
    lifetime_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """The directory at one moment; without parts when they are published already."""

    version: int
    epoch: int
    parts: dict[str, bytes] | None


class SnapshotWriter:
    """Writes a snapshot in every round in which the directory has changed."""

    def __init__(
        self,
        *,
        directory: Directory,
        archive: Archive,
        sign: Sign,
        keys: Keys,
        clock: Clock,
        plan: SnapshotPlan,
        events: EventJournal,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._plan = plan
        self._events = events
        self._publisher = Publisher(
            archive=archive,
            sign=sign,
            keys=keys,
            clock=clock,
            lifetime_s=plan.lifetime_s,
            max_bytes=plan.max_bytes,
        )
        self.meter = PublishingMeter(
            clock,
            what="snapshot",
            unreadable="bad-record",
            tell=lambda reason, detail: events.record(
                SnapshotFailed(reason, detail), at_unix_ns=clock.unix_ns()
            ),
        )
        self._told_version = -1

    async def write_once(self) -> PublishOutcome:
        """Publish the directory if it has changed; a failure is counted and returned, not raised."""
        outcome = await self.meter.guarded(self._write) or PublishOutcome.FAILED
        if outcome is PublishOutcome.WRITTEN:
            written = SnapshotWritten(f"{self.meter.size_bytes} bytes in {self.meter.generated():.3f} s")
            self._events.record(written, at_unix_ns=self._clock.unix_ns())
        return outcome

    async def turn(self) -> None:
        """Repeated work: one round; one that failed unexpectedly is counted as such."""
        try:
            await self.write_once()
        except Exception:
            self.meter.failed("internal", "")
            raise

    async def _write(self) -> PublishOutcome:
        # Read before the directory: a newer one that appears meanwhile makes the swap fail, as it should.
        before = {kind: await self._publisher.published(kind) for kind in (ACL, SNAPSHOT)}
        # The age of everything in it counts from here.
        generated_unix_ns = self._clock.unix_ns()
        newest = before[SNAPSHOT]
        taken = await self._directory.survey(lambda survey: _take(survey, newest))
        if newest.is_newer_than(taken.version, taken.epoch):
            # Our own signature proves that the directory was ahead once: it came from a backup. It takes a new epoch
            # before its next writes have the numbers of those that were lost: a reader who knows the lost ones would
            # never hear of the others, revocations among them.
            self.meter.went_back("directory", taken.version)
            await self._directory.renew_epoch()
            return PublishOutcome.SUPERSEDED
        if taken.parts is None:
            return await self._renew(before, generated_unix_ns)
        size = sum(map(len, taken.parts.values()))
        if size > self._plan.max_bytes:
            return self._too_large(size, taken.version)
        described = tuple(_describe(name, taken) for name in PARTS)
        draft = self._draft(taken.version, taken.epoch, generated_unix_ns, described)
        await asyncio.to_thread(_check, VerifiedSnapshot(draft, taken.parts))
        manifests = [await self._publisher.signed(draft), await self._publisher.signed(_acl_alone(draft))]
        for part in described:
            await self._publisher.put(part, taken.parts[part.name])
        # The whole snapshot's manifest is the last to appear: what it names is complete by then.
        for manifest in reversed(manifests):
            await self._publisher.publish(manifest, before[manifest.kind])
        self.meter.size_bytes = size
        await self._publisher.prune(PARTS, kept={*(part.path for part in described), *newest.paths})
        return PublishOutcome.WRITTEN

    async def _renew(self, before: dict[str, Published], generated_unix_ns: int) -> PublishOutcome:
        """Publish a manifest with a new time: the directory has not changed, so its snapshot is still right."""
        found = before[SNAPSHOT].manifest
        assert found is not None
        age_s = (generated_unix_ns - found.generated_unix_ns) / 1e9
        if 0 <= age_s < self._plan.lifetime_s / 2:
            return PublishOutcome.UNCHANGED
        draft = self._draft(found.version, found.epoch, generated_unix_ns, found.parts)
        for manifest in (
            await self._publisher.signed(_acl_alone(draft)),
            await self._publisher.signed(draft),
        ):
            await self._publisher.publish(manifest, before[manifest.kind])
        return PublishOutcome.RENEWED

    def _draft(
        self, version: int, epoch: int, generated_unix_ns: int, parts: tuple[ManifestPart, ...]
    ) -> Manifest:
        return self._publisher.draft(
            SNAPSHOT, version=version, epoch=epoch, generated_unix_ns=generated_unix_ns, parts=parts
        )

    def _too_large(self, size: int, version: int) -> PublishOutcome:
        self.meter.counts[f"{FAILED}.too-large"] += 1
        # Once per version: it is found anew in every round until somebody acts.
        if version != self._told_version:
            self._told_version = version
            self._events.record(
                SnapshotTooLarge(size, self._plan.max_bytes, version), at_unix_ns=self._clock.unix_ns()
            )
        self.meter.log.error(
            SnapshotTooLarge.name, size_bytes=size, max_bytes=self._plan.max_bytes, version=version
        )
        return PublishOutcome.TOO_LARGE


def _take(survey: Survey, published: Published) -> _Taken:
    """On the survey's thread."""
    version, epoch = survey.version, survey.epoch
    if published.holds(version, epoch) or published.is_newer_than(version, epoch):
        return _Taken(version, epoch, None)
    tables = SnapshotTables()
    for kind in (Route, AclEntry, Suspension, Ban, SourceQuota):
        for page in survey.records(kind):
            tables.add(kind.kind, page)
    return _Taken(version, epoch, dict(zip(PARTS, tables.parts(version=version, epoch=epoch), strict=True)))


def _describe(name: str, taken: _Taken) -> ManifestPart:
    assert taken.parts is not None
    contents = taken.parts[name]
    _, version, epoch, rows = snapshot_header(contents)
    return ManifestPart(
        name, part_path(name, version=version, epoch=epoch), len(contents), rows, blake3_hex(contents)
    )


def _check(snapshot: VerifiedSnapshot) -> None:
    for part in snapshot.manifest.parts:
        verify_part(part, snapshot.parts[part.name], of=snapshot.manifest)
    examine(snapshot)


def _acl_alone(manifest: Manifest) -> Manifest:
    return replace(manifest, kind=ACL, parts=(manifest.part(ACL_PART),))
