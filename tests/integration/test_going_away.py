"""A server that shuts down announces it to its peers: batches in flight are read and answered, not left unknown."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.hop import server_stream as serving
from snavio.hop.client import ClientLimits
from snavio.hop.server_stream import BatchStream
from snavio.launch.free_ports import free_ports
from snavio.native import read_verdicts
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import MeshServer, Methods
from snavio.rpc.status import REASON_KEY
from snavio.v1.batch_pb2 import Batch, Hello, Verdicts
from tests.support.batch_clients import BODY, METHOD, Peer, Waiter, deliver, link_to, told, until
from tests.support.pki import Authority


def serve(authority: Authority, peer: Peer, *, port: int, max_connection_age_s: float = 3600.0) -> MeshServer:
    methods = Methods()
    methods.stream_raw(METHOD, peer.dispatch)
    return MeshServer(
        listen=f"127.0.0.1:{port}",
        files=authority.mesh("fast"),
        methods=methods,
        gate=CertificateGate(clock=SystemClock()),
        clock=SystemClock(),
        max_connection_age_s=max_connection_age_s,
    )


async def deliver_slowly(batch: Batch, stream: BatchStream) -> None:
    """Reads on only then, so that written batches wait in every buffer between the two ends."""
    await asyncio.sleep(0.01)
    await deliver(batch, stream)


@pytest.mark.parametrize("resend", [False, True])
async def test_restart_under_load_loses_nothing_and_leaves_nothing_unknown(
    authority: Authority, resend: bool
) -> None:
    (port,) = free_ports(1)
    peer = Peer(deliver_slowly)
    first = serve(authority, peer, port=port)
    await first.start()
    waiters: list[Waiter] = []
    ending = asyncio.Event()
    limits = ClientLimits(max_batch_commands=1)

    async def load() -> None:
        while not ending.is_set():
            for _ in range(8):
                waiters.append(Waiter())
                link.put(waiters[-1])
            await asyncio.sleep(0.02)

    async with link_to(authority, f"127.0.0.1:{port}", resend=resend, limits=limits) as link:
        loading = asyncio.create_task(load())
        await until(lambda: len(peer.batches) > 20)
        await first.drain(5.0)
        second = serve(authority, peer, port=port)
        await second.start()
        try:
            before = len(peer.batches)
            await until(lambda: len(peer.batches) > before + 20)
            ending.set()
            await loading
            await told(*waiters)
        finally:
            await second.drain(0)
    assert [waiter.losses for waiter in waiters if waiter.losses] == []
    assert all(waiter.codes == [Verdict.DELIVERED] for waiter in waiters)
    seqs = [batch.header.batch_seq for batch in peer.batches]
    assert len(seqs) == len(set(seqs)) == len(waiters), "and nothing was sent twice"


async def test_stream_that_reaches_its_servers_age_leaves_nothing_unknown(authority: Authority) -> None:
    (port,) = free_ports(1)
    peer = Peer(deliver_slowly)
    server = serve(authority, peer, port=port, max_connection_age_s=0.3)
    await server.start()
    waiters: list[Waiter] = []
    async with link_to(authority, f"127.0.0.1:{port}", limits=ClientLimits(max_batch_commands=1)) as link:
        while len(peer.hellos) < 3:
            waiters.append(Waiter())
            link.put(waiters[-1])
            await asyncio.sleep(0.005)
        await told(*waiters)
        await server.drain(0)
    assert all(waiter.codes == [Verdict.DELIVERED] and not waiter.losses for waiter in waiters)


async def test_peer_that_does_not_know_the_notice_is_cut_off_after_a_while(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "GOING_AWAY_SECONDS", 3.0)
    (port,) = free_ports(1)
    peer = Peer(deliver)
    server = serve(authority, peer, port=port)
    await server.start()
    channel = MeshChannel(f"127.0.0.1:{port}", files=authority.mesh("shield"), service="fast")
    call = channel.stream(METHOD)
    await call.write(Batch(hello=Hello(wire_version=1)).SerializeToString())
    await call.read()
    draining = asyncio.create_task(server.drain(5.0))
    notice = await call.read()
    assert Verdicts.FromString(notice).hello.going_away
    assert read_verdicts(notice).batch_seq == 0, "what an older peer reads in it, which is nothing"
    # It goes on as if nothing had been said, and is still answered.
    await call.write(BODY)
    assert read_verdicts(await call.read()).final
    assert await call.read() is grpc.aio.EOF
    assert dict(await call.trailing_metadata())[REASON_KEY] == "draining"
    await draining
    await channel.close()
