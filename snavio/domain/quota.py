"""The rule of a limit: the number of commands of a route that may pass now, given those that passed before.

Pure: state, limit and time in, permits and new state out. Never gives out more than `max` permits of one aligned
interval, for any order of calls and any clocks; when time runs backwards, or the cost of the running interval is
unknown, it waits for the next one. `redis/usage.lua` has the same rule in Lua, and a property test
compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

GRANT_PARTS: Final = 20
"""A grant is at most this fraction of the limit: an instance that dies loses little."""
SMALLEST_GRANT: Final = 5
"""Below this a grant saves too little: Slow decides such limits per command."""
LOW_PARTS: Final = 10
"""The last fraction of a limit is not granted: permits held by one instance would be refused at another."""
SLOT_MS: Final = 100
SLOTS_PER_WINDOW: Final = 11
"""Slots that any one second can touch: bounding their sum bounds every second, not only the aligned ones."""
BURST_LIFE_MS: Final = 300
"""Life of a grant whose route has a burst: permits count against every second in which they may be used."""
LONGEST_LIFE_MS: Final = 30_000
SMALL_RETRY_MS: Final = 10_000
LEASE_MS: Final = 1000
DRIFT_PARTS: Final = 500
"""Drift that two clocks may have, one part in so many; lives are shortened by it."""


@dataclass(frozen=True, slots=True)
class LimitRule:
    """A limit in the form that the store needs."""

    max: int
    interval_ms: int
    burst: int = 0
    cooldown_ms: int = 0
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """Usage of one key so far."""

    interval_ms: int = 0
    interval: int = -1
    """Number of the aligned interval that `used` refers to."""
    used: int = 0
    granted: int = 0
    """The part of `used` that was granted ahead and may be returned."""
    cooldown_until_ms: int = 0
    slots: tuple[tuple[int, int], ...] = ()
    """(last slot in which permits may be used, number of permits), for bursts. Ascending."""
    lease_slot: int = -1
    holders: tuple[str, ...] = ()
    """Instances that prefetched in `lease_slot`."""
    born_ms: int = 0
    """The store's birth, as known when `used` was written."""


class GrantState(IntEnum):
    """Reason of an answer; same numbers as the wire's GrantState."""

    ISSUED = 1
    DECIDED_BY_SLOW = 3
    EXHAUSTED = 4
    NO_LEASE = 5


@dataclass(frozen=True, slots=True)
class Permits:
    """Permits given to a caller."""

    count: int
    state: GrantState
    interval: int
    """To be named when permits are returned."""
    interval_end_ms: int
    """On the store's clock."""
    life_ms: int
    """Counted from the caller's question, on its monotonic clock; 0 without permits."""
    retry_after_ms: int
    used: int
    """Used permits of the interval, these included."""
    over: int = 0
    """The part of `count` that a shadow limit would have refused."""
    free_ms: int = 0
    """Time at which more permits are likely, on the store's clock; 0 if unknown."""


def settle(usage: LimitUsage, rule: LimitRule, now_ms: int, *, born_ms: int) -> LimitUsage:
    """`usage` carried into the interval of `now_ms`.

    `born_ms` is when the store began to remember: an interval that had begun before counts as used up, because its cost
    is not known. So does one that time stepped back to. A step back over the end of one interval does not change
    `usage`: stores whose clocks disagree slightly would otherwise reset the new interval each time.
    """
    interval = now_ms // rule.interval_ms
    moved_back = False
    forgotten = born_ms > 0 and interval * rule.interval_ms <= born_ms
    if usage.interval_ms == rule.interval_ms:
        if usage.interval == interval:
            if usage.born_ms == born_ms:
                return usage
            # The store lost records after this was written.
            used = max(usage.used, rule.max) if forgotten else usage.used
            return replace(usage, used=used, born_ms=born_ms)
        if usage.interval == interval + 1:
            return usage
        moved_back = usage.interval > interval
    elif usage.interval >= 0 and (usage.interval + 1) * usage.interval_ms > interval * rule.interval_ms:
        # The limit has another interval now: what the old one cost still counts where the two overlap.
        used = max(usage.used, rule.max) if forgotten else usage.used
        return replace(
            usage, interval_ms=rule.interval_ms, interval=interval, used=used, granted=0, born_ms=born_ms
        )
    unknown = moved_back or forgotten
    slots = () if moved_back else usage.slots
    # A cooldown from the future is cut to its full length; not shorter, or setting the clock would end it.
    cooldown = usage.cooldown_until_ms if usage.cooldown_until_ms > now_ms else 0
    if moved_back:
        cooldown = min(cooldown, now_ms + rule.cooldown_ms)
    return replace(
        usage,
        interval_ms=rule.interval_ms,
        interval=interval,
        used=rule.max if unknown else 0,
        granted=0,
        cooldown_until_ms=cooldown,
        slots=slots,
        lease_slot=-1 if moved_back else usage.lease_slot,
        holders=() if moved_back else usage.holders,
        born_ms=born_ms,
    )


def take(
    usage: LimitUsage, rule: LimitRule, now_ms: int, want: int, *, born_ms: int
) -> tuple[LimitUsage, Permits]:
    """Up to `want` permits, for use at once."""
    usage = settle(usage, rule, now_ms, born_ms=born_ms)
    room = _room(usage, rule, now_ms)
    count = want if rule.shadow else min(want, room)
    usage = _debit(usage, rule, now_ms, count, last_use_ms=now_ms)
    state = GrantState.ISSUED if count else GrantState.EXHAUSTED
    # Whoever asks for none asks when there will be some.
    refused = count < want if want else room == 0
    permits = _permits(usage, rule, now_ms, count, state, refused=refused)
    if rule.shadow:
        permits = replace(permits, over=max(0, want - room))
    return usage, permits


def grant(
    usage: LimitUsage, rule: LimitRule, now_ms: int, want: int, *, born_ms: int, instance: str, leases: int
) -> tuple[LimitUsage, Permits]:
    """Permits for later in this interval, if the limit is large, much of it is left and few instances asked this
    second.
    """
    usage = settle(usage, rule, now_ms, born_ms=born_ms)
    most, room = rule.max // GRANT_PARTS, _room(usage, rule, now_ms)
    refuse = _permits(usage, rule, now_ms, 0, GrantState.EXHAUSTED, refused=True)
    if rule.shadow:
        # A shadow limit refuses nothing, so it must not send commands by Slow either.
        most, room = max(most, SMALLEST_GRANT), want
    elif most < SMALLEST_GRANT:
        return usage, replace(refuse, state=GrantState.DECIDED_BY_SLOW, retry_after_ms=SMALL_RETRY_MS)
    elif room <= 0:
        return usage, refuse
    elif rule.max - usage.used <= rule.max // LOW_PARTS or room < SMALLEST_GRANT:
        return usage, replace(refuse, state=GrantState.DECIDED_BY_SLOW)
    slot = now_ms // LEASE_MS
    holders = usage.holders if usage.lease_slot == slot else ()
    if instance not in holders:
        if len(holders) >= leases:
            wait_ms = (slot + 1) * LEASE_MS - now_ms
            return usage, replace(refuse, state=GrantState.NO_LEASE, retry_after_ms=wait_ms)
        holders = (*holders, instance)
    usage = replace(usage, lease_slot=slot, holders=holders)
    end_ms = (usage.interval + 1) * rule.interval_ms
    last_use_ms = min(end_ms, now_ms + (BURST_LIFE_MS if rule.burst else LONGEST_LIFE_MS))
    count = min(want, most, room)
    over = max(0, count - max(0, rule.max - usage.used)) if rule.shadow else 0
    usage = _debit(usage, rule, now_ms, count, last_use_ms=last_use_ms)
    usage = replace(usage, granted=usage.granted + count)
    permits = _permits(usage, rule, now_ms, count, GrantState.ISSUED, refused=False)
    return usage, replace(permits, life_ms=_life(last_use_ms - now_ms), over=over)


def give_back(
    usage: LimitUsage, rule_interval_ms: int, interval: int, count: int, *, granted: bool
) -> LimitUsage:
    """`usage` without the returned permits, if they are of the running interval; never below zero."""
    if usage.interval != interval or usage.interval_ms != rule_interval_ms:
        return usage
    count = min(count, usage.granted if granted else usage.used - usage.granted)
    if count <= 0:
        return usage
    return replace(
        usage, used=usage.used - count, granted=usage.granted - count if granted else usage.granted
    )


def _room(usage: LimitUsage, rule: LimitRule, now_ms: int) -> int:
    if now_ms < usage.cooldown_until_ms and not rule.shadow:
        return 0
    if now_ms < usage.interval * rule.interval_ms:
        # Time stepped back out of this interval: permits given now would be used in the one before.
        return 0
    room = rule.max - usage.used
    if rule.burst:
        oldest = now_ms // SLOT_MS - SLOTS_PER_WINDOW + 1
        room = min(room, rule.burst - sum(count for slot, count in usage.slots if slot >= oldest))
    return max(0, room)


def _debit(usage: LimitUsage, rule: LimitRule, now_ms: int, count: int, *, last_use_ms: int) -> LimitUsage:
    if count <= 0:
        return usage
    used = usage.used + count
    cooldown = usage.cooldown_until_ms
    if rule.cooldown_ms and used >= rule.max and usage.used < rule.max:
        cooldown = now_ms + rule.cooldown_ms
    slots = usage.slots
    if rule.burst:
        oldest, last = now_ms // SLOT_MS - SLOTS_PER_WINDOW + 1, last_use_ms // SLOT_MS
        kept = {slot: number for slot, number in slots if slot >= oldest}
        kept[last] = kept.get(last, 0) + count
        slots = tuple(sorted(kept.items()))
    return replace(usage, used=used, cooldown_until_ms=cooldown, slots=slots)


def _permits(
    usage: LimitUsage, rule: LimitRule, now_ms: int, count: int, state: GrantState, *, refused: bool
) -> Permits:
    end_ms = (usage.interval + 1) * rule.interval_ms
    retry_after_ms = free_ms = 0
    if refused:
        free_ms = end_ms if usage.used >= rule.max else now_ms
        if rule.burst and usage.used < rule.max and usage.slots:
            # The interval has room, this second has not: more permits when the oldest slot leaves the window.
            free_ms = min(end_ms, (usage.slots[0][0] + SLOTS_PER_WINDOW) * SLOT_MS)
        free_ms = max(free_ms, usage.cooldown_until_ms, usage.interval * rule.interval_ms)
        retry_after_ms = max(1, free_ms - now_ms)
    return Permits(
        count=count,
        state=state,
        interval=usage.interval,
        interval_end_ms=end_ms,
        life_ms=_life(end_ms - now_ms) if count else 0,
        retry_after_ms=retry_after_ms,
        used=usage.used,
        free_ms=free_ms,
    )


def _life(left_ms: int) -> int:
    """A duration on another clock that is over when `left_ms` have passed on this one, whatever their drift."""
    # One millisecond less, since `now` is rounded down.
    return max(0, left_ms - 1 - left_ms // DRIFT_PARTS)
