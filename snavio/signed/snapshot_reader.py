"""Loads a verified snapshot, or returns the reason why there is none.

Never raises because of the archive's contents, never hands out bytes that were not verified, and never accepts a
snapshot older than an accepted one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import structlog

from snavio.clock import Clock
from snavio.errors import NotFound, Saturated, SnavioError
from snavio.ports.archive import Archive, Watermark
from snavio.signed.accepted import AcceptedSnapshot, read_seen
from snavio.signed.snapshot_manifest import (
    MAX_MANIFEST_BYTES,
    PLACES,
    SNAPSHOT,
    Manifest,
    Unverified,
    read_manifest,
)
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused
from snavio.signed.verification import VerifiedSnapshot, VerifyingKey, verify_manifest, verify_part

MAX_SNAPSHOT_BYTES: Final = 256 << 20
LOAD_SECONDS: Final = 30.0
FAILURES: Final = "Snavio.Cache.SnapshotLoadFailure"
LOADED: Final = "Snavio.Cache.SnapshotLoaded"

Keys: TypeAlias = Callable[[], Awaitable[Sequence[VerifyingKey]]]
"""The platform's public keys; raises SnavioError when they cannot be fetched."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why there is no snapshot to start from."""

    refusal: RefusalReason
    detail: str


class SnapshotReader:
    """One reader of one archive; `watermark` is its own. `refused` is called with the reason of a refusal."""

    def __init__(
        self,
        *,
        archive: Archive,
        keys: Keys,
        watermark: Watermark,
        clock: Clock,
        max_bytes: int = MAX_SNAPSHOT_BYTES,
        refused: Callable[[Refused], None] = lambda _refused: None,
    ) -> None:
        self._archive = archive
        self._keys = keys
        self._watermark = watermark
        self._clock = clock
        self._max_bytes = max_bytes
        self._refused = refused
        self._counts: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Loads, and failures by reason."""
        return dict(self._counts)

    async def load(
        self,
        parts: Sequence[str],
        use: Callable[[VerifiedSnapshot], T],
        *,
        optional: Sequence[str] = (),
        kind: str = SNAPSHOT,
    ) -> T | Refused:
        """The result of `use` on the verified snapshot with these parts, on another thread.

        `optional` are parts that older writers do not know; the signed manifest says whether they are there.

        `use` raises ValueError for parts that it cannot read.
        """

        async def load() -> T:
            async with asyncio.timeout(LOAD_SECONDS):
                snapshot = await self._fetch(parts, optional, kind)
            # Outside the deadline: a thread cannot be cancelled, and a late load would mix with a cold load.
            return await self._use(snapshot, use)

        used = await _or_refused(load())
        if isinstance(used, Refused):
            self._tell(used)
        else:
            self._counts[LOADED] += 1
        return used

    async def verify(self, *, kind: str = SNAPSHOT) -> Manifest | Refused:
        """As `load` of all parts, without using or remembering anything."""

        async def verify() -> Manifest:
            async with asyncio.timeout(LOAD_SECONDS):
                manifest, _ = await self._manifest(kind)
                await self._parts(manifest, [part.name for part in manifest.parts])
            return manifest

        return await _or_refused(verify())

    async def _fetch(self, names: Sequence[str], optional: Sequence[str], kind: str) -> VerifiedSnapshot:
        manifest, seen = await self._manifest(kind)
        there = {part.name for part in manifest.parts}
        snapshot = await self._parts(manifest, [*names, *(name for name in optional if name in there)])
        # Before it is used: after a crash without it, an older snapshot could be accepted again.
        await asyncio.to_thread(self._watermark.keep, seen.encoded())
        return snapshot

    async def _use(self, snapshot: VerifiedSnapshot, use: Callable[[VerifiedSnapshot], T]) -> T:
        try:
            return await asyncio.to_thread(use, snapshot)
        except ValueError as error:
            raise SnapshotRefused(
                RefusalReason.PART_UNREADABLE, f"The snapshot cannot be read: {error}."
            ) from error

    async def _manifest(self, kind: str) -> tuple[Manifest, AcceptedSnapshot]:
        try:
            encoded = await self._archive.get(PLACES[kind], max_bytes=MAX_MANIFEST_BYTES)
        except NotFound as error:
            raise SnapshotRefused(RefusalReason.ABSENT, "There is no snapshot.") from error
        except Saturated as error:
            raise SnapshotRefused(RefusalReason.OVERSIZED, "The manifest is too large.") from error
        found: Unverified = read_manifest(encoded)
        manifest = verify_manifest(
            found,
            kind=kind,
            keys=await self._keys(),
            now_unix_ns=self._clock.unix_ns(),
            max_bytes=self._max_bytes,
        )
        seen = read_seen(await asyncio.to_thread(self._watermark.read))
        return manifest, seen.after(manifest)

    async def _parts(self, manifest: Manifest, names: Sequence[str]) -> VerifiedSnapshot:
        contents: dict[str, bytes] = {}
        for name in names:
            part = manifest.part(name)
            try:
                contents[name] = await self._archive.get(part.path, max_bytes=part.size)
            except NotFound as error:
                raise SnapshotRefused(RefusalReason.PART_MISSING, f"The part {name} is missing.") from error
            except Saturated as error:
                raise SnapshotRefused(
                    RefusalReason.PART_TRUNCATED, f"The part {name} is too long."
                ) from error
            await asyncio.to_thread(verify_part, part, contents[name], of=manifest)
        return VerifiedSnapshot(manifest, contents)

    def _tell(self, refused: Refused) -> None:
        reason = refused.refusal.value
        self._counts[f"{FAILURES}.{reason}"] += 1
        # Before the first snapshot there is none; operators need no report of that.
        if refused.refusal is RefusalReason.ABSENT:
            self._log.info("snapshot not used", reason=reason, detail=refused.detail)
            return
        self._counts[FAILURES] += 1
        self._log.warning("snapshot not used", reason=reason, detail=refused.detail)
        self._refused(refused)


async def _or_refused(work: Awaitable[T]) -> T | Refused:
    """The result of `work`, or the reason why there is none."""
    try:
        return await work
    except SnapshotRefused as refused:
        return Refused(refused.refusal, refused.detail)
    except SnavioError as error:
        return Refused(RefusalReason.UNAVAILABLE, str(error))
    except TimeoutError:
        return Refused(RefusalReason.UNAVAILABLE, f"It could not be read within {LOAD_SECONDS:.0f} s.")
