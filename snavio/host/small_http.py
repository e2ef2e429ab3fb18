"""GET over HTTP/1.1 for probes and scrapers: one request per connection, no body, bounds on everything.

Never reads more than a small head, never waits longer than a deadline, and never lets idle connections keep a probe
out: when all places are taken, the one that has waited longest without a whole request gives way, or else the one that
has had its answer the longest. Handshakes of TLS have as many places of their own.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

from snavio.host.background import background

MOST_HEAD_BYTES: Final = 8 << 10
MOST_CONNECTIONS: Final = 64
HEAD_SECONDS: Final = 5.0
ACCEPT_PAUSE_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 10.0
"""For the handler, and then again for the peer to read the answer."""
_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,1023}) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Request:
    """One GET. `certificate` is the peer's in DER form, where TLS has verified one."""

    path: str
    host: str
    certificate: bytes | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Answer]]


@dataclass(slots=True)
class Connections:
    """Open connections of one listener, oldest first, and what was answered."""

    handler: Handler
    paths: frozenset[str]
    """Counted by name; all others together."""
    most: int = MOST_CONNECTIONS
    head_s: float = HEAD_SECONDS
    answer_s: float = ANSWER_SECONDS
    answers: Counter[str] = field(default_factory=Counter)
    open: dict[Connection, None] = field(default_factory=dict)
    beginning: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """Accepted, and not open yet: TLS is being agreed on."""

    async def accept(self, listening: socket.socket, tls: Callable[[], ssl.SSLContext | None]) -> None:
        """Take connections until it is cancelled.

        A listener of asyncio's would keep every handshake that a stranger does not go on with, uncounted, until the
        process has no descriptors left.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Of one connection that is gone again, or for want of descriptors.
                background().failed("health port", error)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            if len(self.beginning) >= self.most:
                oldest = next(iter(self.beginning))
                del self.beginning[oldest]
                oldest.cancel()
            task = background().once("health port", self._begin(accepted, tls()))
            self.beginning[task] = None
            task.add_done_callback(lambda done: self.beginning.pop(done, None))

    async def _begin(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        limit = None if tls is None else self.head_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self.protocol, accepted, ssl=tls, ssl_handshake_timeout=limit, ssl_shutdown_timeout=limit
            )
        except (OSError, ssl.SSLError):
            return  # It spoke no TLS, or left.

    def protocol(self) -> Connection:
        """A new connection; a factory for the event loop."""
        return Connection(self)

    def entered(self, connection: Connection) -> bool:
        """True if there is room for it."""
        if len(self.open) >= self.most:
            # Whoever has its answer and says no goodbye would keep its place until the deadline.
            idle = next((each for each in self.open if each.waits), None) or next(
                (each for each in self.open if each.answered), None
            )
            if idle is None:
                return False
            idle.give_way()
        self.open[connection] = None
        return True

    def counted(self, path: str, status: HTTPStatus) -> None:
        """Count an answer."""
        name = path.strip("/").partition("/")[0] if path in self.paths else "other"
        self.answers[f"{name}-{status.value}"] += 1

    def close(self) -> None:
        """End them all."""
        for task in list(self.beginning):
            task.cancel()
        for connection in list(self.open):
            connection.give_way()


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, among: Connections) -> None:
        self._among = among
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.waits = True
        """No whole request has come yet."""
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self._transport = cast(asyncio.Transport, transport)
        if not self._among.entered(self):
            self._transport.abort()
            return
        self._end_after(self._among.head_s)

    def connection_lost(self, _error: Exception | None) -> None:
        """As asyncio calls it."""
        self._among.open.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        if not self.waits:
            # There is one request, and it has no body.
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= MOST_HEAD_BYTES:
            return
        self.waits = False
        if end < 0 or end > MOST_HEAD_BYTES:
            self._send("", Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"The head is too large.\n"))
            return
        assert self._transport is not None
        method, path, host = _read(bytes(self._head[:end]))
        self._head.clear()
        if method is None:
            self._send("", Answer(HTTPStatus.BAD_REQUEST, b"This is not a request of HTTP/1.1.\n"))
        elif method != "GET":
            self._send(
                path,
                Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"Only GET.\n", headers=(("Allow", "GET"),)),
            )
        else:
            self._end_after(self._among.answer_s)
            secured: Any = self._transport.get_extra_info("ssl_object")
            shown = secured.getpeercert(binary_form=True) if isinstance(secured, ssl.SSLObject) else None
            request = Request(path.partition("?")[0], host, shown)
            self._task = background().once("health port", self._answer(request))

    def give_way(self) -> None:
        """End at once."""
        self._among.open.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._among.handler(request)
        except Exception as error:
            background().failed("health port", error)
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"The answer could not be made.\n")
        self._send(request.path, answer)

    def _send(self, path: str, answer: Answer) -> None:
        self._among.counted(path, answer.status)
        self.answered = True
        assert self._transport is not None
        if self._transport.is_closing():
            return
        headers = (
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
            *answer.headers,
        )
        lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self._transport.write("\r\n".join((*lines, "", "")).encode("ascii") + answer.body)
        self._end_after(self._among.answer_s)
        self._transport.close()

    def _end_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give_way)


def _read(head: bytes) -> tuple[str | None, str, str]:
    """Method, path and host of a request; no method if it is none."""
    line, *fields = head.split(b"\r\n")
    matched = _LINE.fullmatch(line)
    if matched is None:
        return None, "", ""
    host = ""
    for each in fields:
        named = _FIELD.fullmatch(each)
        if named is None:
            return None, "", ""
        if named[1].lower() == b"host":
            host = named[2].decode("latin-1")
    return matched[1].decode("ascii"), matched[2].decode("ascii"), host
