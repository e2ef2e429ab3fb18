"""Slow on the wire: one stream of escalations per Fast, and the calls about permits and bans beside it."""

from __future__ import annotations

import asyncio

from services.slow.arbitration import Arbiter
from services.slow.bans import Bans
from services.slow.forecast import Forecasts
from services.slow.grants import Grants
from services.slow.queue_states import QueueStates
from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.server import Call, Methods
from snavio.v1.slow_pb2 import (
    ExamineQueueRequest,
    ForecastRequest,
    GrantsRequest,
    ReportBansRequest,
    ReturnPermitsRequest,
)


class SlowServicer:
    """Wire to decision and back."""

    def __init__(
        self,
        *,
        arbiter: Arbiter,
        grants: Grants,
        bans: Bans,
        forecasts: Forecasts,
        states: QueueStates,
        gate: CertificateGate,
        clock: Clock,
        in_flight: int,
    ) -> None:
        self._arbiter = arbiter
        self._grants = grants
        self._bans = bans
        self._forecasts = forecasts
        self._states = states
        self._gate = gate
        self._clock = clock
        self._in_flight = in_flight

    def methods(self) -> Methods:
        """The handlers."""
        methods = Methods()
        at = "/snavio.v1.Slow/"
        methods.stream_raw(at + "Arbitrate", self.arbitrate)
        methods.unary(at + "Grants", self._grants.issue, GrantsRequest)
        methods.unary(at + "ReturnPermits", self._grants.take_back, ReturnPermitsRequest)
        methods.unary(at + "ReportBans", self._bans.report, ReportBansRequest)
        methods.unary(at + "Forecast", self._forecasts.forecast, ForecastRequest)
        methods.unary(at + "ExamineQueue", self._states.examine, ExamineQueueRequest)
        return methods

    async def arbitrate(self, call: Call) -> None:
        """Decide batches of escalations, each on its own: one that waits for Registry holds no other."""
        stream = BatchStream(call, gate=self._gate, window=self._in_flight)
        await stream.greet(mesh_hello(self._clock, in_flight=self._in_flight))
        try:
            ended: SnavioError | None = None
            async with asyncio.TaskGroup() as jobs:
                try:
                    async for frame in stream.batches():
                        # It answers whatever happens and raises nothing, which would cancel the others.
                        jobs.create_task(self._arbiter.decide(frame, stream.reply))
                except SnavioError as error:
                    # Raised inside the group it would cancel the jobs in progress, whose batches were let in rightly.
                    ended = error
            if ended is not None:
                raise ended
        finally:
            await stream.finish()
