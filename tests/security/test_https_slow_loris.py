"""A slow-loris on an HTTPS listener: whatever a client leaves unfinished, its connection ends in time, others go on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from snavio.http.limits import HttpLimits
from snavio.http.server import HttpServer
from snavio.rpc.credentials import CertificateFiles
from tests.support.pki import Authority

SHORT = HttpLimits(head_s=0.5, body_s=0.5, idle_s=1.0, handshake_s=0.5, connections_per_address=8)
WITHIN_S = 30.0
"""Of a busy machine; without a deadline of the server it would be for ever."""
HEAD = b"POST / HTTP/1.1\r\nhost: gateway\r\n"
BODY = HEAD + b"content-length: 1000\r\n\r\n"


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@asynccontextmanager
async def listener(files: CertificateFiles) -> AsyncIterator[int]:
    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    server = HttpServer(app, listen="127.0.0.1:0", files=files, limits=SHORT)
    try:
        yield await server.start()
    finally:
        await server.stop()


async def left_unfinished(
    port: int, context: ssl.SSLContext | None, said: bytes, *, trickled: bytes
) -> bytes:
    """Send `said`, then `trickled` byte by byte for as long as the connection is there; what came back."""
    name = {} if context is None else {"server_hostname": "gateway.mesh.snavio.local"}
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, **name)
    heard = asyncio.create_task(reader.read())
    try:
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                writer.write(said)
                while not heard.done():
                    writer.write(trickled)
                    await writer.drain()
                    await asyncio.sleep(0.05)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                return await heard
            return b""
    finally:
        heard.cancel()
        writer.transport.abort()


@pytest.mark.parametrize(
    ("said", "trickled", "told"),
    [
        (b"", b"", b"408"),
        (HEAD, b"", b"408"),
        (HEAD + b"x-long: ", b"y", b"408"),
        (BODY, b"", b"408"),
        (BODY, b"z", b"408"),
        # A whole request: its answer came, and the idle connection ends too.
        (BODY + bytes(1000), b"", b"200"),
    ],
    ids=["nothing", "half a head", "a trickling head", "no body", "a trickling body", "no second request"],
)
async def test_an_unfinished_request_ends_its_connection_in_time(
    authority: Authority, said: bytes, trickled: bytes, told: bytes
) -> None:
    files = authority.mesh("gateway")
    context = ssl.create_default_context(cafile=str(files.ca))
    async with listener(files) as port:
        began = time.monotonic()
        heard = await left_unfinished(port, context, said, trickled=trickled)
        # Not at once, either: a client that is only slow has the time that the limits say.
        assert time.monotonic() - began >= SHORT.body_s
    assert heard.startswith(b"HTTP/1.1 " + told), heard


async def test_a_handshake_that_does_not_begin_ends_and_lets_the_next_client_in(authority: Authority) -> None:
    files = authority.mesh("gateway")
    context = ssl.create_default_context(cafile=str(files.ca))
    async with listener(files) as port:
        silent = [
            asyncio.create_task(left_unfinished(port, None, b"", trickled=b""))
            for _ in range(3 * SHORT.connections_per_address)
        ]
        done = await left_unfinished(port, context, BODY + bytes(1000), trickled=b"")
        assert done.startswith(b"HTTP/1.1 200")
        assert await asyncio.gather(*silent) == [b""] * len(silent)
