"""Servers and channels together: errors on the wire, limits, deadlines, health, reflection, drain."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from structlog.testing import capture_logs

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import (
    BadRequest,
    Conflict,
    IntegrityError,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    StateError,
    Unauthenticated,
    Unavailable,
)
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.connection_options import MAX_ANSWER_BYTES
from snavio.rpc.limits import MAX_FRAME_BYTES
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.rpc.server_shares import ServerShares
from snavio.rpc.status import REASON_KEY
from snavio.v1.batch_pb2 import Hello
from snavio.v1.shield_pb2 import GreetRequest
from tests.support.pki import Authority
from tests.support.servers import STREAM, UNARY, calling, echo, serving

# How long a test waits before it gives up; generous, because nothing is measured by it.
WITHIN_S = 20.0
# For tenants and for the mesh.
EITHER = "/snavio.v1.Mailbox/Send"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def unary(handler: Callable[[bytes, Call], Awaitable[bytes]]) -> Methods:
    methods = Methods()
    methods.unary_raw(UNARY, handler)
    return methods


def raising(failure: BaseException) -> Methods:
    async def handler(_request: bytes, _call: Call) -> bytes:
        raise failure

    async def stream(call: Call) -> None:
        await call.read()
        raise failure

    methods = unary(handler)
    methods.stream_raw(STREAM, stream)
    return methods


async def failure_of(authority: Authority, methods: Methods, request: bytes = b"") -> SnavioError:
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        with pytest.raises(SnavioError) as failed:
            await channel.call_raw(UNARY, request, timeout_s=WITHIN_S)
    return failed.value


# Errors on the wire


@pytest.mark.parametrize(
    "raised",
    [
        BadRequest("The topic is empty.", reason="bad-topic"),
        BadRequest("No."),
        Unauthenticated("Who?", reason="certificate-revoked"),
        NotAllowed("Not yours."),
        NotFound("No such target: ünïcödé."),
        Conflict("Taken.", reason="target-taken"),
        Unavailable("Registry is away."),
        IntegrityError("Checksum."),
    ],
    ids=lambda raised: f"{type(raised).__name__} {raised.reason}",
)
async def test_error_arrives_as_it_was_raised(authority: Authority, raised: SnavioError) -> None:
    arrived = await failure_of(authority, raising(raised))
    assert type(arrived) is type(raised)
    assert arrived.reason == raised.reason
    assert str(arrived) == str(raised)


async def test_saturation_arrives_with_its_hint(authority: Authority) -> None:
    arrived = await failure_of(authority, raising(Saturated("Full.", retry_after_ms=1234)))
    assert isinstance(arrived, Saturated)
    assert arrived.retry_after_ms == 1234


async def test_error_out_of_a_task_group_arrives_as_itself(authority: Authority) -> None:
    grouped = ExceptionGroup("tasks", [ExceptionGroup("inner", [NotFound("Gone.", reason="gone")])])
    arrived = await failure_of(authority, raising(grouped))
    assert isinstance(arrived, NotFound)
    assert arrived.reason == "gone"


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("password=hunter2"),
        SnavioError("password=hunter2"),
        StateError("/var/lib/hunter2"),
        ExceptionGroup("tasks", [NotFound("fine"), KeyError("hunter2")]),
        BadRequest("fine", reason="hunter2\r\nx: y"),
    ],
    ids=["unexpected", "bare", "state", "group", "reason"],
)
async def test_what_was_not_written_for_callers_stays_inside(authority: Authority, raised: Exception) -> None:
    with capture_logs() as logs:
        arrived = await failure_of(authority, raising(raised))
    assert "hunter2" not in str(arrived)
    assert "hunter2" not in arrived.reason
    if not isinstance(raised, BadRequest):
        assert (type(arrived), str(arrived), arrived.reason) == (SnavioError, "internal error", "internal")
        assert [log["event"] for log in logs] == ["call failed"]


async def test_stream_fails_with_the_same_statuses(authority: Authority) -> None:
    for raised, code, reason in (
        (Conflict("Twice."), grpc.StatusCode.ALREADY_EXISTS, "conflict"),
        (ValueError("hunter2"), grpc.StatusCode.INTERNAL, "internal"),
    ):
        async with (
            serving(authority, methods=raising(raised)) as served,
            calling(served, authority.service("acme", "billing")) as channel,
        ):
            stream = channel.stream(STREAM)
            await stream.write(b"")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stream.read()
            assert failed.value.code() is code
            assert dict(failed.value.trailing_metadata())[REASON_KEY] == reason
            assert "hunter2" not in failed.value.details()


async def test_server_that_is_not_there_is_unavailable(authority: Authority) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        channel = MeshChannel(
            f"127.0.0.1:{taken.getsockname()[1]}", files=authority.operator("ada"), service="shield"
        )
        with pytest.raises(Unavailable):
            await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        await channel.close()
        with pytest.raises(Unavailable):
            await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)


async def test_method_that_is_not_served_is_unknown(authority: Authority) -> None:
    async with (
        serving(authority) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        for method in ("/snavio.v1.Shield/NoSuchMethod", "/snavio.v1.Signer/TenantConfig", "/x/y"):
            with pytest.raises(NotFound) as unknown:
                await channel.call_raw(method, b"hello", timeout_s=WITHIN_S)
            assert unknown.value.reason == "unknown-method"
        assert await channel.call_raw(UNARY, b"still here", timeout_s=WITHIN_S) == b"still here"


# Messages


async def test_typed_methods_parse_and_refuse_nonsense(authority: Authority) -> None:
    async def greet(request: GreetRequest, _call: Call) -> Hello:
        return Hello(wire_version=request.wire_version + 1)

    methods = Methods()
    methods.unary("/snavio.v1.Shield/Greet", greet, GreetRequest)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        answer = await channel.call(
            "/snavio.v1.Shield/Greet", GreetRequest(wire_version=1), Hello, timeout_s=WITHIN_S
        )
        assert answer.wire_version == 2
        with pytest.raises(BadRequest) as refused:
            await channel.call_raw("/snavio.v1.Shield/Greet", b"\xff\xff", timeout_s=WITHIN_S)
        assert refused.value.reason == "malformed"


async def test_taken_port_is_told_in_one_sentence_and_gRPC_says_nothing(
    authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(authority) as served:
        port = served.address.rpartition(":")[2]
        for listen in (f"127.0.0.1:{port}", f"localhost:{port}", "192.0.2.1:1"):
            second = MeshServer(
                listen=listen, files=served.files, methods=Methods(), gate=served.gate, clock=SystemClock()
            )
            with pytest.raises(StateError, match=f"Cannot listen on {listen}") as refused:
                await second.start()
            assert refused.value.reason == "address-taken"
    assert capfd.readouterr().err == ""


async def test_answer_that_cannot_be_read_is_an_integrity_error(authority: Authority) -> None:
    async def nonsense(_request: bytes, _call: Call) -> bytes:
        return b"\xff\xff"

    async with (
        serving(authority, methods=unary(nonsense)) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        with pytest.raises(IntegrityError):
            await channel.call(UNARY, GreetRequest(), Hello, timeout_s=WITHIN_S)


async def test_message_at_the_limit_passes_and_one_over_it_does_not(authority: Authority) -> None:
    reached = []

    async def measure(request: bytes, _call: Call) -> bytes:
        reached.append(len(request))
        return b"x" * (MAX_ANSWER_BYTES + 1) if request == b"too much" else b""

    methods = Methods()
    methods.unary_raw(EITHER, measure)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.mesh("fast")) as channel,
    ):
        await channel.call_raw(EITHER, bytes(MAX_FRAME_BYTES), timeout_s=WITHIN_S)
        # Our own end refuses to send it ...
        with pytest.raises(BadRequest) as refused:
            await channel.call_raw(EITHER, bytes(MAX_FRAME_BYTES + 1), timeout_s=WITHIN_S)
        assert refused.value.reason == "oversized"
        with pytest.raises(BadRequest):
            await channel.call_raw(EITHER, b"too much", timeout_s=WITHIN_S)
        # ... and so does the other, whatever limits a foreign client assumes.
        async with stranger(authority, served.address) as careless:
            with pytest.raises(grpc.aio.AioRpcError) as exhausted:
                await careless.unary_unary(EITHER)(bytes(MAX_FRAME_BYTES + 1), timeout=WITHIN_S)
        assert exhausted.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reached == [MAX_FRAME_BYTES, len(b"too much")]


async def test_compressed_message_is_refused_and_not_inflated(authority: Authority) -> None:
    reached = []

    async def measure(request: bytes, _call: Call) -> bytes:
        reached.append(len(request))
        return b""

    async with (
        serving(authority, methods=unary(measure)) as served,
        stranger(authority, served.address, compression=grpc.Compression.Gzip) as careless,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await careless.unary_unary(UNARY)(bytes(1024 * 1024), timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert reached == []


def stranger(
    authority: Authority, address: str, *, compression: grpc.Compression | None = None
) -> grpc.aio.Channel:
    """A client with a valid certificate and arbitrary behaviour."""
    files = authority.service("acme", "stranger")
    credentials = grpc.ssl_channel_credentials(
        authority.ca.certificate_pem, files.private_key.read_bytes(), files.certificate.read_bytes()
    )
    options = (
        ("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),
        ("grpc.max_send_message_length", -1),
    )
    return grpc.aio.secure_channel(address, credentials, options=options, compression=compression)


# Time and load


async def test_call_without_a_deadline_ends_at_the_servers_limit(authority: Authority) -> None:
    async def forever(_request: bytes, call: Call) -> bytes:
        assert call.remaining_s() is None
        await asyncio.Event().wait()
        return b""

    async with (
        serving(authority, methods=unary(forever), unary_limit_s=0.05) as served,
        stranger(authority, served.address) as careless,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await careless.unary_unary(UNARY)(b"")
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_caller_whose_time_is_over_hears_so_and_its_handler_is_cancelled(authority: Authority) -> None:
    ended = asyncio.Event()

    async def forever(_request: bytes, call: Call) -> bytes:
        assert 0 < (call.remaining_s() or 0) <= 2.0
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with (
        serving(authority, methods=unary(forever)) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        with pytest.raises(Unavailable) as over:
            # Long enough to be connected and heard on a busy machine: a handler that never began does not end.
            await channel.call_raw(UNARY, b"", timeout_s=2.0)
        assert over.value.reason == "deadline-exceeded"
        async with asyncio.timeout(WITHIN_S):
            await ended.wait()


async def test_calls_over_the_limit_are_refused_and_room_comes_back(authority: Authority) -> None:
    begun, release = asyncio.Semaphore(0), asyncio.Event()

    async def held(request: bytes, _call: Call) -> bytes:
        begun.release()
        await release.wait()
        return request

    async with (
        serving(authority, methods=unary(held), shares=ServerShares(calls=8)) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)) for _ in range(2)]
            await begun.acquire()
            await begun.acquire()
            with pytest.raises(Saturated):
                await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
            release.set()
        assert all(call.done() for call in running)
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    assert await channel.call_raw(UNARY, b"again", timeout_s=WITHIN_S) == b"again"
                    break
                except Saturated:
                    # gRPC counts a call until it has seen its very end.
                    await asyncio.sleep(0)


async def test_taken_address_is_one_sentence(authority: Authority) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        server = MeshServer(
            listen=listen,
            files=authority.mesh("shield"),
            methods=echo(),
            gate=CertificateGate(clock=SystemClock()),
            clock=SystemClock(),
        )
        with pytest.raises(StateError, match=listen) as refused:
            await server.start()
    assert str(refused.value).count("\n") == 0
    await server.drain(0)


async def test_second_server_does_not_share_the_port(authority: Authority) -> None:
    async with serving(authority) as served:
        second = MeshServer(
            listen=served.address,
            files=served.files,
            methods=echo(),
            gate=served.gate,
            clock=SystemClock(),
        )
        with pytest.raises(StateError):
            await second.start()


async def test_server_without_certificates_does_not_start(authority: Authority, tmp_path: Path) -> None:
    files = authority.mesh("shield")
    files.ca.unlink()
    server = MeshServer(
        listen="127.0.0.1:0",
        files=files,
        methods=echo(),
        gate=CertificateGate(clock=SystemClock()),
        clock=SystemClock(),
    )
    with pytest.raises(StateError):
        await server.start()


# Streams


async def test_nobody_reads_after_a_read_was_cancelled(authority: Authority) -> None:
    async def stream(call: Call) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call.read()
        # gRPC may have taken a message for the read that is gone: going on would skip it unnoticed.
        with pytest.raises(RuntimeError):
            await call.read()
        await call.write(b"refused")
        call.drain()
        assert await call.read() is None

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        asyncio.timeout(WITHIN_S),
    ):
        stream_call = channel.stream(STREAM)
        assert await stream_call.read() == b"refused"
        assert await stream_call.read() is grpc.aio.EOF


async def test_answers_written_by_many_tasks_all_arrive(authority: Authority) -> None:
    async def stream(call: Call) -> None:
        async with asyncio.TaskGroup() as group:
            while (message := await call.read()) is not None:
                for number in range(20):
                    group.create_task(call.write(message + bytes([number])))

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        stream_call = channel.stream(STREAM)
        await stream_call.write(b"a")
        await stream_call.write(b"b")
        await stream_call.done_writing()
        answers = set()
        async with asyncio.timeout(WITHIN_S):
            while (answer := await stream_call.read()) is not grpc.aio.EOF:
                answers.add(answer)
    assert answers == {name + bytes([number]) for name in (b"a", b"b") for number in range(20)}


async def test_peer_that_does_not_read_its_answers_loses_the_stream(authority: Authority) -> None:
    reasons: list[str] = []
    ended = asyncio.Event()

    async def stream(call: Call) -> None:
        # A slow trickle is no offence: each write ends in time, and there are more than two looks at them.
        for _ in range(6):
            await asyncio.sleep(0.4)
            await call.write(b"")
        for _ in range(2):
            with pytest.raises(Unavailable) as stuck:
                while True:
                    await call.write(bytes(1024 * 1024))
            reasons.append(stuck.value.reason)
        ended.set()

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    async with (
        serving(authority, methods=methods, write_limit_s=1.0) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        asyncio.timeout(WITHIN_S),
    ):
        stream_call = channel.stream(STREAM)
        for _ in range(6):
            assert await stream_call.read() == b""
        await ended.wait()
        stream_call.cancel()
    assert reasons == ["peer-stuck", "peer-stuck"]


async def test_handler_may_answer_for_a_revoked_peer_itself(authority: Authority) -> None:
    async def stream(call: Call) -> None:
        while (await call.read(gated=False)) is not None:
            await call.write(bytes([call.check()]))

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    peers: list[str] = []

    async def remember(_request: bytes, call: Call) -> bytes:
        peers.append(call.peer.cert_serial)
        return b""

    methods.unary_raw(UNARY, remember)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        stream_call = channel.stream(STREAM)
        await stream_call.write(b"")
        assert await stream_call.read() == bytes([Verdict.UNDECIDED])
        served.gate.revoke(peers)
        await stream_call.write(b"")
        assert await stream_call.read() == bytes([Verdict.CERTIFICATE_REVOKED])


async def test_stream_that_reaches_its_age_is_ended_well(authority: Authority) -> None:
    async with (
        serving(authority, max_connection_age_s=2.0) as served,
        calling(served, authority.service("acme", "billing")) as channel,
    ):
        stream = channel.stream(STREAM)
        await stream.write(b"one")
        assert await stream.read() == b"one"
        async with asyncio.timeout(WITHIN_S):
            assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert dict(await stream.trailing_metadata())[REASON_KEY] == "draining"
        assert await channel.call_raw(UNARY, b"new connection", timeout_s=WITHIN_S) == b"new connection"


# Drain


async def test_drain_lets_calls_in_flight_finish_and_refuses_new_ones(authority: Authority) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def held(request: bytes, call: Call) -> bytes:
        begun.set()
        await call.draining.wait()
        await release.wait()
        return request

    async with (
        serving(authority, methods=unary(held)) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        calling(served, authority.service("acme", "late")) as late,
    ):
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            call = group.create_task(channel.call_raw(UNARY, b"mine", timeout_s=WITHIN_S))
            await begun.wait()
            drain = group.create_task(served.server.drain(WITHIN_S))
            await asyncio.sleep(0.01)
            with pytest.raises(Unavailable):
                await late.call_raw(UNARY, b"", timeout_s=WITHIN_S)
            assert not drain.done()
            release.set()
        assert call.result() == b"mine"


async def test_drain_ends_streams_after_what_they_have_in_flight(authority: Authority) -> None:
    release = asyncio.Event()

    async def stream(call: Call) -> None:
        async def answer(message: bytes) -> None:
            await release.wait()
            await call.write(message)

        async with asyncio.TaskGroup() as group:
            while (message := await call.read()) is not None:
                await call.write(b"taken")
                group.create_task(answer(message))

    methods = Methods()
    methods.stream_raw(STREAM, stream)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        asyncio.timeout(WITHIN_S),
    ):
        stream_call = channel.stream(STREAM)
        await stream_call.write(b"slow batch")
        assert await stream_call.read() == b"taken"
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.drain(WITHIN_S))
            await asyncio.sleep(0.01)
            release.set()
            assert await stream_call.read() == b"slow batch"
            assert await stream_call.read() is grpc.aio.EOF
        assert await stream_call.code() is grpc.StatusCode.OK


async def test_drain_cancels_what_outlives_its_grace_and_may_be_repeated(authority: Authority) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def stubborn(_request: bytes, _call: Call) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with (
        serving(authority, methods=unary(stubborn)) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        asyncio.timeout(WITHIN_S),
    ):
        call = asyncio.create_task(channel.call_raw(UNARY, b"", timeout_s=WITHIN_S))
        await begun.wait()
        await served.server.drain(0.05)
        assert ended.is_set()
        with pytest.raises(Unavailable):
            await call
        await served.server.drain(0.05)


async def test_many_idle_streams_drain_at_once(authority: Authority) -> None:
    async with (
        serving(authority) as served,
        calling(served, authority.service("acme", "billing")) as channel,
        asyncio.timeout(WITHIN_S),
    ):
        streams = [channel.stream(STREAM) for _ in range(50)]
        for stream in streams:
            await stream.write(b"hello")
            assert await stream.read() == b"hello"
        await served.server.drain(WITHIN_S)
        for stream in streams:
            assert await stream.read() is grpc.aio.EOF
        assert await streams[0].code() is grpc.StatusCode.OK


# Health and reflection


async def health(channel: MeshChannel, service: str = "") -> int:
    answer = await channel.call(
        CHECK,
        health_pb2.HealthCheckRequest(service=service),
        health_pb2.HealthCheckResponse,
        timeout_s=WITHIN_S,
    )
    status: int = answer.status
    return status


async def test_health_says_what_the_server_was_told(authority: Authority) -> None:
    async with serving(authority) as served, calling(served, authority.operator("ada")) as channel:
        assert await health(channel) == SERVING
        assert await health(channel, "snavio.v1.Shield") == SERVING
        served.server.set_serving(False)
        assert await health(channel) == NOT_SERVING
        served.server.set_serving(True)
        assert await health(channel) == SERVING
        with pytest.raises(NotFound):
            await health(channel, "snavio.v1.Signer")
        listed = await channel.call(
            "/grpc.health.v1.Health/List",
            health_pb2.HealthListRequest(),
            health_pb2.HealthListResponse,
            timeout_s=WITHIN_S,
        )
        assert set(listed.statuses) == {"", "snavio.v1.Shield"}


async def test_watcher_sees_not_serving_on_drain_and_does_not_hold_it(authority: Authority) -> None:
    async with serving(authority) as served, calling(served, authority.operator("ada")) as channel:
        watch = channel.stream(WATCH)
        await watch.write(health_pb2.HealthCheckRequest().SerializeToString())
        await watch.done_writing()

        async def seen() -> int:
            status: int = health_pb2.HealthCheckResponse.FromString(await watch.read()).status
            return status

        async with asyncio.timeout(WITHIN_S):
            assert await seen() == SERVING
            served.server.set_serving(False)
            assert await seen() == NOT_SERVING
            served.server.set_serving(True)
            assert await seen() == SERVING
            drain = asyncio.create_task(served.server.drain(2 * WITHIN_S))
            assert await seen() == NOT_SERVING
            assert await watch.read() is grpc.aio.EOF
            await drain
        served.server.set_serving(True)


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_reflection_lists_and_describes_the_services(authority: Authority, version: str) -> None:
    async with serving(authority) as served, calling(served, authority.operator("ada")) as channel:
        stream = channel.stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")

        async def ask(
            request: reflection_pb2.ServerReflectionRequest,
        ) -> reflection_pb2.ServerReflectionResponse:
            await stream.write(request.SerializeToString())
            return reflection_pb2.ServerReflectionResponse.FromString(await stream.read())

        async with asyncio.timeout(WITHIN_S):
            listed = await ask(reflection_pb2.ServerReflectionRequest(list_services=""))
            assert {service.name for service in listed.list_services_response.service} == {
                "snavio.v1.Shield",
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
                "grpc.reflection.v1.ServerReflection",
            }
            for symbol in (
                "snavio.v1.Shield",
                "snavio.v1.Shield.Submit",
                "snavio.v1.SubmitRequest",
                ".snavio.v1.SubmitRequest",
                "snavio.v1.SubmitRequest.command",
                "snavio.v1.Verdict",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1.ServerReflection.ServerReflectionInfo",
                "grpc.health.v1.Health.Watch",
            ):
                described = await ask(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
                assert described.file_descriptor_response.file_descriptor_proto, symbol
            for unknown in ("snavio.v1.Nothing", "snavio.v1.Shield.Nothing", "", "."):
                described = await ask(reflection_pb2.ServerReflectionRequest(file_containing_symbol=unknown))
                assert described.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0], unknown
            await stream.write(b"\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_a_reflection_client_builds_messages_and_methods_from_it(
    authority: Authority, version: str
) -> None:
    """gRPC's own client of reflection, which knows v1alpha only, under both names."""
    async with serving(authority) as served:
        channel = blocking(authority, served.address, version)
        described = await asyncio.to_thread(_described, channel)
        channel.close()
    assert described == ("snavio.v1.SubmitRequest", "command", "Submit", "snavio.v1.Verdicts")


def blocking(authority: Authority, address: str, version: str) -> grpc.Channel:
    """A blocking channel that calls `version` of reflection whatever its stub says."""
    files = authority.operator("ada")
    credentials = grpc.ssl_channel_credentials(
        authority.ca.certificate_pem, files.private_key.read_bytes(), files.certificate.read_bytes()
    )
    options = (("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),)
    channel = grpc.secure_channel(address, credentials, options)
    original = channel.stream_stream
    channel.stream_stream = lambda method, *args, **named: original(
        method.replace("v1alpha", version), *args, **named
    )
    return channel


def _described(channel: grpc.Channel) -> tuple[str, str, str, str]:
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    message = pool.FindMessageTypeByName("snavio.v1.SubmitRequest")
    method = pool.FindServiceByName("snavio.v1.Shield").methods_by_name["Submit"]
    found = database.FindFileContainingSymbol("snavio.v1.Shield.Submit")
    assert found.name == "snavio/v1/shield.proto"
    return message.full_name, message.fields[0].name, method.name, method.output_type.full_name
