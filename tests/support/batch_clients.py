"""A batch client, peers that are scripted, and batch parts that remember what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from snavio.clock import Clock, SystemClock
from snavio.domain.verdict import Verdict
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.native import Reply
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.v1.batch_pb2 import Batch, Hello, Run, Verdicts
from tests.support.pki import Authority

Handler = Callable[[Call], Awaitable[None]]
METHOD = "/snavio.v1.Fast/Dispatch"
BODY = Batch(run=[Run(source="acme/billing", command=[b"c"])]).SerializeToString()


@dataclass(slots=True)
class Waiter:
    """A batch part that remembers what it was told."""

    count: int = 1
    body: bytes = BODY
    deadline_mono_ns: int = 2**62
    source: str = ""
    codes: list[int] = field(default_factory=list)
    losses: list[tuple[bool, str]] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def buffer(self) -> bytes:
        return self.body

    def settle(self, offset: int, reply: Reply) -> None:
        decided = reply.codes[offset - reply.first : offset - reply.first + self.count]
        self.codes += decided
        self.told.set()

    def lost(self, *, written: bool, cause: str) -> None:
        self.losses.append((written, cause))
        self.told.set()


@dataclass(slots=True)
class Peer:
    """A scripted Fast. `script` handles each batch; what arrived is kept."""

    script: Callable[[Batch, BatchStream], Awaitable[None]]
    hellos: list[Hello] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    gate: CertificateGate = field(default_factory=lambda: CertificateGate(clock=SystemClock()))

    async def dispatch(self, call: Call) -> None:
        stream = BatchStream(call, gate=self.gate, window=16)
        self.hellos.append(await stream.greet(mesh_hello(SystemClock(), in_flight=16)))
        try:
            async for frame in stream.batches():
                batch = Batch.FromString(frame)
                self.batches.append(batch)
                await self.script(batch, stream)
        finally:
            await stream.finish()


def delivered(batch: Batch) -> bytes:
    count = sum(len(run.command) for run in batch.run)
    codes = bytes([Verdict.DELIVERED]) * count
    verdicts: bytes = Verdicts(batch_seq=batch.header.batch_seq, codes=codes, final=True).SerializeToString()
    return verdicts


async def deliver(batch: Batch, stream: BatchStream) -> None:
    stream.reply(delivered(batch), True)


async def ignore(_batch: Batch, stream: BatchStream) -> None:
    stream.reply(b"", True)


@asynccontextmanager
async def server(
    authority: Authority, peer: Peer | Handler, *, listen: str = "127.0.0.1:0", write_limit_s: float = 15.0
) -> AsyncIterator[str]:
    """Serve METHOD; yields the address."""
    methods = Methods()
    methods.stream_raw(METHOD, peer.dispatch if isinstance(peer, Peer) else peer)
    serving = MeshServer(
        listen=listen,
        files=authority.mesh("fast"),
        methods=methods,
        gate=peer.gate if isinstance(peer, Peer) else CertificateGate(clock=SystemClock()),
        clock=SystemClock(),
        write_limit_s=write_limit_s,
    )
    port = await serving.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await serving.drain(0)


@asynccontextmanager
async def link_to(
    authority: Authority,
    address: str,
    *,
    resend: bool = False,
    clock: Clock | None = None,
    limits: ClientLimits | None = None,
    on_hello: Callable[[Hello], None] | None = None,
) -> AsyncIterator[BatchClient]:
    """A client that is started, and closed in the end."""
    channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
    link = BatchClient(
        channel,
        METHOD,
        clock=clock or SystemClock(),
        instance="shield-0",
        epoch=7,
        resend=resend,
        limits=limits,
        on_hello=on_hello,
    )
    await link.start()
    try:
        yield link
    finally:
        await link.close()
        await channel.close()


async def told(*waiters: Waiter) -> None:
    async with asyncio.timeout(10):
        for waiter in waiters:
            await waiter.told.wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)
