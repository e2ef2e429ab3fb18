"""A hop to a service in the same process: the client of every hop, with a call where the others have a connection.

Never another code path: batches, window, budgets, room and the outcome of a batch that was handed over are those of
`HopClient`, and the next service gets the bytes that it would get over gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snavio.clock import Clock
from snavio.hop.client import HopClient
from snavio.hop.client_stream import StreamListener
from snavio.hop.in_flight import BatchCarrier, ClientLimits
from snavio.hop.send_queue import SendQueue
from snavio.host.background import background
from snavio.native import read_verdicts

Take = Callable[[bytes, Callable[[bytes, bool], None]], None]
"""`take(batch, answer)` of the next service: calls `answer(verdicts, final)` until final, and raises nothing."""


class LocalHop(HopClient):
    """A `TargetQueue` in front of a service of this process."""

    def __init__(
        self,
        take: Take,
        *,
        name: str,
        clock: Clock,
        limits: ClientLimits | None = None,
        waiting: SendQueue | None = None,
    ) -> None:
        super().__init__(LocalConnection(take), name, clock=clock, limits=limits, waiting=waiting)


class LocalConnection:
    """A `HopConnection` without a network."""

    trouble: Exception | None = None

    def __init__(self, take: Take) -> None:
        self._take = take

    async def run(self, traffic: StreamListener) -> None:
        """Hand batches over until cancelled."""
        while True:
            stream = _LocalStream()
            traffic.opened(stream)
            try:
                await self._hand_over(stream, traffic)
            except Exception as error:
                # As a broken stream: a batch that was handed over may have been delivered.
                background().failed("local hop", error)
            finally:
                traffic.broken(stream)

    async def _hand_over(self, stream: _LocalStream, traffic: StreamListener) -> None:
        def answer(frame: bytes, _final: bool) -> None:
            # Without a frame only a place in a stream's window would be free again.
            if frame:
                stream.silent = False
                traffic.answered(read_verdicts(frame))

        while True:
            await stream.outbox.filled()
            in_flight_batch = stream.outbox.items.popleft()
            frame = None if in_flight_batch is None else traffic.leaving(in_flight_batch)
            if frame is not None:
                self._take(frame, answer)
            # A service that answers at once would otherwise be given batch after batch, and the loop to nothing else.
            await asyncio.sleep(0)


class _LocalStream(BatchCarrier):
    def end_half(self) -> None:
        """Nothing to end: no stream is retired here."""

    def finish(self) -> None:
        """Nothing to end: no stream is retired here."""
