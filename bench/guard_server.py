"""An echo server in its own process that authorises at the headers, as every server does, or after the body.

    python -m bench.guard_server <folder of a CA's certificates> headers|body

Prints its port and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
import uvloop

from snavio.clock import SystemClock
from snavio.errors import NotAllowed
from snavio.rpc.authorisation import authorise
from snavio.rpc.call import Call
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.connection_options import COMMON_OPTIONS
from snavio.rpc.credentials import CertificateFiles, server_credentials
from snavio.rpc.methods import Methods
from snavio.rpc.peer import Peers
from snavio.rpc.server import MeshServer

METHOD = "/snavio.v1.Shield/Submit"
LIMIT_S = 60.0


async def echo(request: bytes, _call: Call) -> bytes:
    """Return the request."""
    return request


class AfterTheBody(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The same checks of a caller, made after gRPC has read the whole request."""

    def __init__(self, gate: CertificateGate) -> None:
        self._gate = gate
        self._peers = Peers(trust_domain="snavio.local")
        self._clock = SystemClock()
        self._handler = grpc.unary_unary_rpc_method_handler(self._behaviour)
        self._running: set[asyncio.Task[Any]] = set()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        await continuation(details)
        return self._handler

    async def _behaviour(self, request: bytes, context: Any) -> bytes:
        peer = self._peers.peer(context.auth_context())
        if not authorise(METHOD, peer.identity):
            raise NotAllowed("no")
        self._gate.require(peer)
        call = Call(
            peer=peer,
            context=context,
            gate=self._gate,
            draining=asyncio.Event(),
            received_mono_ns=self._clock.mono_ns(),
        )
        remaining = call.remaining_s()
        async with asyncio.timeout(LIMIT_S if remaining is None else min(remaining, LIMIT_S)):
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            return await echo(request, call)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(echo)


async def serve(folder: Path, mode: str) -> None:
    """Serve until the input ends."""
    files, clock = CertificateFiles.in_folder(folder), SystemClock()
    gate = CertificateGate(clock=clock)
    if mode == "headers":
        methods = Methods()
        methods.unary_raw(METHOD, echo)
        port = await MeshServer(
            listen="127.0.0.1:0", files=files, methods=methods, gate=gate, clock=clock
        ).start()
    else:
        plain = grpc.aio.server(
            handlers=(_Handlers(),),
            interceptors=(AfterTheBody(gate),),
            options=COMMON_OPTIONS,
            maximum_concurrent_rpcs=4096,
        )
        port = plain.add_secure_port("127.0.0.1:0", server_credentials(files))
        await plain.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), sys.argv[2]))
