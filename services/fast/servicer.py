"""Fast on the wire: one stream of batches per Shield."""

from __future__ import annotations

from services.fast.dispatch import Dispatcher
from snavio.clock import Clock
from snavio.hop.instance_names import InstanceNames
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.server import Call, Methods


class FastServicer:
    """Wire to decision and back."""

    def __init__(
        self, *, dispatcher: Dispatcher, gate: CertificateGate, clock: Clock, in_flight: int
    ) -> None:
        self._dispatcher = dispatcher
        self._gate = gate
        self._clock = clock
        self._in_flight = in_flight
        # Two Shields of one name would share a snapshot mark and a line in every report.
        self._names = InstanceNames()

    def methods(self) -> Methods:
        """The handlers."""
        methods = Methods()
        methods.stream_raw("/snavio.v1.Fast/Dispatch", self.dispatch)
        return methods

    async def dispatch(self, call: Call) -> None:
        """Batches, answered in parts and in any order."""
        stream = BatchStream(call, gate=self._gate, window=self._in_flight)
        try:
            await stream.greet(mesh_hello(self._clock, in_flight=self._in_flight), names=self._names)
            async for frame in stream.batches():
                self._dispatcher.take(frame, stream.reply)
        finally:
            await stream.finish()
