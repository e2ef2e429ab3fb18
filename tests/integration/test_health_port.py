"""The health port of a service: what a probe and a scraper ask, and what strangers cannot do to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.errors import StateError
from snavio.host.health_port import HealthPort
from snavio.host.introspection import Introspection
from snavio.host.small_http import MOST_CONNECTIONS, MOST_HEAD_BYTES, Answer, Connections, Request
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.credentials import CertificateFiles
from tests.support.pki import Authority

SECONDS = 30


class Port:
    """A health port, what it is told, and a client without manners."""

    def __init__(self, port: HealthPort, ready: dict[str, bool]) -> None:
        self.port = port
        self.ready = ready

    async def ask(
        self, path: str, *, method: str = "GET", host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> tuple[int, dict[str, str], str]:
        return await self.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), tls=tls)

    async def send(
        self, sent: bytes, *, tls: ssl.SSLContext | None = None
    ) -> tuple[int, dict[str, str], str]:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port.port, ssl=tls, server_hostname="" if tls else None
            )
            writer.write(sent)
            answer = await reader.read()
            writer.close()
        head, _, body = answer.decode().partition("\r\n\r\n")
        line, *fields = head.split("\r\n")
        headers = dict(each.split(": ", 1) for each in fields)
        return int(line.split()[1]), headers, body


@asynccontextmanager
async def health_port(
    files: CertificateFiles, *, address: str = "127.0.0.1:0", chosen: bool = True
) -> AsyncIterator[Port]:
    clock, ready = SystemClock(), {"": True, "writes": True, "reads": True}
    shown = Introspection("mailbox", clock=clock)
    shown.series("dlq_depth", lambda: [(("acme/bot",), 3)])
    port = HealthPort(
        address,
        chosen=chosen,
        introspection=shown,
        readiness=lambda: ready,
        files=files,
        gate=CertificateGate(clock=clock),
        trust_domain=DEFAULT_TRUST_DOMAIN,
        clock=clock,
    )
    await port.start()
    try:
        yield Port(port, ready)
    finally:
        await port.stop()


@pytest.fixture
def files(authority: Authority) -> CertificateFiles:
    return authority.mesh("mailbox")


async def test_a_probe_is_answered_without_a_certificate(files: CertificateFiles) -> None:
    async with health_port(files) as port:
        for path in ("/healthz", "/livez"):
            assert await port.ask(path) == (200, *(await port.ask(path))[1:])
            assert (await port.ask(path))[2] == "ok\n"
        status, headers, body = await port.ask("/readyz?verbose")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert body == '{"service":"mailbox","ready":true,"parts":{"writes":true,"reads":true}}\n'


async def test_writes_that_are_refused_leave_reads_ready(files: CertificateFiles) -> None:
    async with health_port(files) as port:
        port.ready["writes"] = False
        told = {path: (await port.ask(path))[0] for path in ("/readyz", "/readyz/writes", "/readyz/reads")}
        assert told == {"/readyz": 200, "/readyz/writes": 503, "/readyz/reads": 200}
        port.ready[""] = False
        assert (await port.ask("/readyz"))[0] == 503
        assert (await port.ask("/livez"))[0] == 200
        assert (await port.ask("/readyz/nothing"))[0] == 404


async def test_only_get_of_what_is_there_is_answered(files: CertificateFiles) -> None:
    async with health_port(files) as port:
        assert (await port.ask("/"))[0] == 404
        for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"):
            status, headers, _ = await port.ask("/livez", method=method)
            assert (status, headers["Allow"]) == (405, "GET")
        for sent in (
            b"GET /livez HTTP/2\r\n\r\n",
            b"get /livez HTTP/1.1\r\n\r\n",
            b"GET http://else/livez HTTP/1.1\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nBad Header: x\r\n\r\n",
            b"GET /livez HTTP/1.1\r\n folded: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
            b"\r\n\r\n",
        ):
            assert (await port.send(sent))[0] == 400, sent


async def test_a_head_that_is_too_large_is_refused_before_it_ends(files: CertificateFiles) -> None:
    async with health_port(files) as port:
        assert (await port.send(b"GET /livez HTTP/1.1\r\nX: " + b"a" * MOST_HEAD_BYTES))[0] == 431
        assert (await port.ask("/livez"))[0] == 200


async def test_metrics_are_text_and_name_the_service(files: CertificateFiles) -> None:
    async with health_port(files) as port:
        status, headers, body = await port.ask("/metrics")
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'dlq_depth{topic="acme/bot"} 3\n' in body
        assert 'snavio_build_info{service="mailbox",instance="mailbox-0"' in body
        assert 'snavio_ready{part="writes"} 1\n' in body
        _, _, body = await port.ask("/metrics")
        assert 'snavio_scrapes_total{answer="metrics-200"} 1\n' in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:7466", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("", 200)),
        *(("evil.example", 403), ("evil.example:7466", 403), ("localhost.evil.example", 403)),
    ],
)
async def test_a_page_that_was_led_to_loopback_reads_no_metrics(
    files: CertificateFiles, host: str, status: int
) -> None:
    async with health_port(files) as port:
        assert (await port.ask("/metrics", host=host))[0] == status


async def test_beyond_loopback_metrics_want_an_operator_or_a_scraper(
    authority: Authority, files: CertificateFiles
) -> None:
    def client(identity: Identity | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(files.ca))
        context.check_hostname = False
        if identity is not None:
            own = authority.leaf(identity)
            context.load_cert_chain(own.certificate, own.private_key)
        return context

    def of(kind: IdentityKind, name: str, tenant: str = "") -> Identity:
        return Identity(DEFAULT_TRUST_DOMAIN, kind, name, tenant)

    async with health_port(files, address="0.0.0.0:0") as port:
        nobody = client(None)
        assert (await port.ask("/livez", tls=nobody))[0] == 200
        assert (await port.ask("/readyz", tls=nobody))[0] == 200
        told = {"nobody": (await port.ask("/metrics", tls=nobody))[0]}
        for identity in (
            of(IdentityKind.OPERATOR, "ada"),
            of(IdentityKind.JOB, "scraper"),
            of(IdentityKind.JOB, "spark"),
            of(IdentityKind.SERVICE, "billing", "acme"),
            of(IdentityKind.PRINCIPAL, "ci", "acme"),
            of(IdentityKind.MESH, "relay"),
        ):
            told[identity.name] = (await port.ask("/metrics", tls=client(identity)))[0]
        assert told == {
            "nobody": 401,
            "ada": 200,
            "scraper": 200,
            "spark": 403,
            "billing": 403,
            "ci": 403,
            "relay": 403,
        }
        with pytest.raises((ConnectionError, ssl.SSLError, IndexError)):
            await port.ask("/livez")


async def test_an_address_that_was_chosen_and_is_taken_ends_the_start(files: CertificateFiles) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(StateError, match="Cannot listen on"):
            async with health_port(files, address=address):
                pass
        async with health_port(files, address=address, chosen=False) as port:
            assert port.port.port != other.getsockname()[1]
            assert (await port.ask("/livez"))[0] == 200


@asynccontextmanager
async def small(connections: Connections) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(connections.protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.close()


async def ok(_request: Request) -> Answer:
    from http import HTTPStatus

    return Answer(HTTPStatus.OK, b"x" * 100)


async def test_idle_connections_give_way_to_a_probe_and_end_by_themselves() -> None:
    connections = Connections(ok, frozenset(), most=4, head_s=2.0)
    async with small(connections) as port, asyncio.timeout(SECONDS):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for _, writer in idle:
            writer.write(b"GET /")
        while len(connections.open) < 4:
            await asyncio.sleep(0.01)
        assert len(connections.open) == 4
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"x" * 100)
        for reader, _ in idle:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert not connections.open


async def test_a_handler_or_a_reader_that_hangs_is_cut_off() -> None:
    async def hangs(_request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    connections = Connections(hangs, frozenset(), most=4, answer_s=0.2)
    async with small(connections) as port, asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        while connections.open:
            await asyncio.sleep(0.01)


def strangers_context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.check_hostname = False
    return context


async def test_strangers_that_took_their_answer_and_stay_keep_no_probe_out(files: CertificateFiles) -> None:
    context = strangers_context(files)

    def stays(port: int) -> ssl.SSLSocket:
        stranger = context.wrap_socket(socket.create_connection(("127.0.0.1", port), SECONDS))
        stranger.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        # Its answer is there; it says no goodbye, so TLS waits for it.
        stranger.recv(4096)
        return stranger

    async with health_port(files, address="0.0.0.0:0") as port:
        strangers = [await asyncio.to_thread(stays, port.port.port) for _ in range(MOST_CONNECTIONS)]
        try:
            assert (await port.ask("/livez", tls=context))[0] == 200
        finally:
            for stranger in strangers:
                stranger.close()


async def test_strangers_that_never_begin_tls_take_no_more_than_the_places(files: CertificateFiles) -> None:
    context, many = strangers_context(files), 4 * MOST_CONNECTIONS
    async with health_port(files, address="0.0.0.0:0") as port:
        before = len(list(Path("/proc/self/fd").iterdir()))
        place = ("127.0.0.1", port.port.port)
        strangers = [await asyncio.to_thread(socket.create_connection, place, SECONDS) for _ in range(many)]
        try:
            assert (await port.ask("/livez", tls=context))[0] == 200
            assert len(list(Path("/proc/self/fd").iterdir())) - before <= many + MOST_CONNECTIONS + 8
        finally:
            for stranger in strangers:
                stranger.close()
