"""One outgoing request: under a policy, within deadlines, with a bounded answer.

Never raises what aiohttp raises: NotAllowed and BadRequest say that it must not be asked, Unavailable that it did not
work this time. Their reasons are stable.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
from yarl import URL

from snavio.egress.connecting import DIALLED, CheckedConnector
from snavio.egress.policy import EgressPolicy
from snavio.egress.resolving import CheckedResolver, Lookup, system_lookup
from snavio.errors import BadRequest, SnavioError, Unavailable
from snavio.host.shares import Shares

MOST_REDIRECTS: Final = 5
CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Deadlines and bounds of one request."""

    connect_s: float = 5.0
    """Look-up, connection and TLS."""
    first_byte_s: float = 10.0
    """From the request's end to the end of the answer's head."""
    total_s: float = 15.0
    """The whole request with its answer's body."""
    max_body: int = 64 * 1024
    """Bytes of the answer that are read; the rest is dropped with the connection."""


@dataclass(frozen=True, slots=True)
class EgressResponse:
    """An answer. `truncated` when its body was longer, or slower, than the limits."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    address: str
    """The address that was dialled."""
    latency_ms: float


class Egress:
    """Outgoing requests of one process under one policy; a changed policy is another `Egress`."""

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        limits: EgressLimits | None = None,
        ca_file: Path | None = None,
        lookup: Lookup = system_lookup,
        connections: int = CONNECTIONS,
        shares: Shares | None = None,
    ) -> None:
        self.policy = policy
        self.limits = limits or EgressLimits()
        self.resolver = CheckedResolver(policy, lookup=lookup, shares=shares)
        self._ca_file = ca_file
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._counts: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def check(self, url: str) -> URL:
        """The parsed URL; BadRequest or NotAllowed for one that no look-up could make right. Asks nobody."""
        try:
            parsed = URL(url)
        except (ValueError, TypeError) as error:
            raise BadRequest(f"That is no URL: {error}.", reason="egress-url") from None
        self.policy.check_url(parsed)
        return parsed

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        limits: EgressLimits | None = None,
    ) -> EgressResponse:
        """Send it and read the answer, whatever its status."""
        limits = limits or self.limits
        try:
            response = await self._request(method, self.check(url), headers or {}, body, limits)
        except SnavioError as error:
            self._counts[error.reason] += 1
            raise
        self._counts["answered"] += 1
        return response

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def counters(self) -> dict[str, int]:
        """Requests by outcome."""
        return {f'egress_requests_total{{outcome="{name}"}}': count for name, count in self._counts.items()}

    async def _request(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes, limits: EgressLimits
    ) -> EgressResponse:
        began, host = time.monotonic(), url.raw_host
        ends = asyncio.get_running_loop().time() + limits.total_s
        DIALLED.set("")
        try:
            head = asyncio.timeout(min(limits.connect_s + limits.first_byte_s, limits.total_s))
            async with head:
                response = await self._opened().request(
                    method,
                    url,
                    data=body,
                    headers={"accept-encoding": "identity", "user-agent": "snavio", **headers},
                    allow_redirects=self.policy.redirects,
                    max_redirects=MOST_REDIRECTS,
                    timeout=aiohttp.ClientTimeout(
                        total=None, connect=limits.connect_s, sock_read=limits.total_s, ceil_threshold=1e9
                    ),
                )
        except SnavioError:
            raise
        except TimeoutError as error:
            if not DIALLED.get() or isinstance(error, aiohttp.ConnectionTimeoutError):
                raise Unavailable(
                    f"{host} did not accept a connection in time.", reason="egress-connect-timeout"
                ) from None
            raise Unavailable(f"{host} did not answer in time.", reason="egress-timeout") from None
        except aiohttp.ClientError as error:
            raise _failure(host, error) from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"{host} cannot be asked: {error}.", reason="egress-connect") from None
        try:
            read, whole = await _bounded(response, limits.max_body, ends)
        finally:
            response.close()
        return EgressResponse(
            status=response.status,
            headers=response.headers,
            body=read,
            truncated=not whole,
            address=DIALLED.get(),
            latency_ms=(time.monotonic() - began) * 1e3,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            cafile = None if self._ca_file is None else str(self._ca_file)
            tls = ssl.create_default_context(cafile=cafile)
            self._session = aiohttp.ClientSession(
                connector=CheckedConnector(
                    self.policy, self.resolver, tls=tls, connections=self._connections
                ),
                # What one answer sets, no other request carries; no proxy of the environment; no inflated body.
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


async def _bounded(response: aiohttp.ClientResponse, most: int, ends: float) -> tuple[bytes, bool]:
    """At most `most` bytes until `ends`; False unless that was the whole body."""
    parts, size = [], 0
    try:
        async with asyncio.timeout_at(ends):
            async for part in response.content.iter_any():
                parts.append(part[: most - size])
                size += len(part)
                if size > most:
                    return b"".join(parts), False
    except (TimeoutError, aiohttp.ClientError, OSError):
        # The status is known: the other side has decided, and what it says after that changes nothing.
        return b"".join(parts), False
    response.release()
    return b"".join(parts), True


def _failure(host: str | None, error: aiohttp.ClientError) -> SnavioError:
    if isinstance(error, aiohttp.InvalidURL):
        return BadRequest(f"{host} is not written as a host or an address is.", reason="egress-url")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return Unavailable(f"{host} has no certificate that is trusted here: {error}.", reason="egress-tls")
    if isinstance(error, aiohttp.TooManyRedirects):
        return Unavailable(f"{host} redirects more than {MOST_REDIRECTS} times.", reason="egress-redirects")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unavailable(f"{host} does not accept connections: {error.os_error}.", reason="egress-connect")
    return Unavailable(f"{host} broke the connection off: {error!r}.", reason="egress-connection-lost")
