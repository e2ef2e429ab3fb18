"""A real HTTPS server that behaves as a receiver of webhooks does, or as badly as a test wants it to."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOST = "hooks.example"


@dataclass(frozen=True)
class WebAuthority:
    """A CA of the web, and one certificate of `HOST`, localhost and the loopback addresses."""

    ca_file: Path
    server: ssl.SSLContext

    @classmethod
    def make(cls, folder: Path) -> WebAuthority:
        now = datetime.now(UTC)
        ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web CA of a test")])

        def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
            return (
                x509.CertificateBuilder()
                .subject_name(subject)
                .issuer_name(ca_name)
                .public_key(public)
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - timedelta(hours=1))
                .not_valid_after(now + timedelta(days=2))
            )

        ca = (
            builder(ca_name, ca_key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        names: list[x509.GeneralName] = [x509.DNSName(HOST), x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "127.0.0.2", "::1")]
        leaf = (
            builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)]), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
            )
            .sign(ca_key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        ca_file, leaf_file, key_file = (folder / name for name in ("ca.pem", "leaf.pem", "key.pem"))
        ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        leaf_file.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(leaf_file, key_file)
        return cls(ca_file, server)


@dataclass
class Received:
    """One request."""

    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


async def _ok(_request: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def answering(text: bytes) -> Answer:
    """These bytes, whatever was asked."""

    async def answer(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(text)

    return answer


@dataclass
class WebhookServer:
    """One server; `answer` may be exchanged while it runs."""

    port: int = 0
    address: str = "127.0.0.1"
    answer: Answer = _ok
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    names: list[str | None] = field(default_factory=list)
    """Server names of the TLS handshakes."""

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}/alerts"

    @classmethod
    @asynccontextmanager
    async def running(
        cls, authority: WebAuthority | None, *, address: str = "127.0.0.1", answer: Answer = _ok
    ) -> AsyncIterator[WebhookServer]:
        self = cls(address=address, answer=answer)
        if authority is not None:
            authority.server.sni_callback = lambda _socket, name, _context: self.names.append(name)
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            self.connections += 1
            try:
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                    headers = {
                        name.lower(): value.strip()
                        for name, _, value in (line.partition(":") for line in head[1:] if line)
                    }
                    body = await reader.readexactly(int(headers.get("content-length", 0)))
                    request = Received(head[0].split(" ")[1], headers, body)
                    self.received.append(request)
                    await self.answer(request, writer)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(
            serve, address, 0, ssl=None if authority is None else authority.server
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
