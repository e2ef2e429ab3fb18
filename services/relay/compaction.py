"""Rewrites the files of an hour that is over into few large ones.

Never deletes a file before a signed manifest, read back from the archive, says which file has its events now, and that
file was read back too. Never writes what readers would refuse as too large, and never keeps an export waiting for more
than the writing of a manifest. Interrupted anywhere, it goes on from there. A file that cannot be read, or is not what
its manifest says, stays as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final

import structlog

from services.relay.manifests import manifests
from services.relay.merging import MAX_FILE_BYTES, Merged, carried_over, groups, portioned
from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.native import parse_timestamp
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry, present
from snavio.signed.manifest_signer import Keys, ManifestSigner, verified
from snavio.telemetry.parquet import EncodedFile, concat, encode, read

LOOK_SECONDS: Final = 60.0
LONGEST_PAUSE_S: Final = 600.0
HOUR_NS: Final = 3600 * 1_000_000_000


class ArchiveCompaction:
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
        self._counts = {
            "hours": 0,
            "files_before": 0,
            "files_after": 0,
            "unreadable": 0,
            "unproven": 0,
            "failed": 0,
        }
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Counters of the compaction."""
        return dict(self._counts)

    async def compact_once(self) -> int:
        """Compact every hour that ended long enough ago; returns the number of hours."""
        hours = 0
        for folder in await self._outbox.hours():
            # `telemetry/date=2026-11-16/hour=05`
            date, hour = (part.partition("=")[2] for part in folder.split("/")[1:3])
            end_ns = parse_timestamp(f"{date}T{hour}:00:00Z") + HOUR_NS
            if self._clock.unix_ns() < end_ns + self._after_ns:
                continue
            if await self._compact(folder):
                await self._outbox.compacted(folder)
            hours += 1
        self._counts["hours"] += hours
        return hours

    async def look(self) -> None:
        """Repeated work: as `compact_once`, and counts failures."""
        try:
            await self.compact_once()
        except Exception:
            # The hour stays as it is and is tried again.
            self._counts["failed"] += 1
            raise

    async def _compact(self, folder: str) -> bool:
        """Join, list, prove, delete; false when an export came meanwhile, so that the hour has to be done again."""
        listed = present(await self._good(folder))
        merged = [
            Merged((joined,), tuple(file.name for file in group))
            if joined is not None
            else Merged(tuple(group))
            for group in groups(listed)
            for joined in [await self._join(folder, group) if len(group) > 1 else None]
        ]
        self._counts["files_before"] += len(listed)
        self._counts["files_after"] += sum(len(each.files) for each in merged)
        if any(each.replaces for each in merged):
            await self._list(folder, merged)
        after = await self._good(folder)
        proven = [heir for heir in after if heir.replaces and await self._proven(folder, heir)]
        # Revocations read these files and exports write others beside them.
        async with self._turn:
            await self._tidy(folder, after, proven)
            late = {manifest.number for manifest in await self._good(folder)}
        return late <= {manifest.number for manifest in after}

    async def _good(self, folder: str) -> list[ArchiveManifest]:
        """The manifests with a valid signature: signing the contents of others would make forgeries valid."""
        keys = await self._keys()
        found = await manifests(self._archive, folder)
        return [manifest for manifest in found if verified(manifest, manifest.signed_form(), keys)]

    async def _list(self, folder: str, merged: Sequence[Merged]) -> None:
        """Sign which files there are now and which they replace, in as many manifests as readers' bounds require."""
        for part in portioned(merged):
            files = tuple(file for each in part for file in each.files)
            replaces = {name for each in part for name in each.replaces} - {file.name for file in files}
            async with self._turn:
                manifest = ArchiveManifest(
                    await self._outbox.number(), self._clock.unix_ns(), files, tuple(sorted(replaces))
                )
                signed = await self._signer.signed(manifest)
                await self._archive.put(f"{folder}/{signed.file_name}", signed.encoded())

    async def _join(self, folder: str, group: Sequence[FileEntry]) -> FileEntry | None:
        """The group as one file; None when one of its files cannot be read."""
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
        stretch = EventRange(first.instance, first.epoch, first.first_seq, last.last_seq)
        if encoded.rows != stretch.rows:
            return None
        digest = hashlib.sha256(encoded.contents).hexdigest()
        entry = FileEntry(
            stretch, encoded.min_at_unix_ns, encoded.max_at_unix_ns, len(encoded.contents), digest
        )
        await self._archive.put(f"{folder}/{entry.name}", encoded.contents)
        # Before a manifest sends readers there.
        return entry if await self._sound(folder, entry) else None

    async def _sound(self, folder: str, file: FileEntry) -> bool:
        """Read a file back; true if it is as its manifest says."""
        try:
            body = await self._archive.get(f"{folder}/{file.name}", max_bytes=MAX_FILE_BYTES)
        except SnavioError as error:
            self._log.error("a file cannot be read", folder=folder, file=file.name, message=str(error))
            return False
        digest = await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest())
        return digest == file.sha256

    async def _proven(self, folder: str, heir: ArchiveManifest) -> bool:
        """True if every event of the files that `heir` replaces is in a file that can be read."""
        if carried_over(heir) and all([await self._sound(folder, file) for file in heir.files]):
            return True
        self._counts["unproven"] += 1
        self._log.error("files stay beside those that replace them", folder=folder, manifest=heir.file_name)
        return False

    async def _tidy(
        self, folder: str, good: Sequence[ArchiveManifest], proven: Sequence[ArchiveManifest]
    ) -> None:
        """Delete what `proven` manifests replace, the manifests that list nothing else, and unfinished files."""
        await self._archive.sweep(folder)
        replaced = {name for manifest in proven for name in manifest.replaces}
        told = replaced | {file.name for manifest in proven for file in manifest.files}
        for name in sorted(replaced):
            await self._archive.delete(f"{folder}/{name}")
        for manifest in good:
            if not manifest.replaces and {file.name for file in manifest.files} <= told:
                await self._archive.delete(f"{folder}/{manifest.file_name}")


def _joined(contents: Sequence[bytes]) -> EncodedFile:
    return encode(concat([read(body) for body in contents]))
