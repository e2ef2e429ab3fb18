"""The batch link against real servers: coalescing, windows, budgets, breaks and resends."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from snavio.clock import ManualClock, SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.server_stream import BatchStream
from snavio.launch.free_ports import free_ports
from snavio.rpc.channel import MeshChannel
from snavio.v1.batch_pb2 import Batch, Hello, Verdicts
from tests.support.batch_clients import (
    BODY,
    METHOD,
    Peer,
    Waiter,
    deliver,
    delivered,
    ignore,
    link_to,
    server,
    told,
    until,
)
from tests.support.pki import Authority


async def test_the_stream_opens_with_who_we_are(authority: Authority) -> None:
    peer = Peer(deliver)
    async with server(authority, peer) as address, link_to(authority, address) as link:
        waiter = Waiter()
        link.put(waiter)
        await told(waiter)
    assert (peer.hellos[0].instance, peer.hellos[0].epoch) == ("shield-0", 7)
    assert waiter.codes == [Verdict.DELIVERED]


async def test_what_is_put_in_one_turn_of_the_loop_travels_in_one_batch(authority: Authority) -> None:
    peer = Peer(deliver)
    async with server(authority, peer) as address, link_to(authority, address) as link:
        await link.connected.wait()
        waiters = [Waiter() for _ in range(50)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    assert [len(batch.run) for batch in peer.batches] == [50]
    assert all(waiter.codes == [Verdict.DELIVERED] for waiter in waiters)


async def test_no_batch_is_larger_than_the_limit(authority: Authority) -> None:
    peer = Peer(deliver)
    limits = ClientLimits(max_batch_commands=10)
    async with server(authority, peer) as address, link_to(authority, address, limits=limits) as link:
        waiters = [Waiter() for _ in range(25)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    assert [len(batch.run) for batch in peer.batches] == [10, 10, 5]
    assert [batch.header.batch_seq for batch in peer.batches] == [1, 2, 3]


async def test_no_more_batches_are_in_flight_than_the_window_holds(authority: Authority) -> None:
    held: list[bytes] = []
    streams: list[BatchStream] = []

    async def hold(batch: Batch, stream: BatchStream) -> None:
        held.append(delivered(batch))
        streams.append(stream)

    peer = Peer(hold)
    limits = ClientLimits(window=2, max_batch_commands=1)
    async with server(authority, peer) as address, link_to(authority, address, limits=limits) as link:
        waiters = [Waiter() for _ in range(4)]
        for waiter in waiters:
            link.put(waiter)
        async with asyncio.timeout(10):
            while len(peer.batches) < 2:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert len(peer.batches) == 2
        for _ in range(4):
            async with asyncio.timeout(10):
                while not held:
                    await asyncio.sleep(0.005)
            streams[0].reply(held.pop(0), True)
        await told(*waiters)


async def test_behind_a_batch_that_nothing_was_heard_of_the_next_gather_until_something_is(
    authority: Authority,
) -> None:
    streams: list[BatchStream] = []

    async def hold(_batch: Batch, stream: BatchStream) -> None:
        streams.append(stream)

    peer = Peer(hold)
    # Longer than the test may last: only an answer lets the others go.
    limits = ClientLimits(linger_s=60.0)
    async with server(authority, peer) as address, link_to(authority, address, limits=limits) as link:
        await link.connected.wait()
        first, *others = [Waiter(count=2), Waiter(), Waiter()]
        link.put(first)
        await until(lambda: len(peer.batches) == 1)
        for waiter in others:
            link.put(waiter)
            await asyncio.sleep(0.02)
        assert len(peer.batches) == 1
        # A part of it is enough: what is still open then may be waiting for Slow.
        partial = Verdicts(batch_seq=1, codes=bytes([Verdict.DELIVERED, 0]))
        streams[0].reply(partial.SerializeToString(), False)
        await until(lambda: len(peer.batches) == 2)
        assert [len(batch.run) for batch in peer.batches] == [1, 2]
        link.put(late := Waiter())
        await asyncio.sleep(0.02)
        assert len(peer.batches) == 2
        for batch in list(peer.batches):
            streams[0].reply(delivered(batch), True)
        await until(lambda: len(peer.batches) == 3)
        streams[0].reply(delivered(peer.batches[2]), True)
        await told(first, late, *others)


async def test_a_full_batch_waits_for_no_answer(authority: Authority) -> None:
    peer = Peer(deliver)
    limits = ClientLimits(linger_s=60.0, max_batch_commands=3)
    async with server(authority, peer) as address, link_to(authority, address, limits=limits) as link:
        await link.connected.wait()
        waiters = [Waiter(count=3), Waiter(count=3), Waiter(count=3)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    assert len(peer.batches) == 3


async def test_partial_answers_reach_each_consignment_in_its_own_numbering(authority: Authority) -> None:
    async def in_parts(batch: Batch, stream: BatchStream) -> None:
        seq = batch.header.batch_seq
        stream.reply(
            Verdicts(batch_seq=seq, first=1, codes=bytes([Verdict.ACL_DENY])).SerializeToString(), False
        )
        codes = bytes([Verdict.DELIVERED, 0, Verdict.DELIVERED])
        stream.reply(Verdicts(batch_seq=seq, codes=codes, final=True).SerializeToString(), True)

    peer = Peer(in_parts)
    async with server(authority, peer) as address, link_to(authority, address) as link:
        await link.connected.wait()
        waiters = [Waiter() for _ in range(3)]
        for waiter in waiters:
            link.put(waiter)
        async with asyncio.timeout(10):
            while not all(any(waiter.codes) for waiter in waiters):
                await asyncio.sleep(0.005)
    seen = [next(code for code in waiter.codes if code) for waiter in waiters]
    assert seen == [Verdict.DELIVERED, Verdict.ACL_DENY, Verdict.DELIVERED]


async def test_a_budget_that_ends_before_the_answer_leaves_the_outcome_unknown(authority: Authority) -> None:
    clock = ManualClock()
    peer = Peer(ignore)
    async with server(authority, peer) as address, link_to(authority, address, clock=clock) as link:
        waiter = Waiter(deadline_mono_ns=clock.mono_ns() + 1_000_000_000)
        link.put(waiter)
        async with asyncio.timeout(10):
            while not peer.batches:
                await asyncio.sleep(0.005)
        # A tenth is kept for the way back.
        assert peer.batches[0].header.budget_ms == 900
        clock.advance(seconds=2)
        await told(waiter)
    assert waiter.losses == [(True, "the budget ran out")]


async def test_what_was_never_written_is_known_not_to_be_delivered(authority: Authority) -> None:
    clock = ManualClock()
    async with link_to(authority, "127.0.0.1:1", clock=clock) as link:
        waiter = Waiter(deadline_mono_ns=clock.mono_ns() + 1_000_000_000)
        link.put(waiter)
        clock.advance(seconds=2)
        await told(waiter)
    assert waiter.losses == [(False, "the budget ran out")]


async def test_a_broken_connection_leaves_the_outcome_unknown_when_nobody_resends(
    authority: Authority,
) -> None:
    peer = Peer(ignore)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        link = BatchClient(channel, METHOD, clock=SystemClock())
        await link.start()
        waiter = Waiter()
        link.put(waiter)
        async with asyncio.timeout(10):
            while not peer.batches:
                await asyncio.sleep(0.005)
    # The server is gone, with the batch read and not answered.
    await told(waiter)
    await link.close()
    await channel.close()
    assert waiter.losses == [(True, "the connection broke")]


async def test_an_unanswered_batch_is_sent_again_with_the_same_name_and_bytes(authority: Authority) -> None:
    silent, answering = Peer(ignore), Peer(deliver)
    # Not a port of the system's choice: an outgoing connection could take it before it is listened on again.
    (port,) = free_ports(1)
    async with server(authority, silent, listen=f"127.0.0.1:{port}") as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        link = BatchClient(channel, METHOD, clock=SystemClock(), instance="fast-0", epoch=9, resend=True)
        await link.start()
        waiter = Waiter()
        link.put(waiter)
        async with asyncio.timeout(10):
            while not silent.batches:
                await asyncio.sleep(0.005)
    async with server(authority, answering, listen=address):
        await told(waiter)
        await link.close()
        await channel.close()
    assert answering.batches[0] == silent.batches[0]
    assert (answering.hellos[0].instance, answering.hellos[0].epoch) == ("fast-0", 9)
    assert waiter.codes == [Verdict.DELIVERED]
    assert waiter.losses == []


async def test_an_old_stream_is_replaced_without_losing_a_batch(authority: Authority) -> None:
    peer = Peer(deliver)
    limits = ClientLimits(max_age_s=0.05)
    async with server(authority, peer) as address, link_to(authority, address, limits=limits) as link:
        waiters: list[Waiter] = []
        async with asyncio.timeout(20):
            while len(peer.hellos) < 3:
                waiter = Waiter()
                waiters.append(waiter)
                link.put(waiter)
                await told(waiter)
    assert all(waiter.codes == [Verdict.DELIVERED] and not waiter.losses for waiter in waiters)


async def test_too_much_waiting_is_refused_instead_of_kept(authority: Authority) -> None:
    limits = ClientLimits(max_waiting_bytes=4 * len(BODY))
    async with link_to(authority, "127.0.0.1:1", limits=limits) as link:
        for _ in range(4):
            link.put(Waiter(deadline_mono_ns=0))
        with pytest.raises(Saturated):
            link.put(Waiter())


async def test_a_stream_without_a_hello_is_refused_with_a_reason(authority: Authority) -> None:
    peer = Peer(deliver)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        call = channel.stream(METHOD)
        await call.write(BODY)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
        assert dict(refusal.value.trailing_metadata())["snavio-reason"] == "no-hello"
        await channel.close()


async def test_a_stream_of_another_wire_version_is_refused_with_a_reason(authority: Authority) -> None:
    peer = Peer(deliver)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=authority.mesh("shield"), service="fast")
        call = channel.stream(METHOD)
        await call.write(Batch(hello=Hello(wire_version=99)).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
        assert dict(refusal.value.trailing_metadata())["snavio-reason"] == "wire-version"
        await channel.close()
