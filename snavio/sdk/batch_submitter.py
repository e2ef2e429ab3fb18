"""Puts signed commands on the stream to Shield; what is sent in one turn of the loop travels as one bundle.

Never signs, never retries; refuses nothing by itself but what the link has no room for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.client import BatchClient, ClientLimits
from snavio.native import PartBuffer
from snavio.rpc.channel import MeshChannel
from snavio.sdk.pending_sends import FULL_BYTES, FULL_COMMANDS, AttemptAnswer, BulkSend, PendingSends
from snavio.sdk.retry import RetryBudget
from snavio.v1.batch_pb2 import Hello

METHOD = "/snavio.v1.Shield/SubmitStream"
MAX_COMMANDS = 1000
# Shield counts the whole frame against 1 MiB; the header and each command's tag and length are in it too.
MAX_BATCH_BYTES = (1 << 20) - 64
# All of a command but its payload, and the tags and lengths of a bundle's others.
BESIDE_PAYLOAD_BYTES = 8 << 10


class BatchSubmitter:
    """One stream to Shield."""

    def __init__(
        self, channel: MeshChannel, *, clock: Clock, budget: RetryBudget, on_hello: Callable[[Hello], None]
    ) -> None:
        self._clock = clock
        self._budget = budget
        self.link = BatchClient(
            channel,
            METHOD,
            clock=clock,
            limits=ClientLimits(
                eager=2, linger_s=0.001, max_batch_bytes=MAX_BATCH_BYTES, max_batch_commands=MAX_COMMANDS
            ),
            on_hello=self._greeted,
        )
        self._loop = asyncio.get_running_loop()
        self._on_hello = on_hello
        self._full_bytes, self._full_commands = FULL_BYTES, FULL_COMMANDS
        self._bundle = PendingSends(0)

    async def start(self) -> None:
        """Begin connecting; returns at once."""
        await self.link.start()

    async def connected(self) -> None:
        """Wait for Shield's Hello; the caller brings the deadline."""
        await self.link.connected.wait()

    async def close(self) -> None:
        """Wait a bounded time for answers; everything without one gets the link's."""
        self._send(self._bundle)
        await self.link.close()

    async def room(self, deadline_mono_ns: int, size: int) -> None:
        """Wait for room, at most until the deadline; who then goes on is refused as saturated or too late."""
        try:
            async with asyncio.timeout((deadline_mono_ns - self._clock.mono_ns()) / 1e9):
                await self.link.room("", size + BESIDE_PAYLOAD_BYTES)
        except TimeoutError:
            return

    def post(self, command: bytes, deadline_mono_ns: int) -> asyncio.Future[AttemptAnswer]:
        """Send one command with the others of this turn."""
        bundle = self._bundle
        if not bundle.earliest <= deadline_mono_ns <= bundle.latest:
            self._send(bundle)
            bundle = self._bundle = PendingSends(
                deadline_mono_ns, full_bytes=self._full_bytes, full_commands=self._full_commands
            )
            self._loop.call_soon(self._send, bundle)
        waiter: asyncio.Future[AttemptAnswer] = self._loop.create_future()
        bundle.add(command, waiter)
        return waiter

    async def post_all(
        self, submissions: list[tuple[int, PartBuffer]], deadline_mono_ns: int, attempt_ns: int
    ) -> list[BulkSend]:
        """Send (count, commands) each as one consignment, and wait until all are answered."""
        lots: list[BulkSend] = []
        for count, buffer in submissions:
            if self.link.crowded:
                await self.room(deadline_mono_ns, len(buffer))
            deadline = min(deadline_mono_ns, self._clock.mono_ns() + attempt_ns)
            lot = BulkSend(count, buffer, deadline_mono_ns=deadline, done=self._loop.create_future())
            lots.append(lot)
            self._put(lot)
        for lot in lots:
            await lot.done
        return lots

    def _greeted(self, hello: Hello) -> None:
        limits = self.link.limits
        # A bundle is full with the command that fills it, so there must be room for one more.
        one_more = hello.limits.max_payload_bytes + BESIDE_PAYLOAD_BYTES
        self._full_bytes = min(FULL_BYTES, limits.max_batch_bytes - one_more)
        self._full_commands = min(FULL_COMMANDS, limits.max_batch_commands)
        self._on_hello(hello)

    def _send(self, bundle: PendingSends) -> None:
        if bundle.seal():
            self._put(bundle)

    def _put(self, batch_part: PendingSends | BulkSend) -> None:
        self._budget.deposit(batch_part.count)
        try:
            self.link.put(batch_part)
        except Saturated as error:
            batch_part.close(
                AttemptAnswer(Verdict.SATURATED, error.retry_after_ms, detail="too much is waiting here")
            )
