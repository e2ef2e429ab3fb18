"""Connections that mean no good: slow, endless, ambiguous. Each ends by itself, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from pathlib import Path

import aiohttp
import pytest

from services.gateway.edge.listeners import LIMITS
from snavio.edge.plan import ClientCertificates, ListenerTls
from snavio.host.shares import ShareLimit
from snavio.rpc.credentials import CertificateFiles
from tests.support.edge import API, LocalEdge, local_edge
from tests.support.pki import Authority

OPEN = API + "/open { max_body 64kb\n pull { path /open } }\n"
# The deadlines of the product, short enough to be waited for.
HASTY = dataclasses.replace(LIMITS, head_s=0.5, body_s=0.5, idle_s=2.0)
HEAD = b"POST /open HTTP/1.1\r\nhost: edge.example\r\n"


async def serves(edge: LocalEdge) -> bool:
    return (await edge.post("/open")).status == 202


async def dripped(edge: LocalEdge, first: bytes, drop: bytes) -> bytes:
    """The answer to a client that sends a little now and then, for ever."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(first)

    async def drip() -> None:
        while True:
            await asyncio.sleep(0.05)
            writer.write(drop)
            await writer.drain()

    dripping = asyncio.create_task(drip())
    try:
        async with asyncio.timeout(30):
            return await reader.read(-1)
    except ConnectionResetError:
        return b"reset"
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()


async def test_a_head_that_drips_ends_at_its_deadline_however_often_something_comes(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN, limits=HASTY) as edge:
        assert (await dripped(edge, HEAD, b"x: y\r\n")).startswith((b"HTTP/1.1 408 ", b"reset"))
        assert (408, "late") in edge.turned_away
        assert await serves(edge)


async def test_a_body_that_drips_ends_at_its_deadline(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN, limits=HASTY) as edge:
        said = await dripped(edge, HEAD + b"content-length: 60000\r\n\r\n", b"x")
        assert said.startswith((b"HTTP/1.1 408 ", b"reset"))
        chunked = await dripped(edge, HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n")
        assert chunked.startswith((b"HTTP/1.1 408 ", b"reset"))
        assert await serves(edge)
        assert len(edge.mailbox.everything) == 1


async def test_a_connection_on_which_nothing_comes_ends(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN, limits=HASTY) as edge:
        await edge.raw(b"")
        assert await serves(edge)


async def test_a_million_headers_are_refused_while_they_come(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(HEAD)
        sent = 0
        try:
            async with asyncio.timeout(30):
                while sent < 1_000_000 and not reader.at_eof():
                    writer.write(b"a: b\r\n" * 1000)
                    sent += 1000
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        assert sent < 1_000_000
        assert (431, "head-too-large") in edge.turned_away
        assert await serves(edge)


async def test_one_header_of_twenty_megabytes_is_refused_while_it_comes(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(HEAD + b"x-long: ")
        with pytest.raises((ConnectionError, EOFError)):
            async with asyncio.timeout(30):
                for _ in range(320):
                    writer.write(b"y" * 65_536)
                    await writer.drain()
                    if reader.at_eof():
                        raise EOFError
        assert (431, "head-too-large") in edge.turned_away
        assert await serves(edge)


async def test_chunks_without_end_are_refused_at_the_size_of_a_body(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        sent = 0
        try:
            async with asyncio.timeout(30):
                while sent < 64 << 20 and not reader.at_eof():
                    writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                    sent += 4096
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        assert sent < 64 << 20
        assert edge.mailbox.everything == []
        assert await serves(edge)


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 3\r\n",
        b"content-length: 3\r\ncontent-length: 4\r\n",
        b"content-length: 3\r\ncontent-length: 3\r\n",
        b"content-length: +3\r\n",
        b"content-length: 3, 3\r\n",
        b"content-length: 0x3\r\n",
        b"content-length: -1\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"transfer-encoding: identity\r\n",
        b"transfer-encoding : chunked\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        b"x-fold: a\r\n b\r\n",
        b"x-fold: a\r\n\tb\r\n",
        b"x-bare: a\rb\r\n",
        b"x-nul: a\x00b\r\n",
        b"x name: a\r\n",
        b": a\r\n",
        b"host: other.example\r\n",
    ],
)
async def test_a_head_that_two_programs_read_differently_is_refused_and_its_connection_ends(
    tmp_path: Path, head: bytes
) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        smuggled = (
            b"3\r\nabc\r\n0\r\n\r\nPOST /open HTTP/1.1\r\nhost: edge.example\r\ncontent-length: 1\r\n\r\nx"
        )
        said = await edge.raw(HEAD + head + b"\r\n" + smuggled)
        assert said.startswith(b"HTTP/1.1 400 "), said[:80]
        assert said.count(b"HTTP/1.1") == 1
        assert edge.mailbox.everything == []


@pytest.mark.parametrize(
    "line",
    [
        b"POST http://other.example/open HTTP/1.1\r\nhost: edge.example\r\n",
        b"CONNECT edge.example:80 HTTP/1.1\r\nhost: edge.example\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: edge.example\r\n",
        b"POST /open HTTP/1.1\r\n",
        b"POST /open HTTP/3.7\r\nhost: edge.example\r\n",
        b"GET\x00 /open HTTP/1.1\r\nhost: edge.example\r\n",
        b"PRI * HTTP/2.0\r\n",
    ],
)
async def test_a_request_line_in_another_form_is_refused(tmp_path: Path, line: bytes) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        said = await edge.raw(line + b"content-length: 1\r\n\r\nx")
        assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 ")) or said == b"", said[:80]
        assert edge.mailbox.everything == []


async def test_a_client_that_leaves_before_its_body_is_whole_stores_nothing(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        _, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(HEAD + b"content-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert await serves(edge)
        assert len(edge.mailbox.everything) == 1


async def test_bodies_on_their_way_in_have_a_bound_together_and_give_their_room_back(tmp_path: Path) -> None:
    text = API + "/open { max_body 2mb\n pull { path /open } }\n"
    async with local_edge(tmp_path, text) as edge:
        edge.ingress.bodies.limit = ShareLimit(300_000, 200_000)
        writers = []
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", edge.port)
            writer.write(HEAD + b"content-length: 1000000\r\n\r\n" + b"x" * 90_000)
            await writer.drain()
            writers.append(writer)
        async with asyncio.timeout(30):
            while edge.metrics.rejected == 0:
                await asyncio.sleep(0.01)
        assert edge.ingress.bodies.used <= 200_000
        for writer in writers:
            writer.close()
        async with asyncio.timeout(30):
            while edge.ingress.bodies.used:
                await asyncio.sleep(0.01)
        assert (await edge.post("/open", b"x" * 150_000)).status == 202


# -- TLS --------------------------------------------------------------------------------------------------


MTLS = API + '/m { auth mtls "spiffe://snavio.local/tenant/acme/service/ci"\n pull { path /m } }\n'


def tls_of(authority: Authority) -> ListenerTls:
    server = authority.mesh("gateway")
    return ListenerTls(
        str(server.certificate), str(server.private_key), str(server.ca), ClientCertificates.VERIFY_IF_GIVEN
    )


def shown(files: CertificateFiles | None, ca: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca.ca))
    context.check_hostname = False
    if files is not None:
        context.load_cert_chain(files.certificate, files.private_key)
    return context


async def test_a_client_certificate_lets_in_whom_the_route_names_and_nobody_else(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    right, wrong = ours.service("acme", "ci"), ours.service("acme", "web")
    two = ours.with_spiffe_ids(
        "spiffe://snavio.local/tenant/acme/service/ci", "spiffe://snavio.local/operator/root"
    )
    forged = others.service("acme", "ci")
    server = ours.mesh("gateway")

    async with local_edge(tmp_path, MTLS, tls=tls_of(ours)) as edge:

        async def asked(files: CertificateFiles | None) -> int | str:
            connector = aiohttp.TCPConnector(ssl=shown(files, server))
            async with aiohttp.ClientSession(connector=connector) as session:
                try:
                    async with session.post(f"https://127.0.0.1:{edge.port}/m", data=b"x") as answer:
                        return answer.status
                except (aiohttp.ClientError, ssl.SSLError):
                    return "no handshake"

        assert await asked(right) == 202
        assert await asked(wrong) == 401
        assert await asked(None) == 401
        assert await asked(two) == 401
        assert await asked(forged) == "no handshake"
        (stored,) = edge.mailbox.everything
        assert stored.caller == "spiffe://snavio.local/tenant/acme/service/ci"


async def test_a_certificate_file_that_is_replaced_is_shown_to_new_connections(tmp_path: Path) -> None:
    ours = Authority(tmp_path / "ca")
    files = ours.mesh("gateway")
    async with local_edge(tmp_path, API + "/open { pull { path /o } }\n", tls=tls_of(ours)) as edge:

        async def serial() -> str:
            _, writer = await asyncio.open_connection("127.0.0.1", edge.port, ssl=shown(None, files))
            found = writer.get_extra_info("ssl_object").getpeercert()
            writer.close()
            return str(found["serialNumber"])

        first = await serial()
        ours.mesh("gateway")
        async with asyncio.timeout(30):
            while await serial() == first:
                await asyncio.sleep(0.1)
