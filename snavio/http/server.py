"""An HTTPS listener in front of an ASGI application, on the event loop of its service.

Never accepts a certificate of another CA, never goes on with a certificate that a renewal has replaced, and never
lets one address hold more than its share of the connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from uvicorn.server import ServerState

from snavio.config.sections import split_address
from snavio.host.periodic import Periodic
from snavio.host.shares import ShareLimit, Shares
from snavio.http.limits import HttpLimits
from snavio.http.protocol import end_connections, protocols
from snavio.rpc.credentials import CertificateFiles, CertificateWatch
from snavio.rpc.tls_listener import listening_socket, server_context

LOOK_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 1.0
"""For responses under way to end by themselves."""
_BACKLOG: Final = 1024


class HttpServer:
    """Serves `app` with the service's certificate; asks clients for one of the same CA and accepts none."""

    def __init__(self, app: Any, *, listen: str, files: CertificateFiles, limits: HttpLimits) -> None:
        self._listen = listen
        self._files = files
        self._watch = CertificateWatch(files)
        self._limits = limits
        self.connections = Shares("connections", _per_address(limits))
        """By address, before anybody is known."""
        self._state = ServerState()
        self._protocol: Callable[[], asyncio.Protocol] = protocols(
            app, state=self._state, limits=limits, connections=self.connections
        )
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._renewals = Periodic("HTTPS certificate", self._follow, every_s=LOOK_SECONDS)

    async def start(self) -> int:
        """Listen; returns the port. StateError `address-taken` when that is not possible."""
        self._socket = listening_socket(*split_address(self._listen))
        await self._serve()
        self._renewals.start()
        port: int = self._socket.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Accept nothing more, and close every connection; responses under way have ended before, or end now."""
        await self._renewals.stop()
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        await end_connections(self._state, finish_s=FINISH_SECONDS)

    async def _serve(self) -> None:
        assert self._socket is not None
        before, loop = self._server, asyncio.get_running_loop()
        # A context cannot forget a CA, so each renewal gets a new one; both accept from the same socket meanwhile.
        self._server = await loop.create_server(
            self._protocol,
            sock=self._socket.dup(),
            ssl=server_context(self._files),
            ssl_handshake_timeout=self._limits.handshake_s,
            ssl_shutdown_timeout=self._limits.handshake_s,
            backlog=_BACKLOG,
        )
        if before is not None:
            before.close()

    async def _follow(self) -> None:
        if self._watch.renewed() is not None:
            await self._serve()


def _per_address(limits: HttpLimits) -> ShareLimit:
    return ShareLimit(limits.connections, min(limits.connections, limits.connections_per_address))
