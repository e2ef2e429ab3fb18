"""Decides how many commands of each lane pass their limits, by conditional writes in the coordination store.

Never lets a command pass because the store could not be asked, and never uses a permit after its interval.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence

import structlog

from services.slow.arbitration_job import Lane
from services.slow.dominance import Dominance, TrafficShares
from services.slow.lane_rules import fairness_of, is_banned, quota_rule, rule_of
from snavio.clock import Clock
from snavio.domain.quota import LimitRule, Permits
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, SnavioError
from snavio.host.background import background
from snavio.host.periodic import Periodic
from snavio.ports.coordination import MAX_BATCH, Coordination, PermitAsk, PermitReturn

RETRY_AFTER_MS = 500
MAX_RETURNS = 10_000
SOURCE_QUOTA = "source-quota"
TOO_LATE = "The coordination store was slow."

AskOf = Callable[[Lane], PermitAsk | None]


class LimitEnforcer:
    """Debits the limit of the route, and of the source on it where that counts; returns unused permits."""

    def __init__(self, *, store: Coordination, dominance: Dominance, clock: Clock, timeout_ms: int) -> None:
        self._store = store
        self._dominance = dominance
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._returns: deque[PermitReturn] = deque(maxlen=MAX_RETURNS)
        self._giving_back = Periodic("permits", self._give_back, every_s=None)
        self._counts: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Permits by their fate."""
        return dict(self._counts)

    def start(self) -> None:
        """Begin to return unused permits."""
        self._giving_back.start()

    async def stop(self) -> None:
        """End; permits that were not returned are lost."""
        await self._giving_back.stop()

    async def debit(self, lanes: Sequence[Lane], *, timeout_ms: int) -> list[Lane]:
        """Refuse commands above the limits; of the remaining lanes, `count` commands each may go on."""
        lanes = await self._debit(lanes, _source_ask, timeout_ms=timeout_ms)
        return await self._debit(lanes, _route_ask, timeout_ms=timeout_ms)

    def settled(self, lane: Lane) -> None:
        """Return the permits of outcomes that cost nothing: a duplicate, a conflict or a definite failure."""
        if lane.permits:
            spent = lane.job.native.spent(lane.key)
            self._put_back(lane, lane.permits[0].count - spent)

    def give_up(self, lane: Lane) -> None:
        """Return all permits of a lane that will not be sent."""
        if lane.permits:
            self._put_back(lane, lane.permits[0].count)

    def _put_back(self, lane: Lane, count: int) -> None:
        if count > 0:
            self._counts["returned"] += count
            for permits in lane.permits:
                self._returns.append(
                    PermitReturn(permits.key, permits.interval_ms, permits.interval, count, granted=False)
                )
            self._giving_back.nudge()
        lane.permits.clear()

    async def _debit(self, lanes: Sequence[Lane], ask_of: AskOf, *, timeout_ms: int) -> list[Lane]:
        asking = [(lane, ask) for lane in lanes if (ask := ask_of(lane)) is not None]
        for start in range(0, len(asking), MAX_BATCH):
            await self._ask(asking[start : start + MAX_BATCH], timeout_ms=min(timeout_ms, self._timeout_ms))
        return [lane for lane in lanes if lane.count]

    async def _ask(self, asking: Sequence[tuple[Lane, PermitAsk]], *, timeout_ms: int) -> None:
        asked_ns = self._clock.mono_ns()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answers = await self._store.take([ask for _, ask in asking])
        except (SnavioError, TimeoutError) as error:
            retry_after_ms = error.retry_after_ms if isinstance(error, Saturated) else RETRY_AFTER_MS
            self._counts["store_away"] += 1
            self._log.warning("the coordination store could not be asked", reason=_reason(error))
            for lane, ask in asking:
                if ask.rule.shadow:
                    # It refuses no command, even when none can be counted.
                    self._counts["shadow_uncounted"] += ask.want
                    continue
                self.give_up(lane)
                lane.refuse(
                    Verdict.DELIVERY_FAILURE, retry_after_ms, "The coordination store could not be asked."
                )
            return
        elapsed_ms = (self._clock.mono_ns() - asked_ns) // 1_000_000
        for (lane, ask), permits in zip(asking, answers, strict=True):
            if permits.count and elapsed_ms >= permits.life_ms and not ask.rule.shadow:
                # The interval ended while we waited: in the next one these would overrun.
                self._counts["too_late"] += permits.count
                self.give_up(lane)
                lane.refuse(Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, TOO_LATE)
                continue
            if permits.count and not ask.rule.shadow:
                # Whatever is waited for between here and the sending counts as well.
                ends = asked_ns + permits.life_ms * 1_000_000
                known = lane.permits_end_mono_ns
                lane.permits_end_mono_ns = ends if known is None else min(known, ends)
            self._apply(lane, ask, permits)

    def _apply(self, lane: Lane, ask: PermitAsk, permits: Permits) -> None:
        self._counts["taken"] += permits.count
        self._counts["shadow_over"] += permits.over
        route, for_source = (lane.target, lane.name), len(ask.key) == 3
        if not for_source:
            self._dominance.count(lane.source, route, permits.interval, offered=ask.want, taken=permits.count)
        if permits.count < ask.want:
            self._refuse_rest(lane, ask, permits, for_source=for_source)
        if lane.permits and lane.permits[0].count > permits.count:
            # The source's own quota had more room than the route: what cannot be used there is not spent.
            first = lane.permits[0]
            self._returns.append(
                PermitReturn(first.key, first.interval_ms, first.interval, first.count - permits.count)
            )
            self._giving_back.nudge()
            lane.permits[0] = PermitReturn(first.key, first.interval_ms, first.interval, permits.count)
        lane.count = permits.count
        if permits.count:
            lane.permits.append(PermitReturn(ask.key, ask.rule.interval_ms, permits.interval, permits.count))

    def _refuse_rest(self, lane: Lane, ask: PermitAsk, permits: Permits, *, for_source: bool) -> None:
        refused = ask.want - permits.count
        shares = None if for_source else self._dominant(lane, permits)
        verdict = Verdict.RATE_LIMIT_EXCEEDED if shares is None else Verdict.FAIRNESS_VIOLATION
        self._counts["refused" if shares is None else "refused_unfair"] += refused
        retry_after_ms, until_ms = permits.retry_after_ms, permits.free_ms
        if shares is not None:
            assert lane.resolution is not None
            ban_ms = fairness_of(lane.resolution.route).ban_seconds * 1000
            if ban_ms > retry_after_ms:
                retry_after_ms, until_ms = ban_ms, until_ms + ban_ms - retry_after_ms
        lane.job.answers.settled(
            lane.job.native.refuse(
                lane.key,
                verdict,
                min(retry_after_ms, 2**32 - 1),
                SOURCE_QUOTA if for_source else _sentence(ask.rule, shares),
                spare=permits.count,
                throttle_until_unix_ns=until_ms * 1_000_000,
                source_share=shares.source if shares else 0.0,
                competing_share=shares.competing if shares else 0.0,
                dispatch_volume=min(shares.volume, 2**32 - 1) if shares else 0,
            )
        )

    def _dominant(self, lane: Lane, permits: Permits) -> TrafficShares | None:
        """The shares of a banned source that goes on taking a route with nothing left; None for all others."""
        if not is_banned(lane) or lane.resolution is None:
            return None
        return self._dominance.shares(
            lane.source,
            (lane.target, lane.name),
            permits.interval,
            used=permits.used,
            fairness=fairness_of(lane.resolution.route),
        )

    async def _give_back(self) -> None:
        while self._returns:
            batch = [self._returns.popleft() for _ in range(min(len(self._returns), MAX_BATCH))]
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._store.give_back(batch)
            except Exception as error:  # The next batch may well be taken, so without a pause.
                # Not again: it may have happened, and permits given back twice would overrun the limit.
                self._counts["lost"] += sum(each.count for each in batch)
                background().failed("permits", error)


def _source_ask(lane: Lane) -> PermitAsk | None:
    """A source's own quota counts always, or only while the source is banned."""
    resolution = lane.resolution
    if resolution is None or not resolution.HasField("source_quota"):
        return None
    quota = resolution.source_quota
    if not quota.always and not is_banned(lane):
        return None
    return PermitAsk((lane.source, lane.target, lane.name), quota_rule(quota), lane.count)


def _route_ask(lane: Lane) -> PermitAsk | None:
    rule = rule_of(lane.resolution.route) if lane.resolution is not None else None
    return None if rule is None else PermitAsk((lane.target, lane.name), rule, lane.count)


def _sentence(rule: LimitRule, shares: TrafficShares | None) -> str:
    if shares is not None:
        return "The source takes most of a route that others want."
    return f"The route takes {rule.max} in {rule.interval_ms // 1000} s."


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, SnavioError) else "timeout"
