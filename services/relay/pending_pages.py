"""Pages that wait to be archived, as far as planning needs them; their bytes stay in the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from snavio.ports.outbox import NewPage, PageInfo


class PendingPages:
    """Lives on one event loop; bounded by the outbox, at about a hundred bytes per page."""

    def __init__(self) -> None:
        self._pages: dict[int, PageInfo] = {}
        self._planned: set[int] = set()
        self.added: Callable[[], None] = lambda: None
        """Called when pages were stored."""

    def load(self, pages: Iterable[PageInfo]) -> None:
        """Load the pages that the outbox held at start."""
        self._pages.update((page.page_id, page) for page in pages)

    def add(self, ids: Sequence[int], pages: Sequence[NewPage], services: Sequence[str]) -> None:
        """Add pages that were just stored."""
        for page_id, page, service in zip(ids, pages, services, strict=True):
            self._pages[page_id] = PageInfo(
                page_id,
                page.instance,
                page.epoch,
                service,
                page.first_seq,
                page.last_seq,
                page.stored_unix_ns,
                len(page.body),
            )
        self.added()

    def plan(self, ids: Iterable[int]) -> None:
        """Mark pages as part of an export."""
        self._planned.update(ids)

    def done(self, ids: Iterable[int]) -> None:
        """Drop pages that were archived."""
        for page_id in ids:
            self._pages.pop(page_id, None)
            self._planned.discard(page_id)

    def of(self, ids: Iterable[int]) -> list[PageInfo]:
        """The pages of a plan that are still there."""
        return [self._pages[page_id] for page_id in ids if page_id in self._pages]

    def unplanned(self) -> list[PageInfo]:
        """Pages that no export has taken yet."""
        return [page for page_id, page in self._pages.items() if page_id not in self._planned]

    def gauges(self) -> dict[str, float]:
        """Number, bytes and age of pending pages."""
        return {
            "waiting_pages": float(len(self._pages)),
            "waiting_bytes": float(sum(page.size for page in self._pages.values())),
            "waiting_events": float(sum(page.events for page in self._pages.values())),
        }
