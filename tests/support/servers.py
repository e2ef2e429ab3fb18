"""Real servers and channels on loopback, for tests of what happens between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from snavio.clock import Clock, SystemClock
from snavio.errors import SnavioError
from snavio.host.introspection import METHOD as STATUS
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.pki import Authority

# Methods with a row for tenant services, of both shapes.
UNARY = "/snavio.v1.Shield/Submit"
STREAM = "/snavio.v1.Shield/SubmitStream"


@dataclass(frozen=True, slots=True)
class Served:
    """A server under test."""

    server: MeshServer
    address: str
    gate: CertificateGate
    files: CertificateFiles


def echo() -> Methods:
    """Methods that say what they hear."""

    async def unary(request: bytes, _call: Call) -> bytes:
        return request

    async def stream(call: Call) -> None:
        while (message := await call.read()) is not None:
            await call.write(message)

    methods = Methods()
    methods.unary_raw(UNARY, unary)
    methods.stream_raw(STREAM, stream)
    return methods


@asynccontextmanager
async def serving(
    authority: Authority,
    *,
    methods: Methods | None = None,
    files: CertificateFiles | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """A server with Shield's certificate, gone at the end."""
    clock = clock or SystemClock()
    files = files or authority.mesh("shield")
    gate = CertificateGate(clock=clock)
    server = MeshServer(
        listen="127.0.0.1:0",
        files=files,
        methods=methods or echo(),
        gate=gate,
        clock=clock,
        trust_domain=authority.trust_domain,
        **options,
    )
    port = await server.start()
    try:
        yield Served(server, f"127.0.0.1:{port}", gate, files)
    finally:
        await server.drain(0)


@asynccontextmanager
async def calling(
    served: Served, files: CertificateFiles, *, service: str = "shield", **options: Any
) -> AsyncIterator[MeshChannel]:
    """A channel to a server, closed at the end."""
    channel = MeshChannel(served.address, files=files, service=service, **options)
    try:
        yield channel
    finally:
        await channel.close()


async def refused(error: SnavioError, folder: Path) -> grpc.aio.AioRpcError:
    """The gRPC error of a call whose handler raises `error`."""

    async def refuse(_request: StatusRequest, _call: Call) -> StatusResponse:
        raise error

    methods = Methods()
    methods.unary(STATUS, refuse, StatusRequest)
    authority = Authority(folder)
    async with (
        serving(authority, methods=methods) as served,
        calling(served, authority.operator("ada")) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await channel._current().unary_unary(STATUS)(b"", timeout=10)
    return told.value
