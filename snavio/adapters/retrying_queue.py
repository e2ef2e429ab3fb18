"""A target queue over a queue driver: takes batch parts, retries within their budget, answers each command.

Never answers DELIVERED before the driver did, never retries a delivery that may not be repeated, and never holds more
than its bounds; beyond them it refuses as saturated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count

from snavio.clock import Clock
from snavio.domain.first_outcome import delivered_at
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, Unavailable
from snavio.host.background import background
from snavio.native import read_verdicts, split_batch
from snavio.ports.queue import BatchPart
from snavio.ports.queue_driver import DriverFailed, DriverResult, OutgoingMessage, QueueDriver, QueueState
from snavio.v1.batch_pb2 import Refusal, Verdicts
from snavio.v1.batch_pb2 import Verdict as WireVerdict

MAX_WAITING = 64
MAX_WAITING_BYTES = 64 << 20
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
FULL_RETRY_MS = 100
CLOSE_SECONDS = 5.0


class RetryingQueue:
    """A `TargetQueue`. Lives on one event loop."""

    def __init__(
        self,
        driver: QueueDriver,
        *,
        clock: Clock,
        instance: str,
        epoch: int,
        recognises_resends: bool,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._name = f"{instance}:{epoch}"
        self._recognises_resends = recognises_resends
        self._max_waiting = max_waiting
        self._numbers = count(1)
        self._deliveries: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._freed = asyncio.Event()
        self._freed.set()
        self.connected = asyncio.Event()
        """Set while the last attempt reached the queue."""

    async def start(self) -> None:
        """Nothing to open: connections are made when they are needed, and made again after a restart."""

    async def close(self) -> None:
        """Wait a bounded time for deliveries in progress, then end them and close the driver."""
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_SECONDS)
        await self._driver.close()

    def put(self, batch_part: BatchPart) -> None:
        """Send it on; returns at once. Raises Saturated when too much is waiting already."""
        size = len(batch_part.buffer)
        if self._full(size):
            raise Saturated("Too many commands wait for this queue.", retry_after_ms=FULL_RETRY_MS)
        self._waiting_bytes += size
        task = background().once("delivery", self._deliver(batch_part))
        self._deliveries.add(task)
        task.add_done_callback(lambda done: self._done(done, batch_part, size))
        if self._full(0):
            self._freed.clear()

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        """One look; whoever asks may ask again."""
        try:
            state = await self._driver.examine(topic, timeout_s=timeout_s)
        except DriverFailed as failure:
            self.connected.clear()
            raise Unavailable(failure.cause, reason="queue-away") from None
        self.connected.set()
        return state

    async def room(self, _holder: str = "", _size: int = 0) -> None:
        """Wait until `put` will not refuse."""
        await self._freed.wait()

    def _full(self, size: int) -> bool:
        return len(self._deliveries) >= self._max_waiting or (
            self._waiting_bytes + size > MAX_WAITING_BYTES and self._waiting_bytes > 0
        )

    def _done(self, task: asyncio.Task[None], batch_part: BatchPart, size: int) -> None:
        self._deliveries.discard(task)
        self._waiting_bytes -= size
        if not self._full(0):
            self._freed.set()
        if task.cancelled() or task.exception() is not None:
            # Some of it may be stored. Here, because a task that is cancelled before its first step runs none of its
            # own code.
            batch_part.lost(written=True, cause="The delivery was broken off.")

    async def _deliver(self, batch_part: BatchPart) -> None:
        try:
            topics = split_batch(batch_part.body)
        except Exception as error:
            if not isinstance(error, ValueError):
                background().failed("delivery", error)
            batch_part.lost(written=False, cause="The batch cannot be read.")
            return
        number = next(self._numbers)
        first = 0
        deliveries: list[_PendingDelivery] = []
        for at, (topic, once, messages) in enumerate(topics):
            # At least once allows an attempt of unknown end to be made again; "once" does not, unless the
            # queue would recognise it.
            repeatable = self._recognises_resends or not once
            token = f"{self._name}:{number}:{at}"
            deliveries.append(
                _PendingDelivery(
                    topic,
                    [OutgoingMessage(*message) for message in messages],
                    first,
                    token,
                    repeatable=repeatable,
                    once=once,
                )
            )
            first += len(messages)
        # Topics do not wait for each other: a queue that is away would hold up the others' answers.
        async with asyncio.TaskGroup() as group:
            for pending in deliveries:
                group.create_task(self._run(pending, batch_part))

    async def _run(self, pending: _PendingDelivery, batch_part: BatchPart) -> None:
        pause = FIRST_PAUSE_S
        while pending.open:
            left_s = (batch_part.deadline_mono_ns - self._clock.mono_ns()) / 1e9
            if left_s <= 0:
                pending.give_up(batch_part)
                return
            tried = list(pending.open)
            try:
                delivery = await self._driver.deliver(
                    pending.topic,
                    [pending.messages[index] for index in tried],
                    token=pending.token,
                    timeout_s=left_s,
                )
            except DriverFailed as failure:
                self.connected.clear()
                pending.cause = failure.cause
                if failure.perhaps:
                    pending.perhaps.update(tried)
                    if not pending.repeatable:
                        pending.give_up(batch_part)
                        return
            else:
                self.connected.set()
                pending.settle(tried, delivery, batch_part, now_unix_ns=self._clock.unix_ns())
            if pending.open:
                left_s = (batch_part.deadline_mono_ns - self._clock.mono_ns()) / 1e9
                # Full jitter: many dispatchers that lost the same queue must not come back in step.
                await asyncio.sleep(min(pause * random.random(), max(left_s, 0.0)))  # noqa: S311 hides nothing
                pause = min(pause * 2, LONGEST_PAUSE_S)


class _PendingDelivery:
    """The messages of one batch part for one topic."""

    def __init__(
        self,
        topic: str,
        messages: Sequence[OutgoingMessage],
        first: int,
        token: str,
        *,
        repeatable: bool,
        once: bool,
    ) -> None:
        self.topic = topic
        self.once = once
        self.repeatable = repeatable
        self.messages = messages
        self.first = first
        self.token = token
        self.open = list(range(len(messages)))
        self.perhaps: set[int] = set()
        self.cause = "The budget ran out."

    def settle(
        self, tried: Sequence[int], delivery: DriverResult, batch_part: BatchPart, *, now_unix_ns: int
    ) -> None:
        """Answer decided messages; the others stay open."""
        place = delivered_at(now_unix_ns) if self.once else ""
        codes = bytearray(len(self.messages))
        refusals = []
        for index, verdict in zip(tried, delivery.verdicts, strict=True):
            if verdict is Verdict.OUTCOME_UNKNOWN and self.repeatable:
                self.perhaps.add(index)
                continue
            codes[index] = verdict
            if place and verdict is Verdict.DELIVERED:
                # For those who answer its duplicates from memory.
                refusals.append(
                    Refusal(index=self.first + index, reason=WireVerdict.ValueType(verdict), detail=place)
                )
            if verdict is not Verdict.UNDECIDED and not verdict.delivered:
                refusals.append(
                    Refusal(
                        index=self.first + index,
                        reason=WireVerdict.ValueType(verdict),
                        retry_after_ms=delivery.retry_after_ms,
                        detail=delivery.detail,
                    )
                )
        self.open = [index for index in self.open if not codes[index]]
        self.cause = delivery.detail or self.cause
        self._answer(bytes(codes), refusals, batch_part)

    def give_up(self, batch_part: BatchPart) -> None:
        """Answer the open messages without another attempt; those never sent are known not to be delivered."""
        codes = bytearray(len(self.messages))
        refusals = []
        for index in self.open:
            verdict = Verdict.OUTCOME_UNKNOWN if index in self.perhaps else Verdict.DELIVERY_FAILURE
            codes[index] = verdict
            refusals.append(
                Refusal(index=self.first + index, reason=WireVerdict.ValueType(verdict), detail=self.cause)
            )
        self.open = []
        self._answer(bytes(codes), refusals, batch_part)

    def _answer(self, codes: bytes, refusals: list[Refusal], batch_part: BatchPart) -> None:
        if any(codes):
            reply = Verdicts(first=self.first, codes=codes, refusal=refusals)
            batch_part.settle(0, read_verdicts(reply.SerializeToString()))
