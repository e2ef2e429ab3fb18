"""Hands out messages: waits for some, leases them, and frames their stored bytes without looking into them.

Never keeps a lease whose messages did not leave the mailbox, and never hands out bytes that failed their
check.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from services.mailbox.delivery import Delivery
from services.mailbox.rows import Rows
from services.mailbox.topics import Leased
from snavio.errors import IntegrityError, NotFound, Saturated
from snavio.native import slice_runs
from snavio.v1.mailbox_pb2 import Parcel

MAX_WAITERS = 1024
_PARCEL_TAG = b"\x12"
_EPOCH_TAG = b"\x09"
_FAILURES_TAG = b"\x18"


class Waiters:
    """Those who wait for a topic's next message.

    All are woken at every transition: one that gave up meanwhile must not swallow the wake-up of another.
    """

    def __init__(self, *, max_waiters: int = MAX_WAITERS) -> None:
        self._max_waiters = max_waiters
        self._count = 0
        self._topics: dict[str, deque[asyncio.Future[None]]] = {}

    def wake(self, topic: str) -> None:
        """Something may be ready."""
        for future in self._topics.pop(topic, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """The mailbox stops."""
        for topic in list(self._topics):
            self.wake(topic)

    async def wait(self, topic: str, seconds: float) -> None:
        """Until `wake` or the time is over. Saturated when too many wait."""
        if self._count >= self._max_waiters:
            raise Saturated("Too many callers wait for messages.", retry_after_ms=1000)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._topics.setdefault(topic, deque())
        line.append(future)
        self._count += 1
        try:
            await asyncio.wait((future,), timeout=seconds)
        finally:
            self._count -= 1
            if not future.done():
                line.remove(future)
                if not line and self._topics.get(topic) is line:
                    del self._topics[topic]


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


class Receiving:
    """Lives on one event loop."""

    def __init__(
        self, *, delivery: Delivery, rows: Rows, waiters: Waiters, stopping: Callable[[], bool]
    ) -> None:
        self._delivery = delivery
        self._rows = rows
        self._waiters = waiters
        self._stopping = stopping
        self._refills: dict[str, asyncio.Lock] = {}
        self._log = structlog.get_logger()

    async def receive(self, wanted: Wanted) -> bytes:
        """A serialised ReceiveResponse; without parcels when the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wanted.wait_s
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
                parcels, failures = await self._frame(leased, wanted.max_bytes)
                if parcels or failures:
                    return self._response(parcels, failures)
                continue
            left = until - loop.time()
            if left <= 0 or self._stopping():
                return self._response([], 0)
            if self._delivery.shortage(wanted.topic) is None:
                await self._waiters.wait(wanted.topic, left)

    async def _fill_up(self, topic: str) -> None:
        """Fetch from disk what memory lacks; callers of one topic do it once, not each."""
        while (asked := self._delivery.shortage(topic)) is not None:
            lock = self._refills.setdefault(topic, asyncio.Lock())
            try:
                async with lock:
                    if self._delivery.shortage(topic) == asked:
                        await self._rows.refill(self._delivery, asked)
            finally:
                if not lock.locked():
                    self._refills.pop(topic, None)

    async def _frame(self, leased: list[Leased], max_bytes: int) -> tuple[list[bytes], int]:
        """Parcels for what was leased, within `max_bytes` unless one message is larger."""
        framed: list[bytes] = []
        failures = size = 0
        try:
            for index, one in enumerate(leased):
                batch = one.lease.batch
                try:
                    runs = await self._rows.read(batch.topic, batch.batch_id)
                except (IntegrityError, NotFound) as error:
                    damaged = isinstance(error, IntegrityError)
                    lost = self._delivery.withdraw(batch.topic, batch.batch_id, damaged=damaged)
                    failures += lost if damaged else 0
                    self._log.error(
                        "batch withdrawn", reason=error.reason, batch_id=batch.batch_id, messages=lost
                    )
                    continue
                part, kept = _fit(one, runs, max_bytes - size, at_least=0 if framed else 1)
                if kept:
                    framed.append(_parcel(one, part))
                    size += len(part)
                if kept < one.count:
                    self._delivery.give_back(one, keep=kept)
                    for unseen in leased[index + 1 :]:
                        self._delivery.give_back(unseen)
                    break
        except BaseException:
            # The caller went away, or the disk did: nobody has seen any of these.
            for unseen in leased:
                self._delivery.give_back(unseen)
            raise
        return framed, failures

    def _response(self, parcels: list[bytes], failures: int) -> bytes:
        tail = (_FAILURES_TAG, _varint(failures)) if failures else ()
        return b"".join((_EPOCH_TAG, self._delivery.boot_epoch.to_bytes(8, "little"), *parcels, *tail))


def _fit(leased: Leased, runs: bytes, room: int, *, at_least: int) -> tuple[bytes, int]:
    """The leased part of `runs`, cut down until it fits, and how many messages that is."""
    part = runs if leased.whole else slice_runs(runs, leased.first, leased.count)
    kept = leased.count
    while len(part) > room and kept > at_least:
        kept = max(at_least, min(kept - 1, kept * room // len(part)))
        part = slice_runs(runs, leased.first, kept) if kept else b""
    return part, kept


def _parcel(leased: Leased, runs: bytes) -> bytes:
    lease = leased.lease
    header = Parcel(
        batch_id=lease.batch.batch_id,
        first=leased.first,
        attempt=lease.attempt,
        stored_unix_ns=lease.batch.stored_unix_ns,
    ).SerializeToString()
    return b"".join((_PARCEL_TAG, _varint(len(header) + len(runs)), header, runs))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
