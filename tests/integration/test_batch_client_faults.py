"""A batch client survives peers that are silent, stuck, garbled or cannot take a batch, and callbacks that fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from snavio.clock import ManualClock, SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.hop import client_stream
from snavio.hop.client import BatchClient, ClientLimits
from snavio.hop.server_stream import BatchStream
from snavio.native import Reply
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call
from snavio.v1.batch_pb2 import Batch, Hello, Verdicts
from tests.support.batch_clients import (
    METHOD,
    Handler,
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

GREETING = Verdicts(hello=Hello(wire_version=1)).SerializeToString()


@dataclass(slots=True)
class Clumsy(Waiter):
    """Fails at the calls it is configured for."""

    def settle(self, offset: int, reply: Reply) -> None:
        raise RuntimeError("cannot take an answer")

    def lost(self, *, written: bool, cause: str) -> None:
        Waiter.lost(self, written=written, cause=cause)
        raise RuntimeError("cannot take a loss")


def at_first(odd: Handler) -> Handler:
    """A peer that serves its first stream with `odd`, and delivers on all that follow."""
    answering = Peer(deliver)
    turns = iter([odd])

    async def dispatch(call: Call) -> None:
        await next(turns, answering.dispatch)(call)

    return dispatch


async def greet_and_freeze(call: Call) -> None:
    await call.read()
    await call.write(GREETING)
    await asyncio.Event().wait()


async def test_an_old_stream_waits_for_its_last_answer_while_the_next_one_is_sent_on(
    authority: Authority,
) -> None:
    clock = ManualClock()

    async def forget_the_first(batch: Batch, stream: BatchStream) -> None:
        stream.reply(b"" if len(peer.batches) == 1 else delivered(batch), True)

    peer = Peer(forget_the_first)
    limits = ClientLimits(max_age_s=0.05)
    async with (
        server(authority, peer) as address,
        link_to(authority, address, clock=clock, limits=limits) as link,
    ):
        late = Waiter(deadline_mono_ns=clock.mono_ns() + 1_000_000_000)
        link.put(late)
        await until(lambda: len(peer.batches) == 1)
        await until(lambda: len(peer.hellos) > 1)
        link.put(waiting := Waiter())
        await told(waiting)
        assert not late.told.is_set()
        clock.advance(seconds=2)
        await told(late)
    assert late.losses == [(True, "the budget ran out")]
    assert waiting.codes == [Verdict.DELIVERED]


async def test_an_answer_on_a_retired_stream_still_counts(authority: Authority) -> None:
    streams: list[BatchStream] = []

    async def hold_the_first(batch: Batch, stream: BatchStream) -> None:
        streams.append(stream)
        if len(streams) > 1:
            stream.reply(delivered(batch), True)

    peer = Peer(hold_the_first)
    async with (
        server(authority, peer) as address,
        link_to(authority, address, limits=ClientLimits(max_age_s=0.05)) as link,
    ):
        link.put(first := Waiter())
        await until(lambda: len(streams) == 1)
        await until(lambda: len(peer.hellos) > 1)
        link.put(second := Waiter())
        await told(second)
        streams[0].reply(delivered(peer.batches[0]), True)
        await told(first)
    assert first.codes == second.codes == [Verdict.DELIVERED]
    assert first.losses == second.losses == []


async def test_a_peer_that_never_ends_its_half_of_an_old_stream_does_not_hold_the_link(
    authority: Authority,
) -> None:
    limits = ClientLimits(max_age_s=0.05)
    async with (
        server(authority, at_first(greet_and_freeze)) as address,
        link_to(authority, address, limits=limits) as link,
    ):
        await link.connected.wait()
        await asyncio.sleep(0.2)
        link.put(waiter := Waiter())
        await told(waiter)
    assert waiter.codes == [Verdict.DELIVERED]


async def test_a_peer_that_stops_reading_loses_the_stream(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_stream, "WRITE_SECONDS", 0.1)
    monkeypatch.setattr(client_stream, "AGE_CHECK_SECONDS", 0.05)
    async with (
        server(authority, at_first(greet_and_freeze)) as address,
        link_to(authority, address, resend=True) as link,
    ):
        body = Batch(run=[Batch.FromString(Waiter().body).run[0]])
        body.run[0].command[0] = bytes(1 << 20)
        waiters = [Waiter(body=body.SerializeToString()) for _ in range(4)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    assert all(waiter.codes == [Verdict.DELIVERED] for waiter in waiters)


async def test_a_batch_that_ends_every_stream_is_given_up_and_those_behind_it_are_delivered(
    authority: Authority,
) -> None:
    async def choke(batch: Batch, stream: BatchStream) -> None:
        if batch.header.batch_seq == 2:
            stream.reply(b"", True)
            raise BadRequest("A frame cannot be read.", reason="malformed")
        stream.reply(delivered(batch), True)

    peer = Peer(choke)
    limits = ClientLimits(max_batch_commands=1)
    async with (
        server(authority, peer) as address,
        link_to(authority, address, resend=True, limits=limits) as link,
    ):
        waiters = [Waiter() for _ in range(5)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    before, poison, *behind = waiters
    assert poison.losses == [(True, "the peer ended every stream that it came on")]
    assert poison.codes == []
    for waiter in (before, *behind):
        assert (waiter.codes, waiter.losses) == ([Verdict.DELIVERED], [])


async def test_streams_that_bring_answers_before_they_end_give_no_batch_up(authority: Authority) -> None:
    first_seen: dict[int, int] = {}

    async def one_more_each_time(batch: Batch, stream: BatchStream) -> None:
        seq = batch.header.batch_seq
        if first_seen.setdefault(seq, len(peer.hellos)) == len(peer.hellos):
            # Twice as many streams as a batch may break: each answers what the one before did not.
            stream.reply(b"", True)
            raise BadRequest("Not now.", reason="not-now")
        stream.reply(delivered(batch), True)

    peer = Peer(one_more_each_time)
    limits = ClientLimits(max_batch_commands=1)
    async with (
        server(authority, peer) as address,
        link_to(authority, address, resend=True, limits=limits) as link,
    ):
        waiters = [Waiter() for _ in range(10)]
        for waiter in waiters:
            link.put(waiter)
        await told(*waiters)
    assert all((waiter.codes, waiter.losses) == ([Verdict.DELIVERED], []) for waiter in waiters)


async def test_a_greeting_that_cannot_be_read_does_not_end_the_link(authority: Authority) -> None:
    async def garble(call: Call) -> None:
        await call.read()
        await call.write(b"\xff\xff\xff")

    async with server(authority, at_first(garble)) as address, link_to(authority, address) as link:
        link.put(waiter := Waiter())
        await told(waiter)
    assert waiter.codes == [Verdict.DELIVERED]


async def test_a_failing_listener_to_greetings_does_not_end_the_link(authority: Authority) -> None:
    hellos: list[Hello] = []

    def fail_once(hello: Hello) -> None:
        hellos.append(hello)
        if len(hellos) == 1:
            raise RuntimeError("cannot take a Hello")

    peer = Peer(deliver)
    async with (
        server(authority, peer) as address,
        link_to(authority, address, on_hello=fail_once) as link,
    ):
        link.put(waiter := Waiter())
        await told(waiter)
    assert waiter.codes == [Verdict.DELIVERED]
    assert len(hellos) == 2


async def test_a_link_whose_certificate_is_not_there_yet_connects_when_it_is(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.mesh("shield")
    missing = CertificateFiles(certificate=tmp_path / "later.pem", private_key=files.private_key, ca=files.ca)
    peer = Peer(deliver)
    async with server(authority, peer) as address:
        channel = MeshChannel(address, files=missing, service="fast")
        link = BatchClient(channel, METHOD, clock=SystemClock())
        await link.start()
        link.put(waiter := Waiter())
        await asyncio.sleep(0.1)
        assert not waiter.told.is_set()
        missing.certificate.write_bytes(files.certificate.read_bytes())
        await told(waiter)
        await link.close()
        await channel.close()
    assert waiter.codes == [Verdict.DELIVERED]


async def test_a_consignment_that_fails_at_its_answer_keeps_nobody_else_from_theirs(
    authority: Authority,
) -> None:
    peer = Peer(deliver)
    async with server(authority, peer) as address, link_to(authority, address) as link:
        await link.connected.wait()
        clumsy, beside = Clumsy(), Waiter()
        link.put(clumsy)
        link.put(beside)
        await told(clumsy, beside)
        link.put(after := Waiter())
        await told(after)
    assert clumsy.losses == [(True, "its answer was not taken")]
    assert beside.codes == after.codes == [Verdict.DELIVERED]
    assert len(peer.hellos) == 1


async def test_whoever_is_left_in_a_link_that_closes_is_told_though_another_fails_at_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snavio.hop.client.CLOSE_SECONDS", 0.05)
    async with link_to(authority, "127.0.0.1:1") as link:
        waiters = [Waiter(), Clumsy(), Waiter()]
        for waiter in waiters:
            link.put(waiter)
    assert [waiter.losses for waiter in waiters] == [[(False, "the connection was closed")]] * 3


async def test_whoever_is_left_in_a_link_is_told_when_its_closing_is_cut_short(authority: Authority) -> None:
    peer = Peer(ignore)
    async with server(authority, peer) as address, link_to(authority, address) as link:
        link.put(flying := Waiter())
        await until(lambda: len(peer.batches) == 1)
        closing = asyncio.create_task(link.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        assert flying.losses == [(True, "the connection was closed")]
