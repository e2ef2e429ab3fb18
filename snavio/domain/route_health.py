"""Health of a route's queue, judged from consecutive looks at it, with the evidence.

Never calls a queue unhealthy for one look that it cannot explain: growth and standstill take several. Never takes an
idle queue for a dead one: where nothing waits nobody has to come.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LOOKS: Final = 4
"""Consecutive looks that growth and standstill are read from."""
LEAST_GROWTH: Final = 10
"""Messages; a few more or less between two looks are no trend."""


class RouteStatus(StrEnum):
    """The worst that is true of a route, from the worst on."""

    UNREACHABLE = "unreachable"
    """Its queue could not be looked at, or is not there."""
    UNPOLLED = "unpolled"
    """Messages wait, and nobody has received any."""
    STALLED = "stalled"
    """Messages wait, somebody used to receive, and nothing is settled any more."""
    SLOW = "slow"
    """The oldest message waits for more than twice the expected time."""
    GROWING = "growing"
    """More messages, or more dead letters, at each look."""
    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    """Not looked at yet."""


@dataclass(frozen=True, slots=True)
class QueueLook:
    """One look at a queue. Numbers that its kind does not tell are None."""

    at_unix_ns: int
    depth: int = 0
    """Messages that wait or are leased."""
    inflight: int = 0
    oldest_s: float | None = None
    oldest_estimated: bool = False
    """Counted from when the queue was last seen empty: its kind does not tell ages."""
    dead: int | None = None
    settled_total: int | None = None
    """Grows when a consumer settles."""
    last_received_unix_ns: int = 0
    last_receiver: str = ""
    failure: str = ""
    """Why it could not be looked at; then nothing else counts."""
    certain: bool = False
    """The failure is the queue's own, such as that it is gone, and will not pass by itself."""


@dataclass(frozen=True, slots=True)
class RouteHealth:
    """The judgement."""

    status: RouteStatus
    evidence: tuple[str, ...] = ()


def judge(looks: Sequence[QueueLook], *, drain_s: int) -> RouteHealth:
    """The health after these looks, oldest first; of the last `LOOKS` of them at most."""
    if not looks:
        return RouteHealth(RouteStatus.UNKNOWN)
    looks = looks[-LOOKS:]
    seen = [look for look in looks if not look.failure]
    if looks[-1].failure and ((len(looks) > 1 and looks[-2].failure) or looks[-1].certain):
        return RouteHealth(RouteStatus.UNREACHABLE, (looks[-1].failure,))
    if not seen:
        return RouteHealth(RouteStatus.UNKNOWN)  # A restart of what was asked is over by the next look.
    now = seen[-1]
    found: list[tuple[RouteStatus, str]] = []
    if len(seen) == LOOKS:
        found += _standstill(seen, drain_s=drain_s)
        found += _growth(seen)
    if now.depth and now.oldest_s is not None and now.oldest_s > 2 * drain_s:
        about = "about " if now.oldest_estimated else ""
        estimate = ", estimated from when the queue was last empty" if now.oldest_estimated else ""
        found.append(
            (
                RouteStatus.SLOW,
                f"the oldest message waits for {about}{now.oldest_s:.0f} s{estimate}; twice the expected"
                f" {drain_s} s is the bound",
            )
        )
    if not found:
        return RouteHealth(RouteStatus.HEALTHY)
    order = list(RouteStatus)
    found.sort(key=lambda each: order.index(each[0]))
    return RouteHealth(found[0][0], tuple(words for _, words in found))


def _standstill(looks: Sequence[QueueLook], *, drain_s: int) -> list[tuple[RouteStatus, str]]:
    first, last = looks[0], looks[-1]
    if not all(look.depth for look in looks):
        return []
    if last.oldest_s is not None and last.oldest_s < drain_s:
        return []  # Whoever comes once in that time is as expected.
    over_s = (last.at_unix_ns - first.at_unix_ns) / 1e9
    if first.settled_total != last.settled_total:
        return []  # Somebody works.
    if last.settled_total is None and min(look.depth for look in looks[1:]) < first.depth:
        return []  # A kind that does not count what is settled: it shrank.
    if last.last_received_unix_ns > first.at_unix_ns:
        return (
            [
                (
                    RouteStatus.STALLED,
                    f"{_who(last)} receives, and nothing was settled in {over_s:.0f} s",
                )
            ]
            if last.settled_total is not None and not last.inflight
            else []
        )
    if any(look.inflight for look in looks):
        return []  # Long work under a lease: its deadline ends it.
    if not last.last_received_unix_ns:
        return [
            (
                RouteStatus.UNPOLLED,
                f"{last.depth} messages, and nobody received any in {over_s:.0f} s or was seen before",
            )
        ]
    ago_s = (last.at_unix_ns - last.last_received_unix_ns) / 1e9
    return [(RouteStatus.STALLED, f"{last.depth} messages; {_who(last)} last received {ago_s:.0f} s ago")]


def _growth(looks: Sequence[QueueLook]) -> list[tuple[RouteStatus, str]]:
    found = []
    depths = [look.depth for look in looks]
    if _grows(depths):
        found.append((RouteStatus.GROWING, f"depth {' → '.join(map(str, depths))}"))
    dead = [look.dead for look in looks if look.dead is not None]
    if len(dead) == len(looks) and dead[-1] > dead[0] and dead == sorted(dead) and dead[-1] > dead[-2]:
        found.append((RouteStatus.GROWING, f"dead letters {' → '.join(map(str, dead))}"))
    return found


def _grows(numbers: Sequence[int]) -> bool:
    steps = itertools.pairwise(numbers)
    return all(later > earlier for earlier, later in steps) and numbers[-1] - numbers[0] >= LEAST_GROWTH


def _who(look: QueueLook) -> str:
    return look.last_receiver or "somebody"
