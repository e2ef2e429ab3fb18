"""Hands out messages: waits for some, leases them, and frames their stored bytes without looking into them.

Never keeps a lease whose messages did not leave the mailbox, never hands out bytes that failed their check, and never
lets one receive of a topic overtake another that was given older messages.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.delivery.standstill import Standstill, standstill
from services.mailbox.delivery.topic_locks import TopicLocks
from services.mailbox.delivery.unreadable import UnreadableBatches
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.ranges import ones, zeros
from services.mailbox.state.topics import Leased
from snavio.clock import Clock, SystemClock
from snavio.domain.varint import varint
from snavio.errors import IntegrityError, NotFound, Saturated, Unavailable, Unreadable
from snavio.native import frame_leased_batch, slice_runs
from snavio.ports.mailbox_store import Damaged
from snavio.telemetry.latency import LatencyWindow

_EPOCH_TAG = b"\x09"
_FAILURES_TAG = b"\x18"
_STANDSTILL_TAG = b"\x20"
HASH_BYTES = 64
"""Of payload_hash and hash_chain, for each message of a response."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A valid request for messages."""

    topic: str
    holder: str
    visibility_ms: int
    max_messages: int
    max_bytes: int
    wait_s: float
    require_trust: Callable[[], None]
    """Raises once the caller's certificate is not good any more."""
    caller: str = ""
    """The caller that gets its responses in order: a stream, or a connection; empty if that is not known."""
    explain: bool = False
    """Say why there is nothing."""


@dataclass(frozen=True, slots=True)
class LeasedResponse:
    """A serialised ReceiveResponse, and what was leased for it."""

    response: bytes
    leased: tuple[Leased, ...] = ()
    standstill: Standstill = Standstill.NONE
    """Told in an empty response."""

    @property
    def messages(self) -> int:
        """Number of messages that the response hands out, if it was just made."""
        return sum(one.lease.left for one in self.leased)


class Receiving:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        rows: BatchReader,
        waiters: Waiters,
        stopping: Callable[[], bool],
        clock: Clock | None = None,
    ) -> None:
        self._delivery = delivery
        self._rows = rows
        self._waiters = waiters
        self._stopping = stopping
        self._clock = clock or SystemClock()
        self.latency = LatencyWindow(clock=self._clock)
        """From a lease to the response, without the wait for messages."""
        self.refused: Counter[str] = Counter()
        """Receives that a ceiling kept from getting what there was."""
        self._locks = TopicLocks()
        self._unreadable = UnreadableBatches(delivery=delivery, rows=rows)
        self._log = structlog.get_logger()

    async def receive(self, wanted: Wanted) -> bytes:
        """A serialised ReceiveResponse; without batches when the time is over."""
        return (await self.take(wanted)).response

    async def take(self, wanted: Wanted) -> LeasedResponse:
        """The same, to be given back if it cannot be handed over.

        Saturated when the time is over and there are messages, but too many are leased already.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wanted.wait_s
        with self._waiters.place(wanted.topic) as place:
            while True:
                # From the look at the disk to the response: one receive may have to wait for bytes while the next finds
                # its own in memory. Without turns the newer messages would be gone first, and after a crash in between,
                # the older ones would come long after them.
                async with self._locks.of(wanted.topic):
                    taken = await self._look(wanted)
                place.looked()
                if taken is not None:
                    if self._delivery.has_more(wanted.topic):
                        self._waiters.wake(wanted.topic)
                    return taken
                left = until - loop.time()
                if left <= 0 or self._stopping():
                    return self._nothing(wanted)
                await place.wait(left)

    def _nothing(self, wanted: Wanted) -> LeasedResponse:
        ceiling = self._delivery.kept_back(wanted.topic)
        if ceiling is not None:
            self.refused[ceiling] += 1
            hint = self._delivery.limits.retry_after_ms
            raise Saturated("Too many messages are leased.", retry_after_ms=hint, reason=ceiling)
        response = self._response([], 0)
        if not wanted.explain:
            return LeasedResponse(response)
        why = standstill(self._delivery, wanted.topic)
        return LeasedResponse(response + _STANDSTILL_TAG + varint(why) if why else response, standstill=why)

    async def _look(self, wanted: Wanted) -> LeasedResponse | None:
        """A response with the messages that are ready now; None when there are none."""
        while True:
            await self._fill_up(wanted.topic)
            # Again after each wait: a consumer that was revoked meanwhile gets nothing of what came since.
            wanted.require_trust()
            leased = self._delivery.lease(
                wanted.topic,
                holder=wanted.holder,
                max_messages=wanted.max_messages,
                max_bytes=wanted.max_bytes,
                visibility_ms=wanted.visibility_ms,
            )
            if leased:
                began = self._clock.mono_ns()
                batches, failures = await self._frame(leased, wanted.max_bytes)
                if batches or failures:
                    self.latency.add(self._clock.mono_ns() - began)
                    self._delivery.handed(leased, wanted.caller)
                    self._delivery.topics.received(wanted.topic, wanted.holder)
                    return LeasedResponse(self._response(batches, failures), tuple(leased))
            elif self._delivery.window.shortage(wanted.topic) is None:
                return None  # otherwise what was out of date in memory has made room for what is on disk

    @property
    def stopping(self) -> bool:
        """Shutdown of the mailbox: every receive that waits returns."""
        return self._stopping()

    def give_back(self, taken: LeasedResponse) -> None:
        """The response never left the mailbox."""
        self._give_back(taken.leased)

    async def _fill_up(self, topic: str) -> None:
        """Fetch from disk what memory lacks."""
        while (asked := self._delivery.window.shortage(topic)) is not None:
            await self._rows.refill(self._delivery, asked)

    async def _frame(self, leased: list[Leased], max_bytes: int) -> tuple[list[bytes], int]:
        """Leased batches for what was leased, within `max_bytes` unless one message is larger."""
        framed: list[bytes] = []
        failures = size = 0
        waiting = deque(leased)
        salvaged: dict[int, bytes] = {}
        try:
            while waiting:
                one = waiting.popleft()
                try:
                    runs, damaged = await self._bytes(one, salvaged)
                except Unavailable:
                    # The disk is slow or away, and would be asked in vain for each of the others.
                    if not framed and not failures:
                        raise
                    self._give_back([one, *waiting])
                    break
                failures += damaged
                left = one.left()
                if runs is None or left != [one]:
                    # Its undamaged messages come next, with the bytes that were salvaged.
                    waiting.extendleft(reversed(left if runs is not None else []))
                    continue
                part, kept = _fit(one, runs, max_bytes - size, at_least=0 if framed else 1)
                if kept:
                    framed.append(_leased_batch(one, part))
                    size += len(framed[-1])
                if kept < one.count:
                    self._delivery.give_back(one, keep=kept)
                    self._give_back(waiting)
                    break
        except BaseException:
            # The caller went away, or the disk failed: no consumer has seen any of these.
            self._give_back(leased)
            raise
        return framed, failures

    def _give_back(self, unseen: Iterable[Leased]) -> None:
        for one in unseen:
            self._delivery.give_back(one)

    async def _bytes(self, one: Leased, salvaged: dict[int, bytes]) -> tuple[bytes | None, int]:
        """The batch's runs, None when they are not to be had, and how many messages went to the DLQ for that."""
        batch = one.lease.batch
        if (runs := salvaged.get(batch.batch_id)) is not None:
            return runs, 0
        try:
            runs = await self._rows.read(batch.topic, batch.batch_id)
        except Damaged as error:
            salvaged[batch.batch_id] = error.runs
            return error.runs, self._condemn(batch, error)
        except IntegrityError as error:
            return None, self._condemn(batch, error)
        except NotFound:
            # None are lost where the batch was purged since it was leased.
            if lost := self._delivery.withdraw(batch.topic, batch.batch_id):
                self._log.error("messages are lost", batch_id=batch.batch_id, messages=lost)
            return None, 0
        except Unavailable as error:
            self._delivery.give_back(one)
            if self._unreadable.lost(batch, error):
                return None, self._condemn(batch, IntegrityError(f"cannot be read: {error}"))
            if not isinstance(error, Unreadable):
                raise
            return None, 0
        batch.failures = 0
        return runs, 0

    def _condemn(self, batch: Batch, error: IntegrityError) -> int:
        """Damaged messages go to the DLQ, all of the batch unless it is known which; how many."""
        damaged = error.damaged if isinstance(error, Damaged) else ones(0, batch.count)
        dead = sum(
            self._delivery.endings.condemn(
                batch.topic, batch.batch_id, error=f"E_INTEGRITY: {error}", first=lo, end=hi
            )
            for lo, hi in zeros(~damaged, batch.count)
        )
        self._log.error("messages are damaged", batch_id=batch.batch_id, messages=dead)
        return dead

    def _response(self, batches: list[bytes], failures: int) -> bytes:
        tail = (_FAILURES_TAG, varint(failures)) if failures else ()
        return b"".join((_EPOCH_TAG, self._delivery.boot_epoch.to_bytes(8, "little"), *batches, *tail))


def _fit(leased: Leased, runs: bytes, room: int, *, at_least: int) -> tuple[bytes, int]:
    """The leased part of `runs`, cut down until it fits, and how many messages that is."""
    part = runs if leased.whole else slice_runs(runs, leased.first, leased.count)
    kept = leased.count
    while (size := len(part) + HASH_BYTES * kept) > room and kept > at_least:
        kept = max(at_least, min(kept - 1, kept * room // size))
        part = slice_runs(runs, leased.first, kept) if kept else b""
    return part, kept


def _leased_batch(leased: Leased, runs: bytes) -> bytes:
    lease = leased.lease
    batch = lease.batch
    return frame_leased_batch(
        runs,
        topic=batch.topic,
        batch_id=batch.batch_id,
        first=leased.first,
        attempt=lease.attempt,
        stored_unix_ns=batch.stored_unix_ns,
        shard=batch.shard,
    )
