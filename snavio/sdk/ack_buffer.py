"""Collects acks and nacks for a moment and brings them to the mailbox, many per call.

Never forgets one silently: what the mailbox does not confirm is tried again until we close, and what it
refuses is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from google.protobuf.message import DecodeError

from snavio.errors import IntegrityError, Saturated, SnavioError, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.sdk.delivery import Lease, Nack, Settlement
from snavio.sdk.retry_forever import persist
from snavio.v1.mailbox_pb2 import AckRequest, NackRequest, Receipts, SettleResponse

LINGER_S = 0.002
FULL = 500
MOST_PER_CALL = 8192


@dataclass(slots=True)
class _PendingAcks:
    """Receipts that one call can carry. `nack` is None for acks."""

    boot_epoch: int
    nack: Nack | None = None
    msg_ids: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    waiters: dict[int, asyncio.Future[Settlement]] = field(default_factory=dict)


class AckBuffer:
    """Buffers acks and nacks for the mailbox. `settled` gets the number of messages that are no longer held."""

    def __init__(
        self, topic: str, *, channel: MeshChannel, call_s: float, settled: Callable[[int], None]
    ) -> None:
        self._topic = self.topic = topic
        self._channel = channel
        self._call_s = call_s
        self._settled = settled
        self._acks = _PendingAcks(0)
        self._nacks: dict[tuple[int, Nack], _PendingAcks] = {}
        self._closed: list[_PendingAcks] = []
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._progress = asyncio.Condition()
        self._taken = 0
        self._confirmed = 0
        self.late_acks = 0
        """Acks that changed nothing, because the lease had ended before."""
        self._log = structlog.get_logger().bind(topic=topic)

    def ack(self, lease: Lease, msg_id: int) -> Settlement:
        """Buffer an ack."""
        attempt = lease.open.pop(msg_id, None)
        if attempt is None:
            self.late_acks += msg_id in lease.lost
            return _too_late(lease, msg_id)
        bundle = self._acks
        if bundle.boot_epoch != lease.boot_epoch or len(bundle.msg_ids) >= MOST_PER_CALL:
            self._closed.append(bundle)
            bundle = self._acks = _PendingAcks(lease.boot_epoch)
        bundle.msg_ids.append(msg_id)
        bundle.attempts.append(attempt)
        self._taken += 1
        count = len(bundle.msg_ids)
        if count == 1:
            self._work.set()
        elif count == FULL:
            self._hurry.set()
        return Settlement.BUFFERED

    def nack(self, lease: Lease, msg_id: int, manner: Nack) -> Settlement:
        """Buffer a nack."""
        key = (lease.boot_epoch, manner)
        attempt = lease.open.pop(msg_id, None)
        if attempt is None:
            return _too_late(lease, msg_id)
        bundle = self._nacks.get(key)
        if bundle is None or len(bundle.msg_ids) >= MOST_PER_CALL:
            if bundle is not None:
                self._closed.append(bundle)
            bundle = self._nacks[key] = _PendingAcks(lease.boot_epoch, manner)
        bundle.msg_ids.append(msg_id)
        bundle.attempts.append(attempt)
        self._taken += 1
        self._work.set()
        return Settlement.BUFFERED

    async def confirmed_ack(self) -> Settlement:
        """The mailbox's answer to the ack that was buffered last; call it in the same turn of the loop."""
        return await self._confirmation(self._acks)

    async def confirmed_nack(self, lease: Lease, manner: Nack) -> Settlement:
        """The same for the last nack of this kind."""
        return await self._confirmation(self._nacks[lease.boot_epoch, manner])

    async def flush(self) -> None:
        """Wait until the mailbox has confirmed what is buffered so far; Unavailable if it takes too long."""
        goal = self._taken
        if self._confirmed >= goal:
            return
        self._hurry.set()
        try:
            async with asyncio.timeout(self._call_s), self._progress:
                await self._progress.wait_for(lambda: self._confirmed >= goal)
        except TimeoutError:
            raise Unavailable("The mailbox did not confirm in time.", reason="not-confirmed") from None

    async def run(self) -> None:
        """Bring bundles to the mailbox, one call at a time; runs until cancelled."""
        while True:
            await self._work.wait()
            try:
                async with asyncio.timeout(LINGER_S):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._work.clear()
            self._hurry.clear()
            bundles = [*self._closed, self._acks, *self._nacks.values()]
            self._closed, self._acks, self._nacks = [], _PendingAcks(self._acks.boot_epoch), {}
            for bundle in bundles:
                if bundle.msg_ids:
                    await self._bring(bundle)

    async def _confirmation(self, bundle: _PendingAcks) -> Settlement:
        waiter: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        bundle.waiters[len(bundle.msg_ids) - 1] = waiter
        self._hurry.set()
        try:
            async with asyncio.timeout(self._call_s):
                return await waiter
        except TimeoutError:
            raise Unavailable("The mailbox did not confirm in time.", reason="not-confirmed") from None

    async def _bring(self, bundle: _PendingAcks) -> None:
        count = len(bundle.msg_ids)
        try:
            codes = await self._told(bundle)
        except SnavioError as error:
            # The leases will expire and the messages be delivered again, to a consumer that may settle them.
            self._log.error("settlement refused", reason=error.reason, messages=count)
            self.late_acks += count if bundle.nack is None else 0
            for waiter in bundle.waiters.values():
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            if bundle.nack is None:
                self.late_acks += codes.count(Settlement.LATE)
            for place, waiter in bundle.waiters.items():
                if not waiter.done():
                    waiter.set_result(Settlement(codes[place]))
        self._confirmed += count
        self._settled(count)
        async with self._progress:
            self._progress.notify_all()

    async def _told(self, bundle: _PendingAcks) -> bytes:
        receipts = Receipts(boot_epoch=bundle.boot_epoch, msg_id=bundle.msg_ids, attempt=bundle.attempts)
        request: AckRequest | NackRequest
        if bundle.nack is None:
            method, request = "/snavio.v1.Mailbox/Ack", AckRequest(topic=self._topic, receipts=receipts)
        else:
            manner = bundle.nack
            method = "/snavio.v1.Mailbox/Nack"
            request = NackRequest(
                topic=self._topic,
                receipts=receipts,
                delay_ms=manner.delay_ms,
                reason=manner.reason,
                dead=manner.dead,
                unseen=manner.unseen,
            )
        frame, answer = request.SerializeToString(), b""
        # Without end: what is not confirmed keeps its place among the unsettled, which are bounded.
        async for attempt in persist(Unavailable, Saturated, first_pause_s=0.05):
            with attempt:
                answer = await self._channel.call_raw(method, frame, timeout_s=self._call_s)
        return read_codes(answer, len(bundle.msg_ids))


def read_codes(answer: bytes, count: int) -> bytes:
    """The codes of a SettleResponse to `count` receipts; IntegrityError when it is none."""
    try:
        codes: bytes = SettleResponse.FromString(answer).codes
    except DecodeError:
        codes = b""
    if len(codes) != count or not 1 <= min(codes) <= max(codes) <= max(Settlement):
        raise IntegrityError("The mailbox's answer cannot be read.", reason="malformed")
    return codes


def _too_late(lease: Lease, msg_id: int) -> Settlement:
    return Settlement.LATE if msg_id in lease.lost else Settlement.GONE
