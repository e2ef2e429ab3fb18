"""Callers that open calls and send nothing, or next to nothing, at every port of a running mesh."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from services.shield.servicer import MAX_PAYLOAD_BYTES
from snavio.admin.operator import Operator
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import MAX_FRAME_BYTES
from tests.conftest import Figure
from tests.support.mesh import NAME, TARGET, DemoMesh
from tests.support.raw_http2 import PREFACE, RawHttp2, message_head, tls

pytestmark = pytest.mark.asyncio(loop_scope="module")

FULL = bool(os.environ.get("SNAVIO_FULL"))
CALLS = 5000 if FULL else 600
PER_CONNECTION = 500
PER_SECOND = 1000
# The server's own deadline, its sweep, and a busy machine.
ENDED_WITHIN_S = 40.0

# Of each service one method that a tenant's service may not call, and one that it may.
FLOODED = {
    "signer": ("/snavio.v1.Signer/RevokeCertificate", "/snavio.v1.Signer/TenantConfig"),
    "registry": ("/snavio.v1.Registry/CreateTenant", "/grpc.health.v1.Health/Check"),
    "shield": ("/snavio.v1.Introspection/Status", "/snavio.v1.Shield/SubmitBatch"),
    "mailbox": ("/snavio.v1.Mailbox/SendStream", "/snavio.v1.Mailbox/Receive"),
}
PORTS = ("shield", "fast", "slow", "signer", "registry", "mailbox", "relay", "gateway", "door")


async def rival(operator: Operator, mesh: DemoMesh) -> tuple[CertificateFiles, str]:
    """A service of another tenant, and the serial of its certificate."""
    await operator.create_tenant("rival")
    await operator.register_service("rival", "flood")
    folder = mesh.certificates("rival-flood")
    serial = await operator.certify(
        Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "flood", "rival"), folder
    )
    return CertificateFiles.in_folder(folder), serial


def context_of(files: CertificateFiles | None, ca: Path) -> ssl.SSLContext:
    return tls(files, ca.read_bytes())


async def flood(stack: AsyncExitStack, address: str, context: ssl.SSLContext, service: str) -> list[RawHttp2]:
    """Header-only calls, paced, of both methods in turn; the connections."""
    connections: list[RawHttp2] = []
    for at in range(CALLS):
        if at % PER_CONNECTION == 0:
            connections.append(await stack.enter_async_context(RawHttp2(address, context)))
        await connections[-1].call(FLOODED[service][at % 2])
        if at % 50 == 49:
            await asyncio.sleep(50 / PER_SECOND)
    return connections


async def test_header_only_calls_of_one_tenant_stop_neither_others_nor_operators(
    mesh: DemoMesh, figure: Figure
) -> None:
    async with mesh.operator() as operator, mesh.producer() as producer, AsyncExitStack() as stack:
        files, serial = await rival(operator, mesh)
        context = context_of(files, files.ca)
        flooding = [
            asyncio.create_task(flood(stack, mesh.addresses[service], context, service))
            for service in FLOODED
        ]
        sent = 0
        while not all(each.done() for each in flooding):
            outcome = await producer.send(TARGET, NAME, b"on")
            assert outcome.delivered, outcome
            sent += 1
            await asyncio.sleep(0.05)
        # At the height of it: one producer sends, another connects, and an operator revokes.
        async with mesh.producer() as another:
            assert (await another.send(TARGET, NAME, b"anew")).delivered
        began = time.monotonic()
        await operator.revoke_certificate(serial, reason="flood")
        revoked_s = time.monotonic() - began
        connections = [connection for each in flooding for connection in await each]
        async with asyncio.timeout(ENDED_WITHIN_S):
            for connection in connections:
                for stream in connection.sent:
                    await connection.end_of(stream)
        figure(
            f"{CALLS} header-only calls at each of four services: {sent} sends, revoked in {revoked_s:.2f} s"
        )


async def test_a_slow_loris_loses_its_call_at_every_port(mesh: DemoMesh) -> None:
    """A TCP connection, a handshake, a preface, a call's headers and a trickling body are all ended."""
    certificates = CertificateFiles.in_folder(mesh.certificates("acme-billing"))

    async def loris(port: str) -> None:
        address = mesh.processes.enrolment if port == "door" else mesh.addresses[port]
        context = context_of(None if port == "door" else certificates, certificates.ca)
        async with asyncio.timeout(ENDED_WITHIN_S), asyncio.TaskGroup() as group:
            group.create_task(silent(address, None))
            group.create_task(silent(address, context))
            group.create_task(silent(address, context, PREFACE[:10]))
            group.create_task(headers(address, context))
            group.create_task(trickle(address, context))

    async def https_loris() -> None:
        """Requests that stop or trickle at every place: tests/security/test_https_slow_loris.py."""
        address, context = mesh.processes.mesh.https, context_of(certificates, certificates.ca)
        async with asyncio.timeout(ENDED_WITHIN_S), asyncio.TaskGroup() as group:
            for tls_or_not, said in ((None, b""), (context, b""), (context, b"GET / HTTP/1.1\r\nhost: ")):
                group.create_task(silent(address, tls_or_not, said))

    async with asyncio.TaskGroup() as group:
        group.create_task(https_loris(), name="https")
        for port in PORTS:
            group.create_task(loris(port), name=port)


async def test_a_frame_beyond_a_mebibyte_is_refused_at_its_head_at_every_port(mesh: DemoMesh) -> None:
    """Unfinished frames of streams are in gRPC's memory, where no share counts them."""
    certificates = CertificateFiles.in_folder(mesh.certificates("acme-billing"))
    context = context_of(certificates, certificates.ca)
    reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    streams = {"shield": "/snavio.v1.Shield/SubmitStream", "mailbox": "/snavio.v1.Mailbox/RecvStream"}
    for port in PORTS[:-1]:
        for method in {reflect, streams.get(port, reflect)}:
            async with RawHttp2(mesh.addresses[port], context) as client:
                stream = await client.call(method)
                async with asyncio.timeout(ENDED_WITHIN_S):
                    # One byte short: a server that had room for it would wait for that byte.
                    sent = await client.send(
                        stream, message_head(MAX_FRAME_BYTES + 1) + bytes(MAX_FRAME_BYTES)
                    )
                    await client.end_of(stream)
                # What was on its way when the server saw the head: one window, wherever the frame ends.
                assert sent <= MAX_FRAME_BYTES, (port, method, sent)


async def test_the_largest_batch_of_a_producer_passes_every_hop(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        for payload, count in ((bytes(900), 1000), (bytes(MAX_PAYLOAD_BYTES), 8)):
            outcomes = await producer.send_batch([(TARGET, NAME, payload)] * count)
            assert outcomes.delivered == count, [one.reason for one in outcomes if not one.delivered][:3]


async def silent(address: str, context: ssl.SSLContext | None, said: bytes = b"") -> None:
    """Connect, send so many bytes and no more, and wait for the disconnection."""
    host, _, port = address.rpartition(":")
    named: dict[str, Any] = {"server_hostname": "any"} if context else {}
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, **named)
    try:
        writer.write(said)
        while await reader.read(1024):
            pass
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.transport.abort()


async def headers(address: str, context: ssl.SSLContext) -> None:
    async with RawHttp2(address, context) as client:
        await client.end_of(await client.call("/grpc.health.v1.Health/Check"))


async def trickle(address: str, context: ssl.SSLContext) -> None:
    async with RawHttp2(address, context) as client:
        stream = await client.call("/grpc.health.v1.Health/Check")
        await client.send(stream, message_head(60))
        while stream not in client.ended and not client.closed.is_set():
            await client.send(stream, b"x")
            await asyncio.sleep(0.5)
        # It went on for as long as the server let it, not to its end.
        assert client.sent[stream] <= 60
