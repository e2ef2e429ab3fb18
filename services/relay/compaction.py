"""Rewrites the files of an hour that is over into few large ones.

Never takes a file away before a signed manifest says where its events are now; interrupted anywhere, it goes on from
there. A file that cannot be read, or is not what its manifest says, stays as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from services.relay.present import manifests
from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.native import parse_timestamp
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox
from snavio.telemetry.manifest import FileEntry, Stretch, TelemetryManifest, present
from snavio.telemetry.parquet import EncodedFile, concat, encode, read
from snavio.telemetry.signing import Keys, ManifestSigner, verified

LOOK_SECONDS: Final = 60.0
HOUR_NS: Final = 3600 * 1_000_000_000
# Between half a million and a million rows a file; from so many on, a file is left alone.
MAX_ROWS: Final = 1_000_000
LARGE_ROWS: Final = 500_000
MAX_FILE_BYTES: Final = 512 << 20


class Compaction:
    """Lives on one event loop; one hour at a time."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        archive: Archive,
        signer: ManifestSigner,
        keys: Keys,
        turn: asyncio.Lock,
        clock: Clock,
        after_s: float,
    ) -> None:
        self._outbox = outbox
        self._archive = archive
        self._signer = signer
        self._keys = keys
        self._turn = turn
        self._clock = clock
        self._after_ns = round(after_s * 1e9)
        self._task: asyncio.Task[None] | None = None
        self._counts = {"hours": 0, "files_before": 0, "files_after": 0, "unreadable": 0, "failed": 0}
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Look for hours that are over until `stop`."""
        self._task = asyncio.create_task(self._run(), name="compaction")

    async def stop(self) -> None:
        """End; an hour under way is taken up at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def counters(self) -> dict[str, int]:
        """What was compacted."""
        return dict(self._counts)

    async def compact_once(self) -> int:
        """Compact every hour that is over for long enough; how many."""
        hours = 0
        for folder in await self._outbox.hours():
            # `telemetry/date=2026-11-16/hour=05`
            date, hour = (part.partition("=")[2] for part in folder.split("/")[1:3])
            end_ns = parse_timestamp(f"{date}T{hour}:00:00Z") + HOUR_NS
            if self._clock.unix_ns() < end_ns + self._after_ns:
                continue
            async with self._turn:
                await self._compact(folder)
                await self._outbox.compacted(folder)
            hours += 1
        self._counts["hours"] += hours
        return hours

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.compact_once()
            except SnavioError as error:
                self._counts["failed"] += 1
                self._log.warning("compaction failed", reason=error.reason, message=str(error))
            except Exception:
                # The hour stays as it is and is tried again; it must not end the compaction of others.
                self._counts["failed"] += 1
                self._log.exception("compaction failed")

    async def _compact(self, folder: str) -> None:
        found = await manifests(self._archive, folder)
        keys = await self._keys()
        # Signing what we did not verify would turn somebody's forgery into our word.
        good = [manifest for manifest in found if verified(manifest, manifest.signed_form(), keys)]
        kept: list[FileEntry] = []
        replaced: list[str] = []
        for group in _groups(present(good)):
            joined = await self._join(folder, group) if len(group) > 1 else None
            if joined is None:
                kept += group
            else:
                kept.append(joined)
                replaced += [file.name for file in group]
        self._counts["files_before"] += len(present(good))
        self._counts["files_after"] += len(kept)
        if replaced:
            before = {name for manifest in good for name in manifest.replaces}
            manifest = TelemetryManifest(
                await self._outbox.number(),
                self._clock.unix_ns(),
                tuple(kept),
                tuple(sorted({*replaced, *before} - {file.name for file in kept})),
            )
            signed = await self._signer.signed(manifest)
            await self._archive.put(f"{folder}/{signed.file_name}", signed.encoded())
            good.append(signed)
        await self._tidy(folder, good)

    async def _join(self, folder: str, group: Sequence[FileEntry]) -> FileEntry | None:
        """The group as one file; None when one of them is not sound."""
        contents = []
        try:
            for file in group:
                body = await self._archive.get(f"{folder}/{file.name}", max_bytes=MAX_FILE_BYTES)
                if hashlib.sha256(body).hexdigest() != file.sha256:
                    raise ValueError(f"{file.name} is not the file that was signed.")
                contents.append(body)
            encoded = await asyncio.to_thread(_joined, contents)
        except (SnavioError, ValueError) as error:
            self._counts["unreadable"] += 1
            self._log.error("files are left as they are", folder=folder, message=str(error))
            return None
        first, last = group[0].stretch, group[-1].stretch
        stretch = Stretch(first.instance, first.epoch, first.first_seq, last.last_seq)
        if encoded.rows != stretch.rows:
            return None
        await self._archive.put(f"{folder}/{stretch.file_name}", encoded.contents)
        digest = hashlib.sha256(encoded.contents).hexdigest()
        return FileEntry(
            stretch, encoded.min_at_unix_ns, encoded.max_at_unix_ns, len(encoded.contents), digest
        )

    async def _tidy(self, folder: str, good: Sequence[TelemetryManifest]) -> None:
        """Take away what the newest manifest replaces, the manifests that list nothing else, and unfinished files."""
        await self._archive.sweep(folder)
        newest = max(good, key=lambda manifest: manifest.number, default=None)
        if newest is None or not newest.replaces:
            return
        for name in newest.replaces:
            await self._archive.delete(f"{folder}/{name}")
        told = {file.name for file in newest.files} | set(newest.replaces)
        for manifest in good:
            if manifest is not newest and {file.name for file in manifest.files} <= told:
                await self._archive.delete(f"{folder}/{manifest.file_name}")


def _groups(files: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Files that become one: consecutive, of one life, up to the size of a file."""
    group: list[FileEntry] = []
    for file in sorted(files, key=lambda file: file.stretch):
        if group:
            last, rows = group[-1].stretch, sum(member.stretch.rows for member in group)
            follows = (last.instance, last.epoch, last.last_seq + 1) == (
                file.stretch.instance,
                file.stretch.epoch,
                file.stretch.first_seq,
            )
            if not follows or rows + file.stretch.rows > MAX_ROWS or rows >= LARGE_ROWS:
                yield group
                group = []
        group.append(file)
    if group:
        yield group


def _joined(contents: Sequence[bytes]) -> EncodedFile:
    return encode(concat([read(body) for body in contents]))
