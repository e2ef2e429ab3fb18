"""Rate limits for callers without a certificate: one for each address, and one for all together.

Never remembers more addresses than its bound, and never lets one address use up the rate of all.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from snavio.clock import Clock
from snavio.errors import Saturated

MAX_ADDRESSES: Final = 4096


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: a burst, and a number per second."""

    burst: int
    per_s: float


class _Bucket:
    __slots__ = ("_at_ns", "_left", "_rate")

    def __init__(self, rate: Rate, now_ns: int) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at_ns = now_ns

    def take(self, now_ns: int) -> float:
        """Take one; the seconds to wait when there is none, otherwise 0."""
        elapsed_s = (now_ns - self._at_ns) / 1e9
        self._left = min(float(self._rate.burst), self._left + elapsed_s * self._rate.per_s)
        self._at_ns = now_ns
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate.per_s
        self._left -= 1.0
        return 0.0


class Rates:
    """One rate for each of many names; the least recently used is dropped."""

    def __init__(self, rate: Rate, *, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._by_name: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one for `name`; the seconds to wait when there is none, otherwise 0."""
        now = self._clock.mono_ns()
        bucket = self._by_name.pop(name, None) or _Bucket(self._rate, now)
        self._by_name[name] = bucket
        while len(self._by_name) > MAX_ADDRESSES:
            self._by_name.popitem(last=False)
        return bucket.take(now)


class Throttle:
    """See the module."""

    def __init__(self, *, clock: Clock, each: Rate, all_together: Rate) -> None:
        self._clock = clock
        # A caller with more addresses than are remembered is limited by the rate for all.
        self._each = Rates(each, clock=clock)
        self._all = _Bucket(all_together, clock.mono_ns())

    def admit(self, peer: str) -> None:
        """Saturated when gRPC's `peer`, or all callers together, exceed the rate."""
        # Its own first: an address that asks too often takes nothing from the others.
        wait_s = self._each.take(address_of(peer)) or self._all.take(self._clock.mono_ns())
        if wait_s:
            raise Saturated("Too many requests.", retry_after_ms=max(1, round(wait_s * 1000)))


def address_of(peer: str) -> str:
    """The address of `ipv4:192.0.2.1:5000` or `ipv6:%5B2001:db8::1%5D:5000`; for IPv6 the /64 network."""
    kind, _, rest = unquote(peer).partition(":")
    host = rest.rpartition(":")[0].strip("[]")
    if kind == "ipv6":
        try:
            number = ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            return "other"
        if number.ipv4_mapped is not None:
            return str(number.ipv4_mapped)
        # A single site has 2^64 addresses there.
        return str(ipaddress.IPv6Network((number, 64), strict=False))
    return host if kind == "ipv4" else "other"
