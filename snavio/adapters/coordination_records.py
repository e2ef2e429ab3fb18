"""Encoding of a coordination store's records, and the effect of one batch entry on one record.

Shared by the adapters that decide in Python. Never returns a record that it could read only in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import orjson

from snavio.domain import quota
from snavio.domain.quota import LimitUsage, Permits
from snavio.errors import IntegrityError
from snavio.ports.coordination import PermitAsk, PermitReturn

MOST_BANS: Final = 100
"""Times kept per banned triple: more than any threshold."""

Step = Callable[[LimitUsage, int, int], tuple[LimitUsage, Permits | None]]
"""Maps (usage, now_ms, born_ms) to the usage afterwards and the answer."""


def usage_text(usage: LimitUsage) -> str:
    """A record of the `usage` kind."""
    return orjson.dumps(
        [
            usage.interval_ms,
            usage.interval,
            usage.used,
            usage.granted,
            usage.cooldown_until_ms,
            usage.slots,
            usage.lease_slot,
            usage.holders,
            usage.born_ms,
        ]
    ).decode()


def read_usage(text: str) -> LimitUsage:
    """The usage in a record's text; IntegrityError when it is not one."""
    try:
        interval_ms, interval, used, granted, cooldown, slots, lease_slot, holders, born_ms = orjson.loads(
            text
        )
        return LimitUsage(
            interval_ms,
            interval,
            used,
            granted,
            cooldown,
            tuple((slot, count) for slot, count in slots),
            lease_slot,
            tuple(holders),
            born_ms,
        )
    except (ValueError, TypeError) as error:
        raise IntegrityError("A record of the coordination store is damaged.") from error


def over_ms(usage: LimitUsage) -> int:
    """The time from which a record means the same as no record."""
    return max((usage.interval + 2) * usage.interval_ms, usage.cooldown_until_ms)


def taking(ask: PermitAsk) -> Step:
    """The step of `take` for one ask."""
    return lambda usage, now_ms, born_ms: quota.take(usage, ask.rule, now_ms, ask.want, born_ms=born_ms)


def granting(ask: PermitAsk, *, instance: str, leases: int) -> Step:
    """The step of `grant` for one ask."""

    def step(usage: LimitUsage, now_ms: int, born_ms: int) -> tuple[LimitUsage, Permits | None]:
        return quota.grant(
            usage, ask.rule, now_ms, ask.want, born_ms=born_ms, instance=instance, leases=leases
        )

    return step


def returning(back: PermitReturn) -> Step:
    """The step of `give_back` for one return."""

    def step(usage: LimitUsage, _now_ms: int, _born_ms: int) -> tuple[LimitUsage, Permits | None]:
        after = quota.give_back(usage, back.interval_ms, back.interval, back.count, granted=back.granted)
        return after, None

    return step


def counted(times: Sequence[int], now_ms: int, within_ms: int, window_ms: int) -> list[int]:
    """Times of offences with this one added, unless it belongs to the last one, and without those too long ago.

    Times in the future are dropped.
    """
    recent = [time for time in times if now_ms - within_ms < time <= now_ms]
    if recent and now_ms - recent[-1] < window_ms:
        return recent
    return [*recent, now_ms][-MOST_BANS:]


def key_text(key: Sequence[str]) -> str:
    """One text per key; no part can hold the separator."""
    return "\n".join(key)
