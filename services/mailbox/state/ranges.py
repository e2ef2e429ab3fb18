"""Values over ranges of small numbers: what is true of messages `lo .. hi` of one batch.

Never holds two ranges that overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Generic, TypeVar

V = TypeVar("V")
_start = itemgetter(0)


class RangeMap(Generic[V]):
    """Sorted, disjoint, half-open ranges. Every operation is a binary search and a slice."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, V]] = []

    def __iter__(self) -> Iterator[tuple[int, int, V]]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def over(self, lo: int, hi: int) -> list[tuple[int, int, V]]:
        """The ranges that meet `lo .. hi`, cut to it, in order."""
        i, j = self._touching(lo, hi)
        return [(max(start, lo), min(end, hi), value) for start, end, value in self._spans[i:j]]

    def cut(self, lo: int, hi: int) -> None:
        """Say nothing about `lo .. hi` any more."""
        i, j = self._touching(lo, hi)
        self._spans[i:j] = self._rest(i, j, lo, hi)

    def put(self, lo: int, hi: int, value: V) -> None:
        """Say `value` about `lo .. hi`, whatever was said before."""
        i, j = self._touching(lo, hi)
        rest = self._rest(i, j, lo, hi)
        rest.insert(1 if rest and rest[0][0] < lo else 0, (lo, hi, value))
        self._spans[i:j] = rest

    def _touching(self, lo: int, hi: int) -> tuple[int, int]:
        i = bisect_right(self._spans, lo, key=_start) - 1
        if i < 0 or self._spans[i][1] <= lo:
            i += 1
        return i, max(i, bisect_left(self._spans, hi, lo=i, key=_start))

    def _rest(self, i: int, j: int, lo: int, hi: int) -> list[tuple[int, int, V]]:
        """The parts of ranges `i .. j` outside of `lo .. hi`."""
        rest: list[tuple[int, int, V]] = []
        if i < j:
            start, _, value = self._spans[i]
            if start < lo:
                rest.append((start, lo, value))
            _, end, value = self._spans[j - 1]
            if end > hi:
                rest.append((hi, end, value))
        return rest


def ones(lo: int, hi: int) -> int:
    """The bitmap with bits `lo .. hi` set."""
    return ((1 << (hi - lo)) - 1) << lo


def zeros(bitmap: int, count: int) -> Iterator[tuple[int, int]]:
    """The ranges below `count` whose bits are not set, in order."""
    open_bits = ~bitmap & ((1 << count) - 1)
    while open_bits:
        lo = (open_bits & -open_bits).bit_length() - 1
        shifted = open_bits >> lo
        length = (~shifted & (shifted + 1)).bit_length() - 1
        yield lo, lo + length
        open_bits &= ~ones(lo, lo + length)


def covered(ranges: RangeMap[V], count: int) -> int:
    """The bitmap of what the ranges say something about; AssertionError when they overlap or go beyond `count`."""
    bits = position = 0
    for lo, hi, _ in ranges:
        assert position <= lo < hi <= count, f"range {lo} .. {hi} behind {position}, of {count}"
        bits |= ones(lo, hi)
        position = hi
    return bits
