"""Outgoing requests against real HTTPS servers that behave well, and badly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from snavio.egress.policy import EgressPolicy
from snavio.egress.requests import Egress, EgressLimits
from snavio.egress.resolving import Lookup
from snavio.errors import NotAllowed, Saturated, SnavioError, Unavailable
from snavio.host.shares import HOLDER
from tests.support.webhook_server import HOST, Received, WebAuthority, WebhookServer, answering

LOOPBACK = EgressPolicy(allow=["127.0.0.1/32"])
SHORT = EgressLimits(connect_s=0.3, first_byte_s=0.3, total_s=0.6, max_body=1000)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> WebAuthority:
    return WebAuthority.make(tmp_path_factory.mktemp("web"))


class Names:
    """A name server that gives one answer after another; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def egress(
    web: WebAuthority | None,
    lookup: Lookup | None = None,
    *,
    policy: EgressPolicy = LOOPBACK,
    limits: EgressLimits | None = None,
) -> AsyncIterator[Egress]:
    async with Egress(
        policy,
        limits=limits,
        ca_file=None if web is None else web.ca_file,
        lookup=lookup or Names(["127.0.0.1"]),
    ) as made:
        yield made


async def refused(made: Egress, url: str) -> str:
    with pytest.raises(SnavioError) as error:
        await made.request("POST", url, body=b"{}")
    return error.value.reason


async def test_a_request_arrives_with_the_hosts_name_at_the_address_that_was_checked(
    web: WebAuthority,
) -> None:
    async with WebhookServer.running(web) as server, egress(web) as made:
        found = await made.request("POST", server.url, headers={"x-own": "1"}, body=b"hello")
    assert (found.status, found.body, found.truncated, found.address) == (204, b"", False, "127.0.0.1")
    (request,) = server.received
    assert request.headers["host"] == f"{HOST}:{server.port}"
    assert server.names == [HOST]
    assert (request.body, request.headers["x-own"], request.target) == (b"hello", "1", "/alerts")


async def test_a_connection_is_used_again_and_judged_again(web: WebAuthority) -> None:
    names = Names(["127.0.0.1"])
    async with WebhookServer.running(web) as server, egress(web, names) as made:
        for _ in range(3):
            found = await made.request("POST", server.url)
            assert found.address == "127.0.0.1"
    assert (server.connections, len(names.asked)) == (1, 1)


async def test_a_redirect_to_loopback_is_not_followed(web: WebAuthority) -> None:
    # The receiver is at 127.0.0.2, which is permitted; 127.0.0.1 is what it must not reach through us.
    async with (
        WebhookServer.running(web) as victim,
        WebhookServer.running(web, address="127.0.0.2") as server,
    ):
        server.answer = answering(
            b"HTTP/1.1 307 Temporary Redirect\r\nlocation: https://127.0.0.1:%d/\r\ncontent-length: 0\r\n\r\n"
            % victim.port
        )
        allow = ["127.0.0.2/32"]
        names = Names(["127.0.0.2"])
        async with egress(web, names, policy=EgressPolicy(allow=allow)) as made:
            assert (await made.request("POST", server.url)).status == 307
        async with egress(web, names, policy=EgressPolicy(allow=allow, redirects=True)) as made:
            assert await refused(made, server.url) == "egress-not-allowed"
        async with egress(web, names, policy=EgressPolicy(allow=[*allow, HOST], redirects=True)) as made:
            server.answer = answering(
                b"HTTP/1.1 302 Found\r\nlocation: http://%s:%d/\r\ncontent-length: 0\r\n\r\n"
                % (HOST.encode(), victim.port)
            )
            assert await refused(made, server.url) == "egress-scheme"
        assert (victim.connections, len(server.received)) == (0, 3)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "10.0.0.1", "::1", "0.0.0.0"]
)
async def test_a_name_that_leads_inward_is_refused_before_anything_is_sent(
    web: WebAuthority, address: str
) -> None:
    async with (
        WebhookServer.running(web) as server,
        egress(web, Names([address]), policy=EgressPolicy()) as made,
    ):
        assert await refused(made, server.url) == "egress-address"
        assert server.connections == 0


async def test_a_literal_address_is_checked_too(web: WebAuthority) -> None:
    async with WebhookServer.running(web) as server, egress(web, policy=EgressPolicy()) as made:
        assert await refused(made, f"https://127.0.0.1:{server.port}/") == "egress-address"
        assert await refused(made, f"https://127.1:{server.port}/") in {"egress-address", "egress-url"}
        assert await refused(made, f"https://2130706433:{server.port}/") in {"egress-address", "egress-url"}
        assert await refused(made, f"https://0x7f000001:{server.port}/") == "egress-address"
        assert server.connections == 0


async def test_an_answer_that_changes_between_look_up_and_connection_changes_nothing(
    web: WebAuthority,
) -> None:
    # Looked up once: what was checked is dialled, and the second answer is never asked for.
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with WebhookServer.running(web) as server, egress(web, names) as made:
        assert (await made.request("POST", server.url)).address == "127.0.0.1"
        assert names.asked == [HOST]
        # The next connection asks again, and is refused by the answer that holds then.
        server.answer = answering(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await made.request("POST", server.url)
        assert await refused(made, server.url) == "egress-not-allowed"
        assert names.asked == [HOST, HOST]


async def test_a_connection_whose_peer_is_another_is_closed_before_the_request(web: WebAuthority) -> None:
    policy = EgressPolicy(allow=["127.0.0.1/32"])
    async with WebhookServer.running(web) as server, egress(web, policy=policy) as made:
        await made.request("POST", server.url)
        # As a network that turns packets aside would have it: the pool holds a peer that the policy refuses.
        object.__setattr__(policy, "_allow", EgressPolicy(allow=["192.0.2.0/24"])._allow)
        assert await refused(made, server.url) == "egress-not-allowed"
        assert len(server.received) == 1


async def test_a_body_that_never_ends_is_cut_at_its_bound(web: WebAuthority) -> None:
    async def endless(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()

    async with WebhookServer.running(web, answer=endless) as server, egress(web) as made:
        found = await made.request("POST", server.url)
    assert (found.status, found.truncated, len(found.body)) == (200, True, made.limits.max_body)


async def test_a_body_that_trickles_ends_at_the_deadline_and_its_status_counts(web: WebAuthority) -> None:
    async def trickling(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with WebhookServer.running(web, answer=trickling) as server, egress(web, limits=SHORT) as made:
        found = await made.request("POST", server.url)
    assert (found.status, found.truncated) == (200, True)


async def test_a_head_that_trickles_is_given_up(web: WebAuthority) -> None:
    async def trickling(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-a: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with WebhookServer.running(web, answer=trickling) as server, egress(web, limits=SHORT) as made:
        assert await refused(made, server.url) == "egress-timeout"


async def test_a_server_that_never_speaks_tls_is_given_up() -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server, egress(None, limits=SHORT) as made:
        port = server.sockets[0].getsockname()[1]
        assert await refused(made, f"https://{HOST}:{port}/") == "egress-connect-timeout"
        over.set()


async def test_a_certificate_that_nobody_vouches_for_is_refused(web: WebAuthority, tmp_path: Path) -> None:
    other = WebAuthority.make(tmp_path / "other")
    async with WebhookServer.running(web) as server:
        for url, authority in (
            (server.url, other),
            (f"https://other.example:{server.port}/", web),
        ):
            async with egress(authority) as made:
                assert await refused(made, url) == "egress-tls"
        assert server.received == []


async def test_what_is_away_has_a_reason_of_its_own(web: WebAuthority) -> None:
    def unknown(host: str) -> Sequence[str]:
        raise OSError(f"no such name: {host}")

    async with WebhookServer.running(web) as server:
        url = server.url
    async with egress(web) as made:
        assert await refused(made, url) == "egress-connect"
    async with egress(web, unknown) as made:
        assert await refused(made, url) == "egress-dns"
    async with (
        WebhookServer.running(web, answer=answering(b"no http at all\r\n\r\n")) as server,
        egress(web) as made,
    ):
        assert await refused(made, server.url) == "egress-connection-lost"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_a_slow_name_server_of_one_tenant_leaves_look_ups_to_the_others(
    web: WebAuthority, gate: threading.Event
) -> None:
    def lookup(host: str) -> Sequence[str]:
        if host.startswith("slow"):
            gate.wait(60)
        return ["127.0.0.1"]

    limits = EgressLimits(connect_s=0.05, first_byte_s=20, total_s=20)
    async with WebhookServer.running(web) as server, egress(web, lookup) as made:

        async def flood() -> list[str]:
            HOLDER.set("mallory")
            share = made.resolver.shares.limit.per_tenant
            reasons = []
            for number in range(share + 3):
                with pytest.raises((Unavailable, Saturated, NotAllowed)) as error:
                    await made.request("POST", f"https://slow{number}.example/", limits=limits)
                reasons.append(error.value.reason)
            return reasons

        reasons = await asyncio.create_task(flood())
        assert set(reasons) == {"egress-connect-timeout", "tenant-share"}
        assert reasons.count("tenant-share") == 3
        HOLDER.set("acme")
        assert (await made.request("POST", server.url)).status == 204
