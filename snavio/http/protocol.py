"""uvicorn's HTTP/1.1 with the peer's certificate in the scope, and with the bounds that uvicorn lacks.

Never starts the application before the whole head is there and within its bounds, and never waits for a client
without a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from snavio.host.shares import Shares
from snavio.http.limits import HttpLimits
from snavio.http.problems import raw_problem

PEER: Final = "snavio.peer_certificate"
"""In the scope: the verified certificate of the client in DER, or None."""
_NO_SHARE: Final = "(local)"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self, config: Config, state: ServerState, *, limits: HttpLimits, connections: Shares
    ) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._shares = connections
        self._address = ""
        self._peer: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else _NO_SHARE
        if not self._shares.room(address):
            self._shares.refused += 1
            transport.close()
            return
        self._shares.take(address)
        self._address = address
        tls = transport.get_extra_info("ssl_object")
        # The context asked for a certificate and verified it; a client without one has None.
        self._peer = None if tls is None else tls.getpeercert(binary_form=True)
        self._expect(self._limits.head_s, "the head of a request")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        if self._address:
            self._shares.give_back(self._address)
            self._address = ""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            # The parser keeps an unfinished header line, however long: it is counted before it gets there.
            self._head_bytes += len(data)
            if self._deadline is None:
                self._expect(self._limits.head_s, "the head of a request")
        super().data_received(data)
        if self._in_head and self._head_bytes > self._limits.head_bytes:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[PEER] = self._peer  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) <= self._limits.headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if len(self.headers) > self._limits.headers or size > self._limits.head_bytes:
            self._refuse_head()
            return
        self._in_head, self._head_bytes, self._body_bytes = False, 0, 0
        self._expect(self._limits.body_s, "the body of a request")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.transport.is_closing():
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            most = f"A body may have {self._limits.body_bytes} bytes."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "oversized", most)
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect_nothing()
        self._in_head = True
        if not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            self._refuse(HTTPStatus.BAD_REQUEST, "malformed", "This is not an HTTP request.")

    def _refuse_head(self) -> None:
        most = f"A head may have {self._limits.headers} headers and {self._limits.head_bytes} bytes."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", most)

    def _refuse(self, status: HTTPStatus, reason: str, detail: str) -> None:
        self._expect_nothing()
        # After a response has begun, another one would be taken for its body.
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(raw_problem(status, reason, detail))
        self.transport.close()

    def _expect(self, within_s: float, awaited: str) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(within_s, self._late, awaited)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, awaited: str) -> None:
        if not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "late", f"Not in time: {awaited}.")


def protocols(
    app: Any,
    *,
    state: ServerState,
    limits: HttpLimits,
    connections: Shares,
    kind: type[BoundedProtocol] = BoundedProtocol,
) -> Callable[[], BoundedProtocol]:
    """A factory of connections to an ASGI application."""
    config = Config(
        app,
        loop="none",
        http=kind,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=round(limits.idle_s),
    )
    config.load()
    return lambda: kind(config, state, limits=limits, connections=connections)


async def end_connections(state: ServerState, *, finish_s: float) -> None:
    """Give requests under way so long to end by themselves, then end them and close every connection."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(list(state.tasks), timeout=finish_s)
    tasks = list(state.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for connection in list(state.connections):
        connection.transport.abort()
