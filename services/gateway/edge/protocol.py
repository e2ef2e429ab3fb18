"""A connection from the internet: what two programs could read differently is refused before anything else is done.

Never passes on a request whose end is said in two ways, and never one for another host than it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from snavio.host.shares import Shares
from snavio.http.limits import HttpLimits
from snavio.http.protocol import BoundedProtocol

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Field content: no control character but the tab. A bare CR or a folded line would be another header to somebody.
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ONCE: Final = frozenset({b"host", b"content-length", b"content-type", b"authorization"})


class EdgeProtocol(BoundedProtocol):
    """One connection of a listener of the edge."""

    turned_away: Callable[[int, str, str], None] = staticmethod(lambda _status, _reason, _address: None)
    """Told of every request that ended before the application saw it."""

    def __init__(
        self, config: Config, state: ServerState, *, limits: HttpLimits, connections: Shares
    ) -> None:
        super().__init__(config, state, limits=limits, connections=connections)
        self._fault = ""

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._fault = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Look at one header."""
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            self._fault = "A header holds a character that none can have."
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Look at the head as a whole."""
        self._fault = self._fault or self._ambiguous()
        if self._fault and not self.transport.is_closing():
            self._refuse(HTTPStatus.BAD_REQUEST, "ambiguous", self._fault)
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        if not self._fault:
            super().on_message_complete()

    def _ambiguous(self) -> str:
        seen: set[bytes] = set()
        chunked = False
        for name, value in self.headers:
            if name in _ONCE and name in seen:
                return f"The header `{name.decode('ascii')}` is there more than once."
            if name == b"transfer-encoding":
                if value.strip().lower() != b"chunked" or b"transfer-encoding" in seen:
                    return "The one transfer encoding that is taken is `chunked`."
                chunked = True
            elif name == b"content-length" and not value.isdigit():
                return "`content-length` is no number."
            seen.add(name)
        if chunked and b"content-length" in seen:
            return "The end of the body is said in two ways."
        version = self.parser.get_http_version()
        if b"host" not in seen and version != "1.0":
            return "The header `host` is missing."
        if chunked and version == "1.0":
            return "HTTP/1.0 has no chunks."
        if not self.url.startswith(b"/"):
            # `http://other/path` names a host beside the header's.
            return "The request names no path."
        return ""

    def _refuse(self, status: HTTPStatus, reason: str, detail: str) -> None:
        self.turned_away(int(status), reason, self._address)
        super()._refuse(status, reason, detail)


def telling(turned_away: Callable[[int, str, str], None]) -> type[EdgeProtocol]:
    """The protocol that tells somebody of what it turned away."""
    members: dict[str, Any] = {"turned_away": staticmethod(turned_away)}
    return type("EdgeProtocol", (EdgeProtocol,), members)
