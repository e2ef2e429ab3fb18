"""Plans which pages are archived now: enough of them, or old enough, in consecutive ranges of one process.

Never splits a page and never puts a gap inside a stretch, so that a file's name tells exactly what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from snavio.ports.outbox import PageInfo
from snavio.signed.archive_manifest import EventRange

# A file's worth: readers want large ones, our memory wants small ones.
MAX_FILE_EVENTS: Final = 1_000_000
MAX_FILE_BYTES: Final = 64 << 20
MAX_EXPORT_BYTES: Final = 256 << 20
FEW: Final = 1000


@dataclass(frozen=True, slots=True)
class ExportSchedule:
    """Events that make a file, and the time that fewer of them wait."""

    events: int
    after_ns: int
    few_after_ns: int


@dataclass(frozen=True, slots=True)
class ExportSlice:
    """The contents of one file: consecutive pages of one life."""

    stretch: EventRange
    service: str
    pages: tuple[PageInfo, ...]


def due(
    pages: Sequence[PageInfo],
    rhythm: ExportSchedule,
    *,
    now_unix_ns: int,
    stored_before_unix_ns: int,
    flush: bool = False,
) -> list[PageInfo]:
    """Pages to archive now; only those that were stored before the given time. `flush` asks for all of them."""
    found: list[PageInfo] = []
    size = 0
    for life in _lives(page for page in pages if page.stored_unix_ns <= stored_before_unix_ns):
        events = sum(page.events for page in life)
        age = now_unix_ns - min(page.stored_unix_ns for page in life)
        patience = rhythm.after_ns if events >= FEW else rhythm.few_after_ns
        if not flush and events < rhythm.events and age < patience:
            continue
        for page in life:
            if found and size + page.size > MAX_EXPORT_BYTES:
                return found
            size += page.size
            found.append(page)
    return found


def portions(pages: Iterable[PageInfo]) -> Iterator[ExportSlice]:
    """The files that these pages become; the same pages always become the same files."""
    for life in _lives(pages):
        part: list[PageInfo] = []
        events = size = 0
        for page in life:
            follows = not part or page.first_seq == part[-1].last_seq + 1
            if part and (
                not follows or events + page.events > MAX_FILE_EVENTS or size + page.size > MAX_FILE_BYTES
            ):
                yield _portion(part)
                part, events, size = [], 0, 0
            part.append(page)
            events += page.events
            size += page.size
        if part:
            yield _portion(part)


def _lives(pages: Iterable[PageInfo]) -> Iterator[list[PageInfo]]:
    def life(page: PageInfo) -> tuple[str, int]:
        return page.instance, page.epoch

    for _, found in groupby(sorted(pages, key=lambda page: (*life(page), page.first_seq)), key=life):
        yield list(found)


def _portion(pages: Sequence[PageInfo]) -> ExportSlice:
    first, last = pages[0], pages[-1]
    stretch = EventRange(first.instance, first.epoch, first.first_seq, last.last_seq)
    return ExportSlice(stretch, first.service, tuple(pages))
