"""Archives pending pages: plans an export durably, writes its files and its signed manifest, then drops the pages.

Never writes a file under a name or into a folder that an earlier attempt at the same export did not use, so that a
retry after a crash leaves each event in the archive once. Only the manifest tells anew when it was signed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from services.relay.export_plan import ExportSchedule, ExportSlice, due, portions
from services.relay.pending_pages import PendingPages
from services.relay.rejected_pages import park
from services.relay.relay_events import SERVICE, RelayEvents
from snavio.clock import Clock
from snavio.errors import IntegrityError, SnavioError
from snavio.host.periodic import Periodic
from snavio.native import Tombstones, format_timestamp
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox, PageInfo, PlannedExport
from snavio.signed.archive_manifest import ROOT, ArchiveManifest, FileEntry, folder_of
from snavio.signed.manifest_signer import ManifestSigner
from snavio.telemetry.events import Event, ExecutedAfterRevocation, JournalGap
from snavio.telemetry.parquet import Late, encode_pages

TICK_SECONDS: Final = 1.0
"""Under load every tick makes a file and a signed manifest: more of them cost CPU, and readers want large files."""
LONGEST_PAUSE_S: Final = 10.0
UNREADABLE: Final = (ValueError, TypeError, OverflowError, IntegrityError)
"""Errors that a page with wrong contents raises, in contrast to those of the machine."""

_Written = tuple[FileEntry, bytes, Sequence[Late]]


class Exporter:
    """Lives on one event loop; one export at a time."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        archive: Archive,
        waiting: PendingPages,
        own: RelayEvents,
        signer: ManifestSigner,
        tombstones: Tombstones,
        turn: asyncio.Lock,
        clock: Clock,
        rhythm: ExportSchedule,
        revocations_known_unix_ns: Callable[[], int],
    ) -> None:
        self._outbox = outbox
        self._archive = archive
        self._waiting = waiting
        self._own = own
        self._signer = signer
        self._tombstones = tombstones
        self._turn = turn
        self._clock = clock
        self._rhythm = rhythm
        self._known_unix_ns = revocations_known_unix_ns
        self._planned: list[PlannedExport] = []
        self._exports = Periodic(
            "exports",
            self._export,
            every_s=TICK_SECONDS,
            first_s=TICK_SECONDS / 2,
            longest_s=LONGEST_PAUSE_S,
        )
        self._counts = {
            "exports": 0,
            "files": 0,
            "events": 0,
            "bytes": 0,
            "failed": 0,
            "damaged": 0,
            "after_revocation": 0,
            "swept": 0,
        }
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Resume exports that an earlier life began, then export until `stop`."""
        try:
            # A life that was killed within a write left a file that nobody else would ever remove.
            self._counts["swept"] += await self._archive.sweep(ROOT)
        except SnavioError as error:
            self._log.warning("the archive was not swept", reason=error.reason, message=str(error))
        self.resume(await self._outbox.planned())
        self._exports.start(at_once=True)

    def resume(self, planned: Sequence[PlannedExport]) -> None:
        """Put exports that an earlier life planned before any other."""
        self._planned = list(planned)
        for export in self._planned:
            self._waiting.plan(export.pages)

    async def stop(self) -> None:
        """End; an export under way is resumed at the next start."""
        await self._exports.stop()

    def counters(self) -> dict[str, int]:
        """Counters of the exports."""
        return dict(self._counts)

    async def export_once(self, *, flush: bool = False) -> int:
        """Finish planned exports, then archive due pages; returns the number of events. Raises the first failure."""
        done = 0
        while self._planned:
            done += await self._execute(self._planned[0])
            self._planned.pop(0)
        now = self._clock.unix_ns()
        pages = due(
            self._waiting.unplanned(),
            self._rhythm,
            now_unix_ns=now,
            stored_before_unix_ns=self._known_unix_ns(),
            flush=flush,
        )
        if pages:
            ids = [page.page_id for page in pages]
            export = await self._outbox.plan(now, folder_of(now), ids)
            self._waiting.plan(ids)
            self._planned.append(export)
            done += await self._execute(export)
            self._planned.remove(export)
        return done

    async def _export(self) -> None:
        try:
            await self.export_once()
        except Exception:
            # The next attempt does the same again.
            self._counts["failed"] += 1
            raise

    async def _execute(self, export: PlannedExport) -> int:
        # Not while revocations are taken in: those look at what is archived, we look at those that are known.
        async with self._turn:
            files: list[FileEntry] = []
            events: list[Event] = []
            for portion in portions(self._waiting.of(export.pages)):
                sound, damaged = await self._bodies(portion)
                encoded, unreadable = await self._encoded(portions(sound), sound)
                events += [*damaged, *unreadable]
                for entry, contents, late in encoded:
                    await self._archive.put(f"{export.folder}/{entry.name}", contents)
                    files.append(entry)
                    events += [_after_revocation(found) for found in late]
            if files:
                # The time of signing, not of the plan: a key made in between is no key of that earlier time, and
                # with one export that can never be signed, everything behind it would wait for ever.
                manifest = ArchiveManifest(export.number, self._clock.unix_ns(), tuple(files))
                signed = await self._signer.signed(manifest)
                await self._archive.put(f"{export.folder}/{signed.file_name}", signed.encoded())
            newest = max((file.max_at_unix_ns for file in files), default=0)
            async with self._own.stored_with(events) as (pages, lives):
                ids = await self._outbox.finish(
                    export.number, newest_unix_ns=newest, pages=pages, lives=lives
                )
                self._waiting.add(ids, pages, [SERVICE] * len(ids))
            self._waiting.done(export.pages)
        archived = sum(file.stretch.rows for file in files)
        self._counts["exports"] += 1
        self._counts["files"] += len(files)
        self._counts["events"] += archived
        self._counts["bytes"] += sum(file.size for file in files)
        self._counts["after_revocation"] += sum(
            event.count for event in events if isinstance(event, ExecutedAfterRevocation)
        )
        return archived

    async def _bodies(self, portion: ExportSlice) -> tuple[dict[PageInfo, bytes], list[JournalGap]]:
        """The pages of a portion with their bytes; damaged pages are left out and reported as gaps."""
        pages = portion.pages
        try:
            bodies = await self._outbox.bodies([page.page_id for page in pages])
            return dict(zip(pages, bodies, strict=True)), []
        except IntegrityError:
            sound, gaps = {}, []
            for page in pages:
                try:
                    (sound[page],) = await self._outbox.bodies([page.page_id])
                except IntegrityError:
                    gaps.append(self._missed(page, "a page of the outbox is damaged"))
            return sound, gaps

    async def _encoded(
        self, parts: Iterable[ExportSlice], bodies: dict[PageInfo, bytes]
    ) -> tuple[list[_Written], list[JournalGap]]:
        """Every part as a file; an unreadable page is set aside and reported as a gap, and the others go on."""
        files: list[_Written] = []
        gaps: list[JournalGap] = []
        for part in parts:
            try:
                files.append(await self._encode(part, bodies))
                continue
            except UNREADABLE as error:
                self._log.error(
                    "pages cannot be archived together", file=part.stretch.file_name, message=str(error)
                )
            good = []
            for page in part.pages:
                (alone,) = portions([page])
                try:
                    await self._encode(alone, bodies)
                    good.append(page)
                except UNREADABLE:
                    await park(self._archive, page, bodies[page])
                    gaps.append(self._missed(page, "a page cannot be archived"))
            files += [await self._encode(rest, bodies) for rest in portions(good)]
        return files, gaps

    def _missed(self, page: PageInfo, what: str) -> JournalGap:
        span = f"{page.instance} epoch {page.epoch}: {page.first_seq} to {page.last_seq}"
        self._counts["damaged"] += 1
        self._log.error(what, of=span)
        return JournalGap(page.events, "damaged", span)

    async def _encode(self, part: ExportSlice, bodies: dict[PageInfo, bytes]) -> _Written:
        stretch = part.stretch
        encoded, late = await asyncio.to_thread(
            encode_pages,
            [(page.first_seq, bodies[page]) for page in part.pages],
            instance=stretch.instance,
            epoch=stretch.epoch,
            service=part.service,
            tombstones=self._tombstones,
        )
        if encoded.rows != stretch.rows:
            raise IntegrityError(f"{stretch.file_name} has {encoded.rows} rows instead of {stretch.rows}.")
        digest = await asyncio.to_thread(lambda: hashlib.sha256(encoded.contents).hexdigest())
        entry = FileEntry(
            stretch, encoded.min_at_unix_ns, encoded.max_at_unix_ns, len(encoded.contents), digest
        )
        return entry, encoded.contents, late


def _after_revocation(found: Late) -> ExecutedAfterRevocation:
    source, target, name, revoked_unix_ns, settled_unix_ns, count = found
    return ExecutedAfterRevocation(
        source=source,
        target=target,
        command_name=name,
        stale_duration_seconds=round((settled_unix_ns - revoked_unix_ns) / 1e9, 6),
        acl_revocation_timestamp=format_timestamp(revoked_unix_ns),
        count=count,
    )
