"""Cuts the outbox by tenant: pages in the order of their ids become drafts of envelopes, each with its id.

Never waits for Signer or Registry, and never cuts a page twice: drafts and the page that they come from are stored in
one step, before anything is signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from services.relay.alerts.conditions import Trouble, of_drop, of_event, of_troubles
from services.relay.tenant_events import TenantEvent, dropped, events_for_tenants, gap_of, tenant_of
from snavio.clock import Clock
from snavio.domain.alerts import Occurrence
from snavio.errors import SnavioError, Unavailable
from snavio.host.periodic import Periodic
from snavio.native import cut_by_tenant, uuid7
from snavio.ports.outbox import Outbox, UncutPage
from snavio.ports.tenant_streams import NewDraft, SpokenOf, TenantStreams

CLOSES_AFTER_S: Final = 1.0
"""A cut closes every draft. Where little happens a page is cut as it comes, so that nobody waits for the second."""
LOOK_SECONDS: Final = 5.0
MAX_CUT_BYTES: Final = 8 << 20
DRAFT_EVENTS: Final = 1000
DRAFT_BYTES: Final = 192 << 10
"""So that an envelope fits a message of the mailbox."""
_REMEMBERED_SPOKEN: Final = 100_000

Rows = list[tuple[str, str, int, bytes]]
Rare = list[tuple[int, str, bytes]]


class AlertSink(Protocol):
    """Where occurrences are noted, before the pages that they come from count as cut."""

    async def noted_through(self) -> int:
        """The page up to which they were noted."""
        ...

    async def rewind(self) -> None:
        """The outbox is another one."""
        ...

    async def note(self, occurrences: Sequence[Occurrence], *, page_id: int = 0) -> None:
        """Make them durable; those of pages that were noted before are ignored."""
        ...


class Cutting:
    """Lives on one event loop; one cut at a time."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        streams: TenantStreams,
        owner: Callable[[str], str],
        clock: Clock,
        told_per_s: int,
        cut: Callable[[], None] = lambda: None,
        alerts: AlertSink | None = None,
    ) -> None:
        self._outbox = outbox
        self._streams = streams
        self._owner = owner
        self._clock = clock
        self._told_per_s = told_per_s
        self._cut = cut
        self._alerts = alerts
        self._noted = 0
        self._through = 0
        self._spoken: set[SpokenOf] = set()
        self._turns = Periodic(
            "cutting", self.cut_once, every_s=LOOK_SECONDS, quiet_s=CLOSES_AFTER_S, jitter=0.0, longest_s=10.0
        )
        self._counts = dict.fromkeys(
            ("pages", "drafts", "events", "counted", "nobodys", "damaged", "owner_unknown", "alerts_lost"), 0
        )
        self._log = structlog.get_logger()

    async def load(self) -> None:
        """Go on where the last life ended."""
        self._through = await self._streams.cut_through()
        if self._through > await self._outbox.last_page():
            # Its numbers began anew, and all of its pages would look as if they had been cut.
            self._log.warning(
                "the outbox is another one; its pages are cut from the first", was=self._through
            )
            await self._streams.rewind()
            self._through = 0
            if self._alerts is not None:
                await self._alerts.rewind()
        self._noted = await self._alerts.noted_through() if self._alerts is not None else 0
        await self._outbox.forget(self._through)

    async def start(self) -> None:
        """Load, then cut until `stop`."""
        await self.load()
        self._turns.start(at_once=True)

    async def stop(self) -> None:
        """End; what is not cut is cut at the next start."""
        await self._turns.stop()

    def nudge(self) -> None:
        """Pages were stored."""
        self._turns.nudge()

    def counters(self) -> dict[str, int]:
        """Counters of the cuts."""
        return dict(self._counts)

    async def cut_once(self) -> int:
        """Cut all pages that are there; the number of drafts."""
        made = 0
        while pages := await self._outbox.uncut(self._through, max_bytes=MAX_CUT_BYTES):
            if pages[0].page_id <= self._noted:
                # A life ended between the two stores: what was noted then is cut apart from what was not.
                pages = [page for page in pages if page.page_id <= self._noted]
            drafts, spoken, occurrences = await self._drafts(pages)
            await self._note(occurrences, pages[-1].page_id)
            await self._streams.cut(pages[-1].page_id, drafts, spoken=spoken)
            self._through = pages[-1].page_id
            if len(self._spoken) > _REMEMBERED_SPOKEN:
                self._spoken.clear()
            self._spoken.update(spoken)
            await self._outbox.forget(self._through)
            self._counts["pages"] += len(pages)
            self._counts["drafts"] += len(drafts)
            self._counts["events"] += sum(draft.events for draft in drafts)
            made += len(drafts)
            if drafts:
                self._cut()
        return made

    async def _note(self, occurrences: Sequence[Occurrence], page_id: int) -> None:
        if self._alerts is None or not occurrences or page_id <= self._noted:
            return
        try:
            await self._alerts.note(occurrences, page_id=page_id)
            self._noted = page_id
        except Unavailable:
            raise  # Tried again with the page: nobody would hear of it otherwise.
        except SnavioError as error:
            # A damaged store of alerts must not hold up the streams.
            self._counts["alerts_lost"] += sum(each.count for each in occurrences)
            self._log.error("alerts are lost", reason=error.reason, message=str(error))

    async def _drafts(
        self, pages: Sequence[UncutPage]
    ) -> tuple[list[NewDraft], list[SpokenOf], list[Occurrence]]:
        readable = [page for page in pages if page.body is not None]
        self._counts["damaged"] += len(pages) - len(readable)
        parts, rare, spoken, troubles = await asyncio.to_thread(self._read, readable)
        occurrences = list(of_troubles(troubles))
        now = self._clock.unix_ns()
        drafts = [
            NewDraft(uuid7(), tenant, source, family, now, events, body)
            for source, family, events, body in parts
            if (tenant := tenant_of(source))
        ]
        found: list[TenantEvent] = []
        for at_unix_ns, name, fields in rare:
            found += events_for_tenants(name, at_unix_ns, fields, owner=self._owner_of)
            occurrences += of_event(name, at_unix_ns, fields, owner=self._owner)
            if (gap := gap_of(name, fields)) is not None:
                missing, told = await self._missing(gap, at_unix_ns, spoken)
                found += missing
                occurrences += told
        drafts += _gathered(found, now)
        return drafts, [life for life in spoken if life not in self._spoken], occurrences

    def _read(self, pages: Sequence[UncutPage]) -> tuple[Rows, Rare, list[SpokenOf], list[Trouble]]:
        try:
            parts, rare, spoken, counted, nobodys, troubles = self._native(pages)
        except ValueError:
            if len(pages) == 1:
                # The exporter sets it aside and reports it as a gap.
                self._counts["damaged"] += 1
                return [], [], [], []
            each = [self._read([page]) for page in pages]
            return (
                [part for parts, _, _, _ in each for part in parts],
                [one for _, rare, _, _ in each for one in rare],
                [one for _, _, spoken, _ in each for one in spoken],
                [one for _, _, _, troubles in each for one in troubles],
            )
        self._counts["counted"] += counted
        self._counts["nobodys"] += nobodys
        lives = dict.fromkeys(
            SpokenOf(pages[place].instance, pages[place].epoch, tenant) for place, tenant in spoken
        )
        told = [(at_unix_ns, name, fields) for _, at_unix_ns, name, fields in rare]
        return parts, told, list(lives), troubles

    def _native(
        self, pages: Sequence[UncutPage]
    ) -> tuple[Rows, list[tuple[int, int, str, bytes]], list[tuple[int, str]], int, int, list[Trouble]]:
        return cut_by_tenant(
            [page.body for page in pages if page.body is not None],
            told=self._told_per_s,
            troubles=self._told_per_s,
            part_events=DRAFT_EVENTS,
            part_bytes=DRAFT_BYTES,
        )

    def _owner_of(self, target: str) -> str:
        owner = self._owner(target)
        self._counts["owner_unknown"] += not owner
        return owner

    async def _missing(
        self, gap: tuple[str, int, int | None], at_unix_ns: int, spoken: Sequence[SpokenOf]
    ) -> tuple[list[TenantEvent], list[Occurrence]]:
        """Statements to the tenants that this life has spoken of: nobody else can have lost anything."""
        instance, epoch, count = gap
        now = {life.tenant for life in spoken if (life.instance, life.epoch) == (instance, epoch)}
        tenants = sorted({*await self._streams.spoken_of(instance, epoch), *now})
        lost = count if len(tenants) == 1 else None
        return (
            [
                dropped(tenant, at_unix_ns=at_unix_ns, reason="journal_gap", events=lost, age_s=None)
                for tenant in tenants
            ],
            [of_drop(tenant, at_unix_ns=at_unix_ns, reason="journal_gap", events=lost) for tenant in tenants],
        )


def _gathered(events: Sequence[TenantEvent], now_unix_ns: int) -> list[NewDraft]:
    """Drafts of these events, within the bounds of a draft."""
    open_: dict[tuple[str, str, str], list[bytes]] = {}
    drafts: list[NewDraft] = []

    def close(key: tuple[str, str, str]) -> None:
        bodies = open_.pop(key)
        body = b"[" + b",".join(bodies) + b"]"
        drafts.append(NewDraft(uuid7(), *key, now_unix_ns, len(bodies), body))

    for event in events:
        key = (event.tenant, event.source, event.family)
        bodies = open_.setdefault(key, [])
        size = sum(len(body) + 1 for body in bodies)
        if bodies and (len(bodies) >= DRAFT_EVENTS or size + len(event.body) + 2 > DRAFT_BYTES):
            close(key)
            bodies = open_.setdefault(key, [])
        bodies.append(event.body)
    for key in list(open_):
        close(key)
    return drafts
