"""Leases of messages over HTTP, as the mailbox gives and ends them.

Never keeps a lease of its own: what an id says is asked of the mailbox, whose rules are the same for every consumer. An
operation that is repeated because its answer was lost succeeds again; another one on the same lease does not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from services.gateway.pull.coalescing import Coalescer
from services.gateway.pull.requests import Extend, Settle
from services.gateway.pull.waiting import HandedMessages, TopicWaiters
from snavio.clock import Clock
from snavio.edge.lease_ids import LeaseIds, LeaseName
from snavio.edge.topics import RouteTopic
from snavio.host.background import background
from snavio.native import read_leased_batches
from snavio.rpc.channel import MeshChannel
from snavio.v1 import mailbox_pb2 as wire

SERVICE: Final = "/snavio.v1.Mailbox/"
CALL_SECONDS: Final = 15.0
REMEMBERED: Final = 20_000
REMEMBERED_NS: Final = 120_000_000_000
MOST_LINES: Final = 1024
"""Topics with a duration of leases that are looked after at once."""
SETTLED_AT_ONCE: Final = 5000
CLOSE_SECONDS: Final = 6.0
_DONE, _LATE = 1, 2


class LeaseState(Enum):
    """The result of an operation on one lease."""

    DONE = "done"
    EXPIRED = "lease_expired"
    NOT_FOUND = "lease_not_found"


@dataclass(frozen=True, slots=True)
class _Call:
    """One kind of settlement of leases of one topic: those that are alike go together."""

    topic: str
    boot_epoch: int
    method: str
    terms: tuple[tuple[str, Any], ...]


class PullLeases:
    """Lives on one event loop. `channel` presents a capability to receive and settle."""

    def __init__(self, channel: MeshChannel, ids: LeaseIds, clock: Clock) -> None:
        self._channel = channel
        self._ids = ids
        self._clock = clock
        self._lines: dict[tuple[str, int], TopicWaiters] = {}
        self._settling: dict[_Call, Coalescer[Sequence[LeaseName], bytes]] = {}
        self._recent: OrderedDict[tuple[str, str], int] = OrderedDict()
        """Operations that were done: (id, operation), and until when they are remembered."""
        self._returning: set[asyncio.Task[None]] = set()
        self.returned = 0
        """Messages that were given back because their worker had left."""

    # -- receiving -------------------------------------------------------------------------------------

    async def take(self, topic: RouteTopic, *, batch: int, lease_ms: int, wait_s: float) -> HandedMessages:
        """Lease up to `batch` messages; nothing when the time is over."""
        return await self._line(topic.topic, lease_ms).take(batch, wait_s)

    def left(self, topic: RouteTopic, lease_ms: int, leased: HandedMessages) -> None:
        """Their worker left before they were sent: another one gets them, or the mailbox as unseen."""
        if leased.messages:
            self._line(topic.topic, lease_ms).left(leased)

    def lease_id(self, topic: RouteTopic, leased: HandedMessages, number: int) -> str:
        """The id of one of these."""
        message = leased.messages[number]
        return self._ids.write(
            topic.topic_hash, LeaseName(leased.boot_epoch, message.msg_id, message.attempt)
        )

    def wake(self) -> None:
        """Answer everybody who waits."""
        for line in self._lines.values():
            line.wake()

    async def close(self) -> None:
        """Wait for what is under way; what comes now goes back."""
        await asyncio.gather(*(line.close(CLOSE_SECONDS) for line in list(self._lines.values())))
        if self._returning:
            await asyncio.wait(self._returning, timeout=CLOSE_SECONDS)

    def _line(self, topic: str, lease_ms: int) -> TopicWaiters:
        found = self._lines.get((topic, lease_ms))
        if found is None:
            if len(self._lines) >= MOST_LINES:
                # As many as there are workers at a time: who waits is bounded before it comes here.
                self._lines = {key: line for key, line in self._lines.items() if not line.unused}

            async def receive(messages: int, wait_s: float) -> HandedMessages:
                return await self._receive(topic, lease_ms, messages, wait_s)

            found = self._lines[topic, lease_ms] = TopicWaiters(
                receive, lambda leased: self._give_back(topic, leased)
            )
        return found

    async def _receive(self, topic: str, lease_ms: int, messages: int, wait_s: float) -> HandedMessages:
        request = wire.ReceiveRequest(
            topic=topic, visibility_ms=lease_ms, max_messages=messages, wait_ms=int(wait_s * 1000)
        )
        answer = await self._channel.call_raw(
            SERVICE + "Receive", request.SerializeToString(), timeout_s=CALL_SECONDS + wait_s
        )
        return HandedMessages(*read_leased_batches(answer))

    def _give_back(self, topic: str, leased: HandedMessages) -> None:
        task = asyncio.get_running_loop().create_task(self._return(topic, leased), name="return unseen")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(self, topic: str, leased: HandedMessages) -> None:
        names = [LeaseName(leased.boot_epoch, one.msg_id, one.attempt) for one in leased.messages]
        self.returned += len(names)
        try:
            await self._ask(
                _Call(topic, leased.boot_epoch, "Nack", (("delay_ms", 0), ("unseen", True))), names
            )
        except Exception as error:
            # Their leases end by themselves.
            background().failed("return unseen", error)

    # -- settling --------------------------------------------------------------------------------------

    async def ack(self, topic: RouteTopic, asked: Settle) -> dict[str, LeaseState]:
        """End leases for good."""
        return await self._settle(topic, asked.lease_ids, "ack", "Ack", ())

    async def nack(self, topic: RouteTopic, asked: Settle) -> dict[str, LeaseState]:
        """Give messages back, or to the DLQ."""
        terms = (("delay_ms", asked.delay_ms), ("dead", asked.dead), ("reason", asked.reason))
        return await self._settle(topic, asked.lease_ids, "dead" if asked.dead else "nack", "Nack", terms)

    async def extend(self, topic: RouteTopic, asked: Extend) -> dict[str, LeaseState]:
        """Give leases more time."""
        terms = (("visibility_ms", asked.extend_ms), ("add", asked.add))
        return await self._settle(topic, asked.lease_ids, "", "Extend", terms)

    async def _settle(
        self,
        topic: RouteTopic,
        ids: Sequence[str],
        word: str,
        method: str,
        terms: tuple[tuple[str, Any], ...],
    ) -> dict[str, LeaseState]:
        states = dict.fromkeys(ids, LeaseState.NOT_FOUND)
        by_epoch: dict[int, dict[str, LeaseName]] = {}
        for each in ids:
            name = self._ids.read(topic.topic_hash, each)
            if name is not None:
                by_epoch.setdefault(name.boot_epoch, {})[each] = name
        answers = await asyncio.gather(
            *(
                self._ask(_Call(topic.topic, epoch, method, terms), list(names.values()))
                for epoch, names in by_epoch.items()
            )
        )
        for names, codes in zip(by_epoch.values(), answers, strict=True):
            for each, code in zip(names, codes, strict=True):
                if code == _DONE:
                    states[each] = LeaseState.DONE
                    self._remember(each, word)
                elif self._was_done(each, word):
                    states[each] = LeaseState.DONE
                else:
                    states[each] = LeaseState.EXPIRED if code == _LATE else LeaseState.NOT_FOUND
        return states

    async def _ask(self, call: _Call, names: Sequence[LeaseName]) -> bytes:
        settling = self._settling.get(call)
        if settling is None:
            if len(self._settling) >= MOST_LINES:
                self._settling = {key: one for key, one in self._settling.items() if not one.idle}

            async def settle(asked: Sequence[Sequence[LeaseName]]) -> Sequence[bytes]:
                return await self._settle_all(call, asked)

            settling = self._settling[call] = Coalescer(settle, weight=len, most=SETTLED_AT_ONCE)
        try:
            return await settling.ask(names)
        finally:
            if settling.idle:
                self._settling.pop(call, None)

    async def _settle_all(self, call: _Call, asked: Sequence[Sequence[LeaseName]]) -> list[bytes]:
        receipts = wire.Receipts(
            boot_epoch=call.boot_epoch,
            msg_id=[name.msg_id for names in asked for name in names],
            attempt=[name.attempt for names in asked for name in names],
        )
        request = getattr(wire, call.method + "Request")(
            topic=call.topic, receipts=receipts, **dict(call.terms)
        )
        answer: Any = await self._channel.call(
            SERVICE + call.method, request, wire.SettleResponse, timeout_s=CALL_SECONDS
        )
        codes: bytes = answer.codes
        found: list[bytes] = []
        at = 0
        for names in asked:
            found.append(codes[at : at + len(names)])
            at += len(names)
        return found

    def _remember(self, lease_id: str, word: str) -> None:
        if not word:
            return
        self._recent[lease_id, word] = self._clock.mono_ns() + REMEMBERED_NS
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)

    def _was_done(self, lease_id: str, word: str) -> bool:
        until = self._recent.get((lease_id, word)) if word else None
        return until is not None and self._clock.mono_ns() < until
