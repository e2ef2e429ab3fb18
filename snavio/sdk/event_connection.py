"""HTTPS to the gateway with a client certificate: one connection for the stream, and single requests.

Never talks to a server that is not the gateway of the mesh's CA, and never waits longer than a heartbeat may take.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import (
    BadRequest,
    IntegrityError,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    Unauthenticated,
    Unavailable,
)
from snavio.pki import server_name
from snavio.rpc.credentials import CertificateFiles

CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 45.0
"""Three heartbeats."""
ANSWER_SECONDS: Final = 15.0
MOST_BYTES: Final = 4 << 20
GONE: Final = 410
_ERRORS: Final[Mapping[int, type[SnavioError]]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: NotAllowed,
    404: NotFound,
}


class StreamGone(SnavioError):
    """The gateway no longer has what follows the bookmark; `position` is its signed statement."""

    reason = "last_event_id_outside_replay_window"

    def __init__(self, position: bytes) -> None:
        super().__init__("What follows the bookmark is no longer kept.")
        self.position = position


class GatewayConnection:
    """Opens what it is asked for, each time with the certificate that is in the folder then."""

    def __init__(self, address: str, *, files: CertificateFiles, trust_domain: str, capability: str) -> None:
        self._origin = f"https://{address}"
        self._files = files
        name = server_name(Identity(trust_domain, IdentityKind.MESH, "gateway"))
        assert name is not None
        self._server_name = name
        self._headers = {"snavio-capability": capability} if capability else {}

    @asynccontextmanager
    async def events(
        self, path: str, *, parameters: list[tuple[str, str]], last_event_id: str | None
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Chunks of a stream; StreamGone, or the error of another answer."""
        headers = {**self._headers, "accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        async with self._opened(path, headers, parameters, silence_s=SILENCE_SECONDS) as response:
            if response.content_type != "text/event-stream":
                raise IntegrityError("The answer is not a stream of events.", reason="malformed")
            yield _chunks(response)

    async def get(self, path: str) -> bytes:
        """The body of an answer."""
        async with self._opened(path, self._headers, [], silence_s=ANSWER_SECONDS) as response:
            return await _body(response)

    @asynccontextmanager
    async def _opened(
        self, path: str, headers: Mapping[str, str], parameters: list[tuple[str, str]], *, silence_s: float
    ) -> AsyncGenerator[Any, None]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silence_s)
        try:
            connector = aiohttp.TCPConnector(ssl=self._context(), limit=2)
            # `trust_env` stays off: a proxy of the environment must not see where events are read.
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, read_bufsize=1 << 20, auto_decompress=False
                ) as session,
                session.get(
                    self._origin + path,
                    headers=headers,
                    params=parameters,
                    server_hostname=self._server_name,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    raise _error_of(response.status, await _body(response), response.headers)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                raise Unavailable(
                    f"Whoever answers at {self._origin} is not the gateway of this installation."
                ) from None
            raise Unavailable(f"The gateway does not answer at {self._origin}.") from None

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(self._files.ca)
        context.load_cert_chain(self._files.certificate, self._files.private_key)
        return context


async def _chunks(response: Any) -> AsyncGenerator[bytes, None]:
    async for chunk in response.content.iter_any():
        yield chunk


async def _body(response: Any) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise IntegrityError("The answer is too large.", reason="oversized")
    return bytes(body)


def _error_of(status: int, body: bytes, headers: Mapping[str, str]) -> SnavioError:
    import orjson

    try:
        told = orjson.loads(body)
        reason, detail = str(told["reason"])[:64], str(told["detail"])[:512]
        position = told.get("position")
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, detail, position = f"http-{status}", f"The gateway answered {status}.", None
    if status == GONE:
        return StreamGone(orjson.dumps(position) if position is not None else b"")
    if status in _ERRORS:
        return _ERRORS[status](detail, reason=reason)
    after = headers.get("retry-after", "")
    retry_after_ms = 1000 * int(after) if after.isascii() and after.isdigit() and len(after) < 6 else 1000
    kind = Saturated if status == 429 else Unavailable
    return kind(detail, reason=reason, retry_after_ms=retry_after_ms)
