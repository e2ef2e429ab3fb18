"""The Pull API over real HTTP, in front of a real mailbox."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from uvicorn.server import ServerState

from services.gateway.pull import waiting
from services.gateway.pull.app import PullApp, PullRecord
from services.gateway.pull.endpoints import PullEndpoint, PullLimits, PullTable
from services.gateway.pull.leases import PullLeases
from snavio.edge.lease_ids import LeaseIds
from snavio.edge.references import SecretReference, SecretScheme
from snavio.edge.topics import HTTP_CONTENT_TYPE, route_topic
from snavio.host.shares import ShareLimit, Shares
from snavio.http.limits import HttpLimits
from snavio.http.protocol import protocols
from snavio.sdk.group_mailer import GroupMailer, MessageGroup
from snavio.sdk.mailer import NewMessage
from snavio.v1.edge_pb2 import HttpEnvelope, HttpHeader
from tests.support.mailbox import MailboxFixture

KEY = b"k" * 32
LIMITS = HttpLimits(head_s=30, body_s=30, idle_s=60, connections=4096, connections_per_address=4096)


def token(name: str) -> SecretReference:
    return SecretReference(SecretScheme.RAW, name)


def table(
    *routes: str, limits: PullLimits | None = None, tokens: Sequence[str] = ("t",), **own: str
) -> PullTable:
    """Endpoints `/pull/<name>` of routes `/hooks/<name>`; `own` are tokens by name."""
    endpoints = {}
    for name in routes:
        path, route = f"/pull/{name}", f"/hooks/{name}"
        words = (own[name],) if name in own else tokens
        endpoints[path] = PullEndpoint(path, route, route_topic("acme", route), tuple(map(token, words)))
    return PullTable(endpoints, limits or PullLimits(), tuple(map(token, tokens)))


def bearer(headers: Sequence[tuple[bytes, bytes]], references: Sequence[SecretReference]) -> bool:
    shown = dict(headers).get(b"authorization", b"").removeprefix(b"Bearer ").decode()
    return shown in {reference.name for reference in references}


@dataclass
class PullFixture:
    """A gateway's Pull API."""

    office: MailboxFixture
    app: PullApp
    leases: PullLeases
    port: int
    records: list[PullRecord] = field(default_factory=list)
    session: aiohttp.ClientSession = field(init=False)

    async def ask(
        self, operation: str, body: Any = None, *, show: str = "t", raw: bytes | None = None
    ) -> Any:
        """Status, headers and document of one request."""
        given: dict[str, Any] = (
            {"data": raw} if raw is not None else {"json": body if body is not None else {}}
        )
        async with self.session.post(
            f"http://127.0.0.1:{self.port}/pull/{operation}",
            headers={"Authorization": f"Bearer {show}"},
            **given,
        ) as answer:
            text = await answer.read()
            return answer.status, answer.headers, (await answer.json() if text else None)

    async def dequeue(self, name: str = "a", *, show: str = "t", **asked: Any) -> list[dict[str, Any]]:
        status, _, document = await self.ask(f"{name}/dequeue", asked, show=show)
        assert status == 200, document
        items: list[dict[str, Any]] = document["items"]
        return items

    async def send(self, *bodies: bytes, name: str = "a") -> None:
        """Store requests as ingress does."""
        mailer = GroupMailer.over(self.office.consumer(name="edge").channel)
        topic = route_topic("acme", f"/hooks/{name}").topic
        messages = (NewMessage(stored(body), content_type=HTTP_CONTENT_TYPE) for body in bodies)
        await asyncio.gather(*(mailer.send(MessageGroup.of((topic,), message)) for message in messages))


def stored(body: bytes) -> bytes:
    envelope = HttpEnvelope(
        method="POST",
        route="/hooks/a",
        received_unix_ns=1_700_000_000_500_000_000,
        header=[HttpHeader(name="x-github-event", value=b"push"), HttpHeader(name="x-two", value=b"1")],
        body=body,
    )
    envelope.header.add(name="x-two", value=b"2")
    serialised: bytes = envelope.SerializeToString()
    return serialised


def bodies(items: Sequence[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(item["payload_b64"]) for item in items]


@asynccontextmanager
async def pulling(
    office: MailboxFixture,
    endpoints: PullTable,
    *,
    key: bytes = KEY,
    authorise: Callable[[Any, Any], bool] = bearer,
    most_waiting: int = 4096,
) -> AsyncIterator[PullFixture]:
    # A gateway that stops waits for the end of a slice.
    slice_s, waiting.SLICE_SECONDS = waiting.SLICE_SECONDS, 0.3
    leases = PullLeases(office.consumer(name="edge").channel, LeaseIds(key), office.clock)
    records: list[PullRecord] = []
    app = PullApp(
        leases, authorise=authorise, clock=office.clock, finished=records.append, most_waiting=most_waiting
    )
    app.table = endpoints
    state = ServerState()
    factory = protocols(
        app, state=state, limits=LIMITS, connections=Shares("connections", ShareLimit(4096, 4096))
    )
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    fixture = PullFixture(office, app, leases, server.sockets[0].getsockname()[1], records)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as fixture.session:
        try:
            yield fixture
        finally:
            app.stop()
            await leases.close()
            waiting.SLICE_SECONDS = slice_s
            server.close()
            for connection in list(state.connections):
                connection.transport.abort()
