"""Measures how far messages of a shard overtake each other on their first way out, over any number of restarts.

Within one life of the mailbox it counts when responses leave. A crash may cut a response off after newer messages were
seen; whether it did is not known, so that every response of which nothing was heard counts as cut off. Never remembers
more than the latest deliveries of a shard, and decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from snavio.ports.mailbox_store import OrderMark, Position

LATEST = 64
_UNTOLD = OrderMark(0)
MOST_UNHEARD = 1024
"""Responses of a shard of which nothing was heard; older ones count as seen."""


class Handout:
    """Messages of one shard that left in one response, for the first time."""

    __slots__ = ("caller", "first", "heard", "messages", "newest", "shard")

    def __init__(self, shard: int, first: Position, caller: str) -> None:
        self.shard = shard
        self.caller = caller
        self.first = first
        self.newest = first
        self.messages = 0
        self.heard = False
        """Its consumer has it: it settled or extended something, or asked again. Or nobody is to have it any more."""


class Ordering:
    """Of one topic. `marks` is what the store has of it."""

    __slots__ = ("_before", "_callers", "_latest", "_newest", "_out", "_passed", "_written", "deepest")

    def __init__(self, marks: Iterable[OrderMark] = ()) -> None:
        found = {mark.shard: mark for mark in marks}
        self.deepest: dict[int, int] = {shard: mark.deepest for shard, mark in found.items() if mark.deepest}
        """By shard: the most messages that were handed out before an older one."""
        self._latest: dict[int, deque[tuple[int, int, int]]] = {}
        self._written: dict[int, OrderMark | None] = dict(found)
        self._before = {shard: mark for shard, mark in found.items() if mark.beyond}
        self._out: dict[int, deque[Handout]] = {}
        self._passed: dict[int, int] = {}
        """By shard: messages that were heard of behind the oldest response of which nothing was."""
        self._newest: dict[int, Position] = {}
        self._callers: dict[str, list[Handout]] = {}
        """Responses by caller that it is not known to have, oldest first. One caller gets its responses in order."""

    def handed(
        self, shard: int, batch_id: int, lo: int, hi: int, *, handout: Handout | None = None, caller: str = ""
    ) -> Handout:
        """Messages `lo .. hi` of a batch leave for the first time, in the response of `handout` or in a new one.

        A `caller` has one receive at a time; empty if that is not known.
        """
        latest = self._latest.setdefault(shard, deque(maxlen=LATEST))
        if latest and latest[-1][:2] > (batch_id, lo):
            self._deepen(
                shard, sum(end - start for other, start, end in latest if (other, start) > (batch_id, lo))
            )
        latest.append((batch_id, lo, hi))
        if (before := self._before.get(shard)) is not None and (batch_id, hi) > before.oldest:
            # Handed out before the crash, and perhaps never seen, unlike so many newer ones.
            if (batch_id, lo) < before.newest:
                self._deepen(shard, before.beyond)
            del self._before[shard]
        if handout is None:
            handout = Handout(shard, (batch_id, lo), caller)
            if caller:
                self._callers.setdefault(caller, []).append(handout)
            out = self._out.setdefault(shard, deque())
            out.append(handout)
            if len(out) > MOST_UNHEARD:
                self._shorten(out)
        handout.messages += hi - lo
        handout.newest = max(handout.newest, (batch_id, hi))
        return handout

    def heard(self, handout: Handout) -> None:
        """Its consumer has the response, and those before it; or its messages come again in another way."""
        if handout.heard:
            return
        earlier = self._callers.get(handout.caller)
        if earlier is None:
            self._hear(handout)
            return
        end = earlier.index(handout) + 1
        known, earlier[:end] = earlier[:end], []
        if not earlier:
            del self._callers[handout.caller]
        for one in known:
            self._hear(one)

    def asked_again(self, caller: str) -> None:
        """It has all that it was sent."""
        for one in self._callers.pop(caller, ()):
            self._hear(one)

    def _hear(self, handout: Handout) -> None:
        handout.heard = True
        shard, out = handout.shard, self._out[handout.shard]
        passed = self._passed.get(shard, 0) + handout.messages
        self._newest[shard] = max(self._newest.get(shard, (0, 0)), handout.newest)
        while out and out[0].heard:
            passed -= out.popleft().messages
        self._passed[shard] = passed

    def unsent(self, handout: Handout, messages: int) -> None:
        """So many of it never left after all."""
        if not handout.heard:
            handout.messages -= messages
            if handout.messages <= 0:
                self.heard(handout)

    def mark(self, shard: int) -> OrderMark | None:
        """The record of a shard that the store is to have; None when it has it."""
        deepest, passed = self.deepest.get(shard, 0), self._passed.get(shard, 0)
        written = self._written.get(shard, _UNTOLD)
        if not passed and written is not None and not written.beyond and written.deepest == deepest:
            return None  # with one consumer every time, and so without making a mark first
        if passed:
            mark = OrderMark(shard, deepest, passed, self._out[shard][0].first, self._newest[shard])
        elif (before := self._before.get(shard)) is not None:
            # Not judged yet: it has to outlive another crash.
            mark = OrderMark(shard, deepest, before.beyond, before.oldest, before.newest)
        else:
            mark = OrderMark(shard, deepest)
        if mark == written:
            return None
        self._written[shard] = mark
        return mark

    def unwritten(self, shard: int) -> None:
        """The store refused a mark, and may have an earlier one."""
        self._written[shard] = None

    def _deepen(self, shard: int, passed: int) -> None:
        if passed > self.deepest.get(shard, 0):
            self.deepest[shard] = passed

    def _shorten(self, out: deque[Handout]) -> None:
        """Join neighbours that were heard of; if there are none, the oldest counts as seen."""
        joined: list[Handout] = []
        for one in out:
            if joined and joined[-1].heard and one.heard:
                joined[-1].messages += one.messages
            else:
                joined.append(one)
        out.clear()
        out.extend(joined)
        if len(out) > MOST_UNHEARD:
            self.heard(out[0])
