"""Keeps leases alive while their messages are worked on, and notices when one is lost.

Never extends what is settled, and never lets a message pass for ours after its lease has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.sdk.ack_buffer import read_codes
from snavio.sdk.delivery import Lease, Settlement
from snavio.v1.mailbox_pb2 import ExtendRequest, Receipts

METHOD = "/snavio.v1.Mailbox/Extend"
TICKS_PER_VISIBILITY = 8
MOST_PER_CALL = 8192


class LeaseKeeper:
    """Extends at half the visibility. `lost` is told how many messages are not ours any more."""

    def __init__(
        self,
        topic: str,
        *,
        channel: MeshChannel,
        clock: Clock,
        visibility_s: float,
        call_s: float,
        lost: Callable[[int], None],
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._clock = clock
        self._visibility_s = visibility_s
        self._visibility_ns = round(visibility_s * 1e9)
        # An answer that comes after the lease has ended is worth nothing.
        self._call_s = min(call_s, visibility_s / 2)
        self._lost = lost
        self._leases: list[Lease] = []
        self._boot_epoch = 0
        self._log = structlog.get_logger().bind(topic=topic)

    def take(self, lease: Lease) -> None:
        """Look after one more. A new boot epoch says that the mailbox restarted: older leases are lost."""
        if lease.boot_epoch != self._boot_epoch:
            self._boot_epoch = lease.boot_epoch
            for old in self._leases:
                self._lose(old, list(old.open))
            self._leases.clear()
        self._leases.append(lease)

    async def run(self) -> None:
        """Extend what is due, again and again; runs until cancelled."""
        while True:
            await asyncio.sleep(self._visibility_s / TICKS_PER_VISIBILITY)
            self._leases = [lease for lease in self._leases if lease.open]
            now = self._clock.mono_ns()
            due = [lease for lease in self._leases if lease.renew_mono_ns <= now]
            while due:
                part = [due.pop()]
                size = len(part[0].open)
                while due and size + len(due[-1].open) <= MOST_PER_CALL:
                    size += len(due[-1].open)
                    part.append(due.pop())
                await self._extend(part)

    async def _extend(self, leases: list[Lease]) -> None:
        held = [(lease, msg_id, attempt) for lease in leases for msg_id, attempt in lease.open.items()]
        if not held:
            return
        request = ExtendRequest(
            topic=self._topic,
            receipts=Receipts(
                boot_epoch=leases[0].boot_epoch,
                msg_id=[msg_id for _, msg_id, _ in held],
                attempt=[attempt for _, _, attempt in held],
            ),
            visibility_ms=max(250, round(self._visibility_s * 1000)),
        )
        sent = self._clock.mono_ns()
        try:
            answer = await self._channel.call_raw(METHOD, request.SerializeToString(), timeout_s=self._call_s)
            codes = read_codes(answer, len(held))
        except SnavioError as error:
            self._log.warning("leases not extended", reason=error.reason, messages=len(held))
            for lease in leases:
                if lease.until_mono_ns <= self._clock.mono_ns():
                    self._lose(lease, list(lease.open))
            return
        for (lease, msg_id, _), code in zip(held, codes, strict=True):
            if code != Settlement.DONE:
                self._lose(lease, [msg_id])
        for lease in leases:
            lease.renewed(now_mono_ns=sent, visibility_ns=self._visibility_ns)

    def _lose(self, lease: Lease, msg_ids: list[int]) -> None:
        count = lease.lose(msg_ids)
        if count:
            self._log.warning("leases lost", messages=count)
            self._lost(count)
