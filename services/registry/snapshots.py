"""Publishes snapshots of the directory: built beside the serving path, checked as readers check, manifests last.

Never replaces a newer snapshot, never publishes one that its readers would refuse, and never fails a request: when
something goes wrong the snapshot before stays, and it is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import structlog

from snavio.clock import Clock
from snavio.domain.directory import AclEntry, Route, Suspension
from snavio.errors import Conflict, NotFound, Saturated, SnavioError
from snavio.native import SnapshotTables, blake3_hex, snapshot_header
from snavio.ports.archive import Archive
from snavio.ports.directory import Directory
from snavio.ports.survey import Survey
from snavio.snapshot.manifest import (
    ACL,
    MAX_MANIFEST_BYTES,
    PLACES,
    SNAPSHOT,
    Manifest,
    ManifestPart,
    part_path,
    read_manifest,
)
from snavio.snapshot.reader import Keys
from snavio.snapshot.refusal import Refusal, SnapshotRefused
from snavio.snapshot.verification import ACL as ACL_PART
from snavio.snapshot.verification import (
    ROUTES,
    SUSPENSIONS,
    Snapshot,
    examine,
    verify_manifest,
    verify_part,
)

PARTS: Final = (ROUTES, ACL_PART, SUSPENSIONS)
SIGNING_ATTEMPTS: Final = 3
TOO_LARGE: Final = "snavio.snapshot.too_large"

Sign = Callable[[bytes], Awaitable[tuple[str, bytes]]]
"""Signs with the platform's key: the key's id and the signature."""


class Outcome(StrEnum):
    """What became of one round."""

    WRITTEN = "written"
    RENEWED = "renewed"
    """Nothing had changed; the same parts got a manifest with a new time."""
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    """A newer one lies there; it stays."""
    TOO_LARGE = "too-large"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """How often, how long they may be used, and how large they may get."""

    interval_s: float
    lifetime_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _Published:
    """What lies at a manifest's place; `manifest` is None for something that is none."""

    encoded: bytes | None
    manifest: Manifest | None

    def holds(self, version: int, epoch: int) -> bool:
        found = self.manifest
        return found is not None and (found.version, found.epoch) == (version, epoch)

    def is_newer_than(self, version: int, epoch: int) -> bool:
        found = self.manifest
        return found is not None and found.epoch == epoch and found.version > version


@dataclass(frozen=True, slots=True)
class _Taken:
    """The directory at one moment; without parts when nobody needs them."""

    version: int
    epoch: int
    parts: dict[str, bytes] | None


class SnapshotWriter:
    """Writes a snapshot in every round in which the directory has moved."""

    def __init__(
        self,
        *,
        directory: Directory,
        archive: Archive,
        sign: Sign,
        keys: Keys,
        clock: Clock,
        plan: SnapshotPlan,
    ) -> None:
        self._directory = directory
        self._archive = archive
        self._sign = sign
        self._keys = keys
        self._clock = clock
        self._plan = plan
        self._key_id = ""
        self._counts: Counter[str] = Counter()
        self._size_bytes = 0
        self._write_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Write in the background until `stop`."""
        self._task = asyncio.create_task(self._run(), name="snapshots")

    async def stop(self) -> None:
        """End the background work; a round under way leaves nothing that a reader could see."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def counters(self) -> dict[str, int]:
        """Rounds by what became of them, under document 001's names."""
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """Size of the newest snapshot, and how long it took."""
        return {
            "Snavio.Snapshot.SizeBytes": float(self._size_bytes),
            "Snavio.Snapshot.WriteDuration": self._write_seconds,
        }

    async def write_once(self) -> Outcome:
        """One round."""
        began = self._clock.mono_ns()
        try:
            outcome = await self._write()
        except SnapshotRefused as refused:
            outcome = self._failed(f"invalid-{refused.refusal.value}", refused.detail)
        except SnavioError as error:
            outcome = self._failed(error.reason, str(error))
        except ValueError as error:
            outcome = self._failed("bad-record", str(error))
        if outcome is Outcome.WRITTEN:
            self._counts["Snavio.Snapshot.Generated"] += 1
            self._write_seconds = (self._clock.mono_ns() - began) / 1e9
        return outcome

    async def _run(self) -> None:
        while True:
            try:
                await self.write_once()
            except Exception:  # Whatever it is, it must not end the snapshots of this process.
                self._failed("internal", "")
                self._log.exception("snapshot failed")
            await asyncio.sleep(self._plan.interval_s)

    async def _write(self) -> Outcome:
        # Read before the directory: a newer one that appears meanwhile makes the swap fail, as it should.
        before = {kind: await self._published(kind) for kind in (ACL, SNAPSHOT)}
        # The age of everything in it counts from here.
        generated_unix_ns = self._clock.unix_ns()
        newest = before[SNAPSHOT]
        taken = await self._directory.survey(lambda survey: _take(survey, newest))
        if newest.is_newer_than(taken.version, taken.epoch):
            # The directory went back without a new epoch; it takes one as soon as a reader who is ahead asks.
            self._counts["Snavio.Snapshot.Superseded"] += 1
            self._log.warning("a newer snapshot stays", version=taken.version)
            return Outcome.SUPERSEDED
        if taken.parts is None:
            return await self._renew(before, generated_unix_ns)
        size = sum(map(len, taken.parts.values()))
        if size > self._plan.max_bytes:
            self._counts[TOO_LARGE] += 1
            self._log.error(TOO_LARGE, size_bytes=size, max_bytes=self._plan.max_bytes, version=taken.version)
            return Outcome.TOO_LARGE
        described = tuple(_describe(name, taken) for name in PARTS)
        draft = self._manifest(SNAPSHOT, taken.version, taken.epoch, generated_unix_ns, described)
        await asyncio.to_thread(_check, Snapshot(draft, taken.parts))
        manifests = [await self._signed(draft), await self._signed(_acl_alone(draft))]
        for part in described:
            await self._archive.put(part.path, taken.parts[part.name])
        # The whole snapshot's manifest is the last to appear: what it names is complete by then.
        for manifest in reversed(manifests):
            await self._publish(manifest, before[manifest.kind])
        self._size_bytes = size
        await self._prune(kept={*_paths(draft), *_paths(newest.manifest)})
        return Outcome.WRITTEN

    async def _renew(self, before: dict[str, _Published], generated_unix_ns: int) -> Outcome:
        """The directory says what it said, so its snapshot is as true as if it were read now."""
        found = before[SNAPSHOT].manifest
        assert found is not None
        age_s = (generated_unix_ns - found.generated_unix_ns) / 1e9
        if 0 <= age_s < self._plan.lifetime_s / 2:
            return Outcome.UNCHANGED
        draft = self._manifest(SNAPSHOT, found.version, found.epoch, generated_unix_ns, found.parts)
        for manifest in (await self._signed(_acl_alone(draft)), await self._signed(draft)):
            await self._publish(manifest, before[manifest.kind])
        return Outcome.RENEWED

    async def _published(self, kind: str) -> _Published:
        try:
            encoded = await self._archive.get(PLACES[kind], max_bytes=MAX_MANIFEST_BYTES)
        except NotFound:
            return _Published(None, None)
        except Saturated as error:
            # Something that no reader accepts either: an operator put it there and has to take it away.
            raise Conflict(f"{PLACES[kind]} is not a manifest.", reason="not-a-manifest") from error
        try:
            found = read_manifest(encoded)
            manifest = verify_manifest(
                found,
                kind=kind,
                keys=await self._keys(),
                # Of whatever time: an expired one may still be newer than what we have.
                now_unix_ns=found.manifest.generated_unix_ns,
                max_bytes=self._plan.max_bytes,
            )
            await self._verify_parts(manifest)
        except SnapshotRefused as refused:
            # Not worth keeping: a forged version must not stop ours for ever.
            self._log.warning("published snapshot is not good", reason=refused.refusal.value)
            return _Published(encoded, None)
        return _Published(encoded, manifest)

    async def _verify_parts(self, manifest: Manifest) -> None:
        """So that a damaged snapshot is replaced even while nothing changes."""
        for part in manifest.parts:
            try:
                contents = await self._archive.get(part.path, max_bytes=part.size)
            except (NotFound, Saturated) as error:
                raise SnapshotRefused(Refusal.PART_MISSING, f"The part {part.name} is missing.") from error
            await asyncio.to_thread(verify_part, part, contents, of=manifest)

    def _manifest(
        self, kind: str, version: int, epoch: int, generated_unix_ns: int, parts: tuple[ManifestPart, ...]
    ) -> Manifest:
        expires = generated_unix_ns + round(self._plan.lifetime_s * 1e9)
        return Manifest(kind, version, epoch, generated_unix_ns, expires, parts)

    async def _signed(self, manifest: Manifest) -> Manifest:
        # The key's id is part of what is signed, and only the signature tells which key signs now.
        for _ in range(SIGNING_ATTEMPTS):
            named = replace(manifest, key_id=self._key_id)
            key_id, signature = await self._sign(named.signed_form())
            if key_id == self._key_id:
                signed = replace(named, signature=signature)
                # Exactly what readers will do; a signature that they refuse is worth less than the old snapshot.
                verify_manifest(
                    read_manifest(signed.encoded()),
                    kind=signed.kind,
                    keys=await self._keys(),
                    now_unix_ns=self._clock.unix_ns(),
                    max_bytes=self._plan.max_bytes,
                )
                return signed
            self._key_id = key_id
        raise Conflict("The signing key changes faster than it signs.", reason="signing-key-changes")

    async def _publish(self, manifest: Manifest, before: _Published) -> None:
        await self._archive.swap(PLACES[manifest.kind], manifest.encoded(), expected=before.encoded)

    async def _prune(self, *, kept: set[str]) -> None:
        """This snapshot's parts and those of the one before, which somebody may be reading, stay."""
        for name in PARTS:
            for stored in await self._archive.names(f"registry/{name}"):
                if stored.name.endswith(".bin") and stored.name not in kept:
                    await self._archive.delete(stored.name)

    def _failed(self, reason: str, detail: str) -> Outcome:
        self._counts[f"Snavio.Snapshot.Failed.{reason}"] += 1
        self._log.error("snapshot not written", reason=reason, detail=detail)
        return Outcome.FAILED


def _take(survey: Survey, published: _Published) -> _Taken:
    """On the survey's thread."""
    version, epoch = survey.version, survey.epoch
    if published.holds(version, epoch) or published.is_newer_than(version, epoch):
        return _Taken(version, epoch, None)
    tables = SnapshotTables()
    for kind in (Route, AclEntry, Suspension):
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


def _check(snapshot: Snapshot) -> None:
    for part in snapshot.manifest.parts:
        verify_part(part, snapshot.parts[part.name], of=snapshot.manifest)
    examine(snapshot)


def _acl_alone(manifest: Manifest) -> Manifest:
    return replace(manifest, kind=ACL, parts=(manifest.part(ACL_PART),))


def _paths(manifest: Manifest | None) -> set[str]:
    return {part.path for part in manifest.parts} if manifest is not None else set()
