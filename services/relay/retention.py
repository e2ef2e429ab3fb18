"""Deletes the hours of the archive that are older than their owner wants to keep, and signs a note of what went.

Never deletes a file before the note, read back from the archive, tells of it. Never deletes an hour that waits to be
exported. Interrupted anywhere, it goes on from there: manifests go last, so that an hour tells what it had until then.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import structlog

from services.relay.manifests import manifests
from snavio.clock import Clock
from snavio.errors import NotFound, SnavioError
from snavio.native import parse_timestamp
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox
from snavio.signed.archive_manifest import ROOT, FileEntry, present
from snavio.signed.manifest_signer import Keys, verified
from snavio.signed.retirement_note import MAX_NOTE_BYTES, BadNote, RetirementNote, read_note
from snavio.signed.signed_document import Sign

HOUR_NS: Final = 3600 * 1_000_000_000
DAY_NS: Final = 24 * HOUR_NS
LOOK_SECONDS: Final = 600.0
MOST_AT_ONCE: Final = 6
"""Hours that one look takes away, 36 days' worth in a day: who set the clock or the days wrong has time to see it."""
MOST_PARTS: Final = 100
_FOLDER = re.compile(ROOT + r"/date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})", re.ASCII)


class ArchiveRetention:
    """Lives on one event loop; one hour at a time."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        archive: Archive,
        sign: Sign,
        keys: Keys,
        turn: asyncio.Lock,
        clock: Clock,
        keep_days: int,
    ) -> None:
        self._outbox = outbox
        self._archive = archive
        self._sign = sign
        self._keys = keys
        self._turn = turn
        self._clock = clock
        self._keep_days = keep_days
        self._key_id = ""
        self._counts = {"hours": 0, "files": 0, "events": 0, "bytes": 0, "failed": 0}
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Counters of what went."""
        return dict(self._counts)

    async def look(self) -> None:
        """Repeated work: as `retire_once`, and counts failures."""
        try:
            await self.retire_once()
        except Exception:
            self._counts["failed"] += 1
            raise

    async def retire_once(self) -> int:
        """Take away what is too old, oldest first, up to a bound; the number of hours."""
        gone = 0
        for folder in await self._due():
            # Exports and compactions write into hours, and revocations read them.
            async with self._turn:
                if any(planned.folder == folder for planned in await self._outbox.planned()):
                    continue
                await self._retire(folder)
            gone += 1
            if gone >= MOST_AT_ONCE:
                break
        return gone

    async def _due(self) -> list[str]:
        before = self._clock.unix_ns() - self._keep_days * DAY_NS
        due: list[str] = []
        for date in await self._archive.folders(ROOT):
            # A date is over a day after its begin at the latest; younger ones need not be listed.
            for folder in await self._archive.folders(date):
                found = _FOLDER.fullmatch(folder)
                if found is not None and parse_timestamp(f"{found[1]}T{found[2]}:00:00Z") + HOUR_NS <= before:
                    due.append(folder)
            if len(due) >= MOST_AT_ONCE:
                break
        return due

    async def _retire(self, folder: str) -> None:
        keys = await self._keys()
        listed = present(
            [one for one in await manifests(self._archive, folder) if verified(one, one.signed_form(), keys)]
        )
        stored = await self._archive.names(folder)
        notes = await self._notes(folder)
        # Killed in the middle, the hour goes on with the note that it has: what is left is less than what was.
        if stored and not any(note.verified(keys) and note.tells_of(listed) for note in notes):
            names = {file.name for file in listed}
            parquet = [one.name.rpartition("/")[2] for one in stored if one.name.endswith(".parquet")]
            note = await self._noted(folder, listed, unlisted=len(set(parquet) - names), part=len(notes) + 1)
            self._counts["files"] += note.files + note.unlisted
            self._counts["events"] += note.events
            self._counts["bytes"] += note.size
            self._log.info("an hour of the archive went", folder=folder, files=note.files, events=note.events)
        for one in sorted(stored, key=lambda one: one.name.rpartition("/")[2].startswith("_manifest-")):
            await self._archive.delete(one.name)
        await self._archive.sweep(folder)
        await self._archive.drop(folder)
        await self._outbox.compacted(folder)
        self._counts["hours"] += 1

    async def _noted(
        self, folder: str, files: list[FileEntry], *, unlisted: int, part: int
    ) -> RetirementNote:
        """The signed note, as it is read back from the archive."""
        note = await RetirementNote.of(
            folder,
            files,
            part=part,
            now_unix_ns=self._clock.unix_ns(),
            keep_days=self._keep_days,
            unlisted=unlisted,
        ).signed(self._sign, key_id=self._key_id)
        self._key_id = note.key_id
        await self._archive.put(note.name, note.encoded())
        try:
            again = read_note(await self._archive.get(note.name, max_bytes=MAX_NOTE_BYTES))
        except BadNote as error:
            raise SnavioError(f"The note of {folder} is {error}.", reason="bad-note") from error
        if again != note or not again.verified(await self._keys()):
            raise SnavioError(f"The note of {folder} does not verify.", reason="bad-note")
        return again

    async def _notes(self, folder: str) -> list[RetirementNote]:
        """The notes that the hour has already, by their part."""
        found: list[RetirementNote] = []
        for part in range(1, MOST_PARTS):
            name = RetirementNote.of(
                folder, (), part=part, now_unix_ns=0, keep_days=self._keep_days, unlisted=0
            ).name
            try:
                found.append(read_note(await self._archive.get(name, max_bytes=MAX_NOTE_BYTES)))
            except NotFound:
                break
            except BadNote as error:
                raise SnavioError(f"{name} is no note: {error}.", reason="bad-note") from error
        return found
