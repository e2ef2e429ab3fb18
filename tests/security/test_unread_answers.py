"""Answers that a caller requests and does not read: they count against its share, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snavio.errors import BadRequest, Unavailable
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call, Methods
from snavio.rpc.server_shares import ServerShares
from tests.support.pki import Authority
from tests.support.raw_http2 import RawHttp2, message_head, tls
from tests.support.servers import STREAM, UNARY, Served, calling, serving

WITHIN_S = 20.0
LARGE = 256 << 10


def raw(served: Served, authority: Authority, files: CertificateFiles) -> RawHttp2:
    return RawHttp2(served.address, tls(files, authority.ca.certificate_pem))


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


def answering(size: int) -> tuple[Methods, list[str]]:
    """A method with answers of that size, and the serials of those it has answered."""
    answered: list[str] = []

    async def answer(_request: bytes, call: Call) -> bytes:
        answered.append(call.peer.cert_serial)
        return bytes(size)

    methods = Methods()
    methods.unary_raw(UNARY, answer)
    return methods, answered


async def ask(flood: RawHttp2, calls: int) -> None:
    """Send that many requests, and open no window for the answers."""
    for _ in range(calls):
        await flood.send(await flood.call(UNARY), message_head(1) + b"x")


async def test_answers_that_nobody_reads_hold_their_calls_share(authority: Authority) -> None:
    methods, answered = answering(LARGE)
    shares = ServerShares(calls=40)
    async with serving(authority, methods=methods, shares=shares) as served:
        async with raw(served, authority, authority.service("rival", "flood")) as flood:
            await ask(flood, 100)
            await eventually(lambda: len(answered) + shares.calls.refused == 100)
            assert len(answered) == shares.calls.held("rival") == 10
            async with calling(served, authority.service("acme", "billing")) as billing:
                assert len(await billing.call_raw(UNARY, b"on", timeout_s=WITHIN_S)) == LARGE
        await eventually(lambda: shares.calls.used == shares.bytes.used == 0)


async def test_answers_that_nobody_reads_hold_bytes_and_leave_those_of_others(authority: Authority) -> None:
    methods, answered = answering(1 << 20)
    shares = ServerShares(bytes_in_flight=40 << 20)
    async with serving(
        authority, methods=methods, shares=shares, max_message_bytes=1 << 20, first_read_s=1.0
    ) as served:
        async with raw(served, authority, authority.service("rival", "flood")) as flood:
            for _ in range(40):
                await ask(flood, 1)
                await asyncio.sleep(0.01)
            await eventually(lambda: shares.bytes.refused >= 20)
            assert shares.bytes.held("rival") == 10 << 20
            assert len(answered) <= 12
            async with calling(served, authority.service("acme", "billing")) as billing:
                assert len(await billing.call_raw(UNARY, b"on", timeout_s=WITHIN_S)) == 1 << 20
        await eventually(lambda: shares.calls.used == shares.bytes.used == 0)


async def test_a_revoked_caller_holds_nothing_for_answers_that_it_did_not_read(authority: Authority) -> None:
    methods, answered = answering(LARGE)
    shares = ServerShares(calls=40)
    async with (
        serving(authority, methods=methods, shares=shares) as served,
        raw(served, authority, authority.service("acme", "stolen")) as thief,
    ):
        await ask(thief, 10)
        await eventually(lambda: shares.calls.held("acme") == 10 and len(answered) == 10)
        served.gate.revoke(answered[:1])
        await eventually(lambda: shares.calls.used == shares.bytes.used == 0)


async def test_a_stream_that_is_stuck_holds_its_share_for_as_long_as_it_is_there(
    authority: Authority,
) -> None:
    stuck = 0

    async def stream(call: Call) -> None:
        nonlocal stuck
        await call.read()
        try:
            while True:
                await call.write(bytes(LARGE))
        except Unavailable:
            stuck += 1
            raise

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    shares = ServerShares(streams=8)
    async with serving(authority, methods=methods, shares=shares, write_limit_s=0.2) as served:
        async with raw(served, authority, authority.service("rival", "flood")) as flood:
            streams = [await flood.call(STREAM) for _ in range(2)]
            for each in streams:
                await flood.send(each, message_head(1) + b"x")
            await eventually(lambda: stuck == 2)
            third = await flood.call(STREAM)
            await flood.send(third, message_head(1) + b"x")
            await flood.end_of(third)
            assert not flood.ended & set(streams)
            assert shares.streams.held("rival") == 2
        await eventually(lambda: shares.streams.used == 0)


async def test_a_stream_that_ends_in_mid_write_holds_its_share_too(authority: Authority) -> None:
    async def stream(call: Call) -> None:
        await call.read()
        writing = asyncio.create_task(call.write(bytes(LARGE)))
        await call.read()
        writing.cancel()
        await asyncio.wait({writing})
        raise BadRequest("The stream is open already.", reason="already-open")

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    shares = ServerShares(streams=8)
    async with (
        serving(authority, methods=methods, shares=shares) as served,
        raw(served, authority, authority.service("rival", "flood")) as flood,
    ):
        for _ in range(10):
            each = await flood.call(STREAM)
            await flood.send(each, 2 * (message_head(1) + b"x"))
        await eventually(lambda: len(flood.ended) == 8)
        await asyncio.sleep(0.2)
        assert shares.streams.held("rival") == 2
        served.gate.revoke([opened.peer.cert_serial for opened in served.server._open_calls])
        await eventually(lambda: shares.streams.used == 0)


async def test_streams_that_nobody_reads_do_not_hold_up_the_end_of_a_server(authority: Authority) -> None:
    async def stream(call: Call) -> None:
        await call.read()
        while True:
            await call.write(bytes(LARGE))

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    shares = ServerShares()
    async with (
        serving(authority, methods=methods, shares=shares, write_limit_s=0.1) as served,
        raw(served, authority, authority.service("rival", "flood")) as flood,
    ):
        await flood.send(await flood.call(STREAM), message_head(1) + b"x")
        await eventually(lambda: any(call.unsent for call in served.server._streams))
        began = asyncio.get_running_loop().time()
        await served.server.drain(WITHIN_S)
        assert asyncio.get_running_loop().time() - began < WITHIN_S / 2


async def test_answers_that_nobody_reads_do_not_hold_up_the_end_of_a_server(authority: Authority) -> None:
    methods, answered = answering(LARGE)
    async with (
        serving(authority, methods=methods) as served,
        raw(served, authority, authority.service("rival", "flood")) as flood,
    ):
        await ask(flood, 10)
        await eventually(lambda: len(answered) == 10)
        began = asyncio.get_running_loop().time()
        await served.server.drain(WITHIN_S)
        assert asyncio.get_running_loop().time() - began < WITHIN_S / 2
