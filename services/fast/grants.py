"""Fetches permits of limited routes from Slow before they are needed, and returns unused ones at the end.

Never holds up a command: without a permit it escalates. Counts the life of permits from the request, and never
repeats a call whose answer was lost: its permits are gone, which is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass

import structlog

from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.host.periodic import Periodic
from snavio.native import Dispatch
from snavio.rpc.channel import MeshChannel
from snavio.v1.slow_pb2 import (
    GRANT_STATE_ISSUED,
    Grant,
    GrantsRequest,
    GrantsResponse,
    GrantState,
    GrantWish,
    PermitReturn,
    ReturnPermitsRequest,
    ReturnPermitsResponse,
)

CALL_SECONDS = 1.0
FAILED_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
# Keeps many instances from asking in step.
JITTER = 0.3
MAX_WISHES = 1000
MAX_PERMITS = 2**32 - 1
# Routes with a pause that Slow asked for; when more are remembered, all are forgotten and asked for.
MAX_PAUSES = 10_000
# Enough for the demand of one pause and the call behind it, and for a pause that a busy machine makes longer:
# with 2, up to 7 % of a steady stream went by Slow there for want of a permit.
AHEAD = 3

LimitKey = tuple[str, str, str]
"""Source, target and name; the source is empty for the limit of the route."""


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """Permits that one limit should have."""

    limit: LimitKey
    permits: int


class GrantKeeper:
    """One call at a time, and none while no command goes to a limited route."""

    def __init__(
        self, *, dispatch: Dispatch, slow: MeshChannel, clock: Clock, instance: str, pause_s: float
    ) -> None:
        self._dispatch = dispatch
        self._slow = slow
        self._clock = clock
        self._instance = instance
        self._fetches = Periodic(
            "grants",
            self._fetch_or_count,
            every_s=None,
            first_s=FAILED_PAUSE_SECONDS,
            longest_s=LONGEST_PAUSE_SECONDS,
            quiet_s=pause_s,
            jitter=JITTER,
        )
        self._not_before: dict[LimitKey, int] = {}
        self._counts: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Fetch in the background whenever permits are wanted."""
        self._fetches.start()

    async def stop(self) -> None:
        """End the fetching, and return unused permits."""
        await self._fetches.stop()
        left = self._dispatch.give_up(now_mono_ns=self._clock.mono_ns())
        with contextlib.suppress(SnavioError):
            await self._give_back(
                [
                    _returned((source, target, name), interval, min(permits, MAX_PERMITS))
                    for source, target, name, interval, permits in left
                ]
            )

    def thirsty(self) -> None:
        """Fetch soon: a command wanted a permit."""
        self._fetches.nudge()

    def counters(self) -> dict[str, int]:
        """Calls, permits and answers to wishes by state."""
        return dict(self._counts)

    async def _fetch_or_count(self) -> None:
        try:
            await self.fetch()
        except SnavioError as error:
            self._counts["failed"] += 1
            self._log.info("no permits", reason=error.reason)
            # Not the back-off: once Slow is there again, limited routes should not go by it for long.
            await asyncio.sleep(FAILED_PAUSE_SECONDS)
        except Exception:
            self._counts["failed"] += 1
            raise

    async def fetch(self) -> None:
        """Ask for the permits that were wanted since the last time."""
        wishes = self._wishes()
        for start in range(0, len(wishes), MAX_WISHES):
            await self._ask(wishes[start : start + MAX_WISHES])

    def _wishes(self) -> list[PermitRequest]:
        now = self._clock.mono_ns()
        if len(self._not_before) > MAX_PAUSES:
            self._not_before.clear()
        wishes = []
        for source, target, name, wanted, debt, left in self._dispatch.needs(now_mono_ns=now):
            permits, limit = min(AHEAD * wanted + debt - left, MAX_PERMITS), (source, target, name)
            if permits > 0 and self._not_before.get(limit, now) <= now:
                wishes.append(PermitRequest(limit, permits))
        return wishes

    async def _ask(self, wishes: list[PermitRequest]) -> None:
        asked = self._clock.mono_ns()
        self._counts["calls"] += 1
        answer = await self._slow.call(
            "/snavio.v1.Slow/Grants",
            GrantsRequest(
                instance=self._instance,
                wish=[
                    GrantWish(source=source, target=target, name=name, permits=wish.permits)
                    for wish in wishes
                    for source, target, name in (wish.limit,)
                ],
            ),
            GrantsResponse,
            timeout_s=CALL_SECONDS,
        )
        if len(answer.grant) != len(wishes):
            # It speaks of other routes; permits of the wrong one could overrun a limit.
            self._counts["unfitting"] += 1
            return
        unneeded = []
        for wish, grant in zip(wishes, answer.grant, strict=True):
            self._counts[f"state.{_state(grant.state)}"] += 1
            if grant.retry_after_ms:
                self._not_before[wish.limit] = asked + grant.retry_after_ms * 1_000_000
            else:
                self._not_before.pop(wish.limit, None)
            if grant.state != GRANT_STATE_ISSUED:
                continue
            limit = (grant.source, *wish.limit[1:])
            # A Slow that does not know limits of sources issues permits of the route instead: of the source they
            # were not debited, so they go back to where they came from.
            if limit != wish.limit or not self._hold(limit, grant, asked):
                unneeded.append(_returned(limit, grant.interval, grant.permits))
        await self._give_back(unneeded)

    def _hold(self, limit: LimitKey, grant: Grant, asked_mono_ns: int) -> bool:
        source, target, name = limit
        held = self._dispatch.grant(
            target,
            name,
            source=source,
            permits=grant.permits,
            interval=grant.interval,
            ends_mono_ns=asked_mono_ns + grant.life_ms * 1_000_000,
            now_mono_ns=self._clock.mono_ns(),
        )
        self._counts["permits" if held else "permits_unneeded"] += grant.permits
        return held

    async def _give_back(self, permits: list[PermitReturn]) -> None:
        for start in range(0, len(permits), MAX_WISHES):
            returned = permits[start : start + MAX_WISHES]
            await self._slow.call(
                "/snavio.v1.Slow/ReturnPermits",
                ReturnPermitsRequest(permit=returned),
                ReturnPermitsResponse,
                timeout_s=CALL_SECONDS,
            )
            self._counts["permits_returned"] += sum(each.permits for each in returned)


def _returned(limit: LimitKey, interval: int, permits: int) -> PermitReturn:
    source, target, name = limit
    return PermitReturn(source=source, target=target, name=name, interval=interval, permits=permits)


def _state(number: int) -> str:
    try:
        name: str = GrantState.Name(number)
    except ValueError:
        return "unknown"
    return name.removeprefix("GRANT_STATE_").lower()
