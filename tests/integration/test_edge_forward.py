"""`auth forward`: another service is asked, and whatever it does not say clearly lets nobody in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.support.edge import API, local_edge


@dataclass
class AuthService:
    """Answers as a test sets it, and keeps what it was asked."""

    port: int = 0
    status: int = 204
    hang: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@asynccontextmanager
async def auth_service() -> AsyncIterator[AuthService]:
    service = AuthService()

    async def answer(request: web.Request) -> web.Response:
        service.asked.append(
            ({name.lower(): value for name, value in request.headers.items()}, await request.read())
        )
        if service.hang:
            await asyncio.sleep(3600)
        return web.Response(status=service.status, headers=service.headers, body=b"z" * 100_000)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.port = runner.addresses[0][1]
    try:
        yield service
    finally:
        await runner.cleanup()


def text(port: int, more: str = "") -> str:
    asked = f'auth forward "http://127.0.0.1:{port}/check" {{ timeout 500ms; body_limit 10b; {more} }}'
    return API + f"/f {{ {asked}\n pull {{ path /f }} }}\n"


async def test_what_the_service_says_is_what_happens(tmp_path: Path) -> None:
    async with (
        auth_service() as service,
        local_edge(tmp_path, text(service.port, "copy_headers X-User")) as edge,
    ):
        service.headers = {"X-User": "ann", "X-Other": "no"}
        reply = await edge.post(
            "/f/x?a=1", b"0123456789abcdef", {"Authorization": "Bearer t", "X-User": "forged"}
        )
        assert reply.said == (202, "queued")
        ((headers, body),) = service.asked
        assert body == b"0123456789"
        assert (headers["x-forwarded-method"], headers["x-forwarded-uri"]) == ("POST", "/f/x?a=1")
        assert (
            headers["authorization"] == "Bearer t"
            and headers["x-request-id"] == reply.headers["X-Request-ID"]
        )
        (stored,) = edge.mailbox.everything
        assert [each.value for each in stored.header if each.name == "x-user"] == [b"ann"]
        for status, said in {401: 401, 403: 403, 302: 503, 404: 503, 500: 503, 429: 503}.items():
            service.status = status
            service.headers = {"Location": "http://127.0.0.1:1/"}
            reply = await edge.post("/f")
            assert reply.status == said
            assert (said == 503) == ("Retry-After" in reply.headers)
        assert len(edge.mailbox.everything) == 1


async def test_a_service_that_is_away_or_silent_lets_nobody_in(tmp_path: Path) -> None:
    async with auth_service() as service, local_edge(tmp_path, text(service.port)) as edge:
        service.hang = True
        reply = await edge.post("/f")
        assert reply.said == (503, "auth-unavailable") and int(reply.headers["Retry-After"]) >= 1
    async with local_edge(tmp_path, text(service.port)) as edge:
        assert (await edge.post("/f")).said == (503, "auth-unavailable")
        assert edge.mailbox.everything == []
