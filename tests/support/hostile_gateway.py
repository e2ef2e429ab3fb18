"""A gateway that answers as a test scripts it: it lies, stalls, ends and forgets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from snavio.launch.free_ports import free_ports
from snavio.rpc.credentials import CertificateFiles
from tests.support.envelopes import EnvelopeMaker

WITHIN_S = 30.0
Script = Callable[["HostileGateway", web.Request], Awaitable[web.StreamResponse]]


@dataclass
class HostileGateway:
    """Answers each request for events by the next script; the last one answers all that follow."""

    maker: EnvelopeMaker
    scripts: list[Script] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)
    state: bytes = b""
    address: str = ""

    async def events(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("last-event-id"))
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return await script(self, request)

    async def served_state(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.state, content_type="application/json")


async def respond(request: web.Request, *frames: bytes, stays: bool = False) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for each in frames:
        await response.write(each)
    if stays:
        await asyncio.sleep(WITHIN_S)
    return response


def framed(body: bytes, *, event_id: str | None = None, seq: int = 0) -> bytes:
    return b"id: %s\ndata: %s\n\n" % ((event_id or str(seq)).encode(), body)


def serve(*bodies: tuple[int, bytes], stays: bool = True) -> Script:
    async def script(_gateway: HostileGateway, request: web.Request) -> web.StreamResponse:
        return await respond(request, *(framed(body, seq=seq) for seq, body in bodies), stays=stays)

    return script


def refuse(status: int, reason: str, **members: Any) -> Script:
    async def script(_gateway: HostileGateway, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": reason, "detail": "No.", **members}, status=status)

    return script


@asynccontextmanager
async def hostile_gateway(files: CertificateFiles) -> AsyncIterator[HostileGateway]:
    """One that has the gateway's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.private_key)
    context.verify_mode = ssl.CERT_REQUIRED
    hostile = HostileGateway(EnvelopeMaker())
    app = web.Application()
    app.router.add_get("/v1/tenants/acme/events", hostile.events)
    app.router.add_get("/v1/tenants/acme/state", hostile.served_state)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    hostile.address = f"127.0.0.1:{port}"
    yield hostile
    await runner.cleanup()
