"""The cost of a caller before its request arrives: authorised at the headers, within a share, a size and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest

from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import FrameTooLarge, NotAllowed, Saturated, Unauthenticated
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import MAX_FRAME_BYTES, PUBLIC_FRAME_BYTES, WINDOW_BYTES
from snavio.rpc.server import Call, Methods
from snavio.rpc.server_shares import ServerShares
from snavio.rpc.status import error_of
from tests.support.pki import Authority
from tests.support.raw_http2 import RawHttp2, message_head, tls
from tests.support.servers import STREAM, UNARY, Served, calling, echo, serving

WITHIN_S = 20.0
FORBIDDEN = "/snavio.v1.Signer/RevokeCertificate"
EITHER = "/snavio.v1.Mailbox/Send"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
CHECK = "/grpc.health.v1.Health/Check"


def with_forbidden() -> Methods:
    async def never(_request: bytes, _call: Call) -> bytes:
        raise AssertionError("reached")

    methods = echo()
    methods.unary_raw(FORBIDDEN, never)
    return methods


def headers_only(channel: MeshChannel, method: str) -> grpc.aio.StreamStreamCall:
    """A call of which nothing but the headers is sent."""
    return channel.stream(method)


async def refusal(call: grpc.aio.StreamStreamCall) -> Exception:
    """The status with which the server ended the call."""
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
    return error_of(ended.value)


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


def raw(served: Served, authority: Authority, files: CertificateFiles) -> RawHttp2:
    return RawHttp2(served.address, tls(files, authority.ca.certificate_pem))


# At the headers


@pytest.mark.parametrize("method", [FORBIDDEN, "/snavio.v1.Shield/NoSuchMethod"])
async def test_who_may_not_call_is_refused_before_a_byte_of_the_body(
    authority: Authority, method: str
) -> None:
    async with (
        serving(authority, methods=with_forbidden()) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        error = await refusal(headers_only(channel, method))
        assert getattr(error, "reason", "") in ("not-allowed", "unknown-method")


async def test_a_revoked_certificate_is_refused_before_a_byte_of_the_body(authority: Authority) -> None:
    async with (
        serving(authority) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        serial = await served_serial(served, channel)
        served.gate.revoke([serial])
        assert isinstance(await refusal(headers_only(channel, UNARY)), Unauthenticated)


async def served_serial(served: Served, channel: MeshChannel) -> str:
    """The serial that the server sees; by inspecting its own open call."""
    stream = channel.stream(STREAM)
    await stream.write(b"hello")
    await stream.read()
    (opened,) = served.server._open_calls
    stream.cancel()
    return opened.peer.cert_serial


async def test_header_only_calls_of_one_tenant_leave_room_for_others_and_for_operators(
    authority: Authority,
) -> None:
    shares = ServerShares(calls=40)
    methods = with_forbidden()
    async with (
        serving(authority, methods=methods, shares=shares) as served,
        calling(served, authority.service("rival", "flood")) as flood,
        calling(served, authority.service("acme", "billing")) as billing,
        calling(served, authority.operator("ada")) as operator,
    ):
        held = [headers_only(flood, UNARY) for _ in range(200)]
        await eventually(lambda: shares.calls.refused >= 190)
        assert shares.calls.held("rival") == 10
        assert await billing.call_raw(UNARY, b"on", timeout_s=WITHIN_S) == b"on"
        await operator.call_raw(CHECK, b"", timeout_s=WITHIN_S)
        with pytest.raises(Saturated) as full:
            await flood.call_raw(UNARY, b"mine", timeout_s=WITHIN_S)
        assert full.value.reason == "tenant-share"
        assert "rival has its share of calls being served: 10 of 10." in str(full.value)
        for call in held:
            call.cancel()
        await eventually(lambda: shares.calls.used == 0)


async def test_calls_that_may_not_be_made_count_against_nobody(authority: Authority) -> None:
    shares = ServerShares(calls=40)
    async with (
        serving(authority, methods=with_forbidden(), shares=shares) as served,
        calling(served, authority.service("rival", "flood")) as flood,
    ):
        calls = [headers_only(flood, FORBIDDEN) for _ in range(100)]
        errors = [await refusal(call) for call in calls]
        assert all(isinstance(error, NotAllowed) for error in errors)
        assert shares.calls.refused == 0


# Deadlines


async def test_a_request_that_does_not_come_ends_its_call(authority: Authority) -> None:
    shares = ServerShares()
    async with (
        serving(authority, shares=shares, first_read_s=0.2) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        error = await refusal(headers_only(channel, UNARY))
        assert getattr(error, "reason", "") == "deadline-exceeded"
        await eventually(lambda: shares.calls.used == shares.bytes.used == 0)


@pytest.mark.parametrize("method", [STREAM, WATCH, REFLECT])
async def test_a_stream_that_says_nothing_is_ended(authority: Authority, method: str) -> None:
    async with (
        serving(authority, first_read_s=0.2) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        error = await refusal(headers_only(channel, method))
        assert getattr(error, "reason", "") == "deadline-exceeded"


async def test_a_stream_that_falls_silent_ends_in_order(authority: Authority) -> None:
    async with (
        serving(authority, idle_stream_s=0.2) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        stream = channel.stream(STREAM)
        await stream.write(b"")
        async with asyncio.timeout(WITHIN_S):
            assert await stream.read() is not grpc.aio.EOF
            assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_quiet_link_of_the_mesh_stays(authority: Authority) -> None:
    methods = Methods()

    async def listen(call: Call) -> None:
        while (message := await call.read()) is not None:
            await call.write(message)

    methods.stream_raw("/snavio.v1.Fast/Dispatch", listen)
    async with (
        serving(authority, methods=methods, idle_stream_s=0.01) as served,
        calling(served, authority.mesh("shield")) as channel,
    ):
        stream = channel.stream("/snavio.v1.Fast/Dispatch")
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        for _ in range(3):
            served.server._open_calls.sweep()
            await asyncio.sleep(0.02)
        await stream.write(b"still here")
        assert await stream.read() == b"still here"
        stream.cancel()


# Bytes


async def test_bodies_one_byte_short_hold_no_more_than_a_share(authority: Authority) -> None:
    shares = ServerShares(bytes_in_flight=40 << 20)
    size = 1 << 20
    async with (
        serving(authority, shares=shares, max_message_bytes=size, first_read_s=WITHIN_S) as served,
        raw(served, authority, authority.service("rival", "flood")) as flood,
        calling(served, authority.service("acme", "billing")) as billing,
    ):
        sending = []
        for _ in range(64):
            stream = await flood.call(UNARY)
            body = message_head(size) + bytes(size - 1)
            sending.append(asyncio.create_task(flood.send(stream, body)))
        await eventually(lambda: sum(each.done() for each in sending) == 10)
        await eventually(lambda: sum(each >= WINDOW_BYTES for each in flood.sent.values()) == 64)
        assert shares.bytes.held("rival") == 10 << 20
        # They wait for their own share, and no other caller waits for them.
        assert await billing.call_raw(UNARY, b"on", timeout_s=WITHIN_S) == b"on"
        # Ten are read to their last byte but one; of the others no more came than fits a window.
        assert sorted(flood.sent.values())[53] <= WINDOW_BYTES + 16_384
        for each in sending:
            each.cancel()
        await asyncio.wait(sending)
    await eventually(lambda: shares.bytes.used == 0)


async def test_of_bodies_that_may_not_be_sent_nothing_is_kept(authority: Authority) -> None:
    shares = ServerShares()
    size = 1 << 20
    async with (
        serving(authority, methods=with_forbidden(), shares=shares) as served,
        raw(served, authority, authority.service("rival", "flood")) as flood,
    ):
        for _ in range(64):
            stream = await flood.call(FORBIDDEN)
            async with asyncio.timeout(WITHIN_S):
                sent = await flood.send(stream, message_head(size) + bytes(size - 1))
                await flood.end_of(stream)
            assert sent <= 256 << 10
        assert shares.bytes.refused == shares.bytes.used == 0


async def test_a_caller_outside_of_the_mesh_sends_at_most_a_public_frame(authority: Authority) -> None:
    reached = []

    async def measure(request: bytes, _call: Call) -> bytes:
        reached.append(len(request))
        return b""

    methods = echo()
    methods.unary_raw(EITHER, measure)
    size = PUBLIC_FRAME_BYTES
    async with serving(authority, methods=methods) as served:
        async with calling(served, authority.service("acme", "billing")) as tenant:
            await tenant.call_raw(EITHER, bytes(size), timeout_s=WITHIN_S)
            with pytest.raises(FrameTooLarge) as refused:
                await tenant.call_raw(EITHER, bytes(size + 1), timeout_s=WITHIN_S)
            assert f"at most {size} bytes" in str(refused.value)
            stream = tenant.stream(STREAM)
            await stream.write(bytes(size + 1))
            assert isinstance(await refusal(stream), FrameTooLarge)
        async with calling(served, authority.mesh("fast")) as link:
            await link.call_raw(EITHER, bytes(MAX_FRAME_BYTES), timeout_s=WITHIN_S)
    assert reached == [size, MAX_FRAME_BYTES]


async def test_a_call_without_a_request_is_malformed(authority: Authority) -> None:
    async with (
        serving(authority) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        call = headers_only(channel, UNARY)
        await call.done_writing()
        assert getattr(await refusal(call), "reason", "") == "malformed"


# Streams


@pytest.mark.parametrize("method", [STREAM, WATCH, REFLECT])
async def test_streams_of_one_tenant_leave_room_for_others(authority: Authority, method: str) -> None:
    shares = ServerShares(streams=40, side_streams=40)
    bound = shares.streams if method == STREAM else shares.side_streams
    async with (
        serving(authority, shares=shares) as served,
        calling(served, authority.service("rival", "flood")) as flood,
        calling(served, authority.service("acme", "billing")) as billing,
    ):
        held = [headers_only(flood, method) for _ in range(60)]
        await eventually(lambda: bound.refused == 50)
        assert bound.held("rival") == 10
        stream = billing.stream(STREAM)
        await stream.write(b"on")
        assert await stream.read() == b"on"
        for call in (*held, stream):
            call.cancel()
        await eventually(lambda: shares.streams.used == shares.side_streams.used == 0)


async def test_three_hundred_streams_of_one_source_fit_the_default(authority: Authority) -> None:
    assert ServerShares().streams.limit.per_tenant >= 300


# Revoked while a call is open


@pytest.mark.parametrize("shape", ["headers", "handling", "stream", "watch"])
async def test_revoking_a_caller_ends_what_it_has_open(authority: Authority, shape: str) -> None:
    begun = asyncio.Event()

    async def hold(_request: bytes, _call: Call) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    methods = Methods()
    methods.unary_raw(UNARY, hold)
    methods.stream_raw(STREAM, _echo)
    shares = ServerShares()
    held = (shares.calls, shares.streams, shares.side_streams)
    files = authority.leaf(Identity(authority.trust_domain, IdentityKind.SERVICE, "billing", "acme"))
    async with (
        serving(authority, methods=methods, shares=shares) as served,
        calling(served, files) as channel,
    ):
        method = {"stream": STREAM, "watch": WATCH}.get(shape, UNARY)
        call = headers_only(channel, method)
        if shape != "headers":
            await call.write(b"")
        if shape in ("stream", "watch"):
            await call.read()
        await eventually(lambda: sum(bound.used for bound in held) == 1)
        if shape == "handling":
            await begun.wait()
        (opened,) = served.server._open_calls
        served.gate.revoke([opened.peer.cert_serial])
        error = await refusal(call)
        assert isinstance(error, Unauthenticated)
        assert error.reason == "certificate-revoked"
        await eventually(lambda: not any(bound.used for bound in shares.all()))


async def _echo(call: Call) -> None:
    while (message := await call.read()) is not None:
        await call.write(message)
