"""Requests to the gateway with any certificate or none, as a client would make them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

SERVER_NAME = "gateway.mesh.snavio.local"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def reason(self) -> str:
        """The reason of a problem, after a look at its form."""
        problem = self.document
        assert self.headers["content-type"] == "application/problem+json"
        assert problem["status"] == self.status and problem["detail"] and problem["title"]
        return str(problem["reason"])


def context(ca: Path, folder: Path | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(ca))
    if folder is not None:
        made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


class HttpsClient:
    """A client of one gateway; `folder` holds its certificate."""

    def __init__(self, address: str, *, ca: Path, folder: Path | None = None) -> None:
        self.address = address
        self._ssl = context(ca, folder)

    @asynccontextmanager
    async def opened(
        self, path: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        from multidict import CIMultiDict

        timeout = aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._ssl), timeout=timeout) as session,
            session.get(
                f"https://{self.address}{path}", headers=CIMultiDict(headers), server_hostname=SERVER_NAME
            ) as response,
        ):
            yield response

    async def get(self, path: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> Answer:
        """The whole answer; of a stream, its head alone."""
        async with self.opened(path, headers) as response:
            streams = response.status == 200 and response.content_type == "text/event-stream"
            body = b"" if streams else await response.read()
            return Answer(response.status, dict(response.headers.items()) | _lower(response), body)

    async def raw(self, request: bytes, *, within_s: float = 30.0) -> bytes:
        """All that a connection answers to these bytes, until it is closed."""
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=self._ssl, server_hostname=SERVER_NAME
            )
            try:
                writer.write(request)
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
