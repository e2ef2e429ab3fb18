"""The listeners of a plan: sockets, certificates, and which application answers under which prefix.

Never accepts a client certificate of another CA than the file's, and never goes on with a certificate file that was
replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from uvicorn.server import ServerState

from services.gateway.edge.protocol import telling
from snavio.edge.kinds import SocketAddress
from snavio.edge.plan import ClientCertificates, ListenerTls
from snavio.errors import StateError
from snavio.host.periodic import Periodic
from snavio.host.shares import ShareLimit, Shares
from snavio.http.limits import HttpLimits
from snavio.http.protocol import end_connections, protocols

BACKLOG: Final = 2048
LOOK_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 5.0
LIMITS: Final = HttpLimits(
    head_bytes=96 << 10,
    headers=200,
    head_s=10.0,
    body_s=60.0,
    # The route's own bound is what counts, and is looked at while the body comes in.
    body_bytes=1 << 41,
    idle_s=60.0,
    connections=8192,
    connections_per_address=4096,
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One socket. `apps` by prefix; the empty one takes what no other does."""

    name: str
    address: SocketAddress
    tls: ListenerTls | None
    apps: Mapping[str, Any]


class PrefixApp:
    """Hands a request to the application of its prefix."""

    def __init__(self, apps: Mapping[str, Any]) -> None:
        self._prefixes = sorted(
            ((each.encode(), app) for each, app in apps.items() if each), key=lambda x: -len(x[0])
        )
        self._rest = apps.get("")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["raw_path"]
        for prefix, app in self._prefixes:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"", b"/"):
                await app(scope, receive, send)
                return
        if self._rest is not None:
            await self._rest(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 404,
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"44")],
            }
        )
        await send({"type": "http.response.body", "body": b'{"code":"not_found","detail":"Nothing here"}'})


class EdgeListener:
    """One socket that is served."""

    def __init__(
        self, spec: ListenerSpec, *, turned_away: Callable[[int, str, str], None], limits: HttpLimits = LIMITS
    ) -> None:
        self.spec = spec
        self._limits = limits
        most = limits.connections
        self.connections = Shares("connections", ShareLimit(most, min(most, limits.connections_per_address)))
        self._state = ServerState()
        apps = spec.apps
        app = apps[""] if list(apps) == [""] else PrefixApp(apps)
        self._protocol = protocols(
            app, state=self._state, limits=limits, connections=self.connections, kind=telling(turned_away)
        )
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._stamps: tuple[object, ...] = ()
        self._renewals = Periodic(f"certificate of {spec.name}", self._follow, every_s=LOOK_SECONDS)

    @property
    def port(self) -> int:
        """The port that is bound."""
        assert self._socket is not None
        found: int = self._socket.getsockname()[1]
        return found

    async def start(self) -> None:
        """Bind and serve; StateError when that is not possible."""
        self._socket = _bound(self.spec.address)
        await self._serve()
        if self.spec.tls is not None:
            self._renewals.start()

    async def stop(self) -> None:
        """Accept nothing more, wait for requests under way, then close every connection."""
        await self._renewals.stop()
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        await end_connections(self._state, finish_s=FINISH_SECONDS)

    async def _serve(self) -> None:
        assert self._socket is not None
        tls, before = self.spec.tls, self._server
        given: dict[str, Any] = {}
        if tls is not None:
            self._stamps = _stamps(tls)
            given = {
                "ssl": await asyncio.to_thread(server_context, tls, self.spec.name),
                "ssl_handshake_timeout": self._limits.handshake_s,
                "ssl_shutdown_timeout": self._limits.handshake_s,
            }
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol, sock=self._socket.dup(), backlog=BACKLOG, **given
        )
        if before is not None:
            before.close()

    async def _follow(self) -> None:
        tls = self.spec.tls
        if tls is None or _stamps(tls) == self._stamps:
            return
        try:
            await self._serve()
            _log.info("certificate replaced", listener=self.spec.name)
        except StateError as error:
            # Half of a renewal: the certificate is there and its key is not. It is looked at again.
            self._stamps = ()
            _log.warning("certificate not replaced", listener=self.spec.name, detail=str(error))


def server_context(tls: ListenerTls, name: str) -> ssl.SSLContext:
    """TLS of a listener; StateError names the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise StateError(
            f"`{name}` has no certificate: {tls.cert_file} and {tls.key_file} cannot be used ({_why(error)}).",
            reason="bad-certificate",
        ) from None
    if tls.client_ca is not None and tls.clients is not ClientCertificates.NONE:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise StateError(
                f"`{name}` has no `client_ca`: {tls.client_ca} cannot be used ({_why(error)}).",
                reason="bad-certificate",
            ) from None
        required = tls.clients is ClientCertificates.REQUIRE_AND_VERIFY
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A resumed session would skip the check against a CA that was replaced.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    context.set_alpn_protocols(["http/1.1"])
    return context


def _why(error: OSError) -> str:
    return error.strerror or getattr(error, "reason", None) or type(error).__name__


def _stamps(tls: ListenerTls) -> tuple[object, ...]:
    found: list[object] = []
    for name in (tls.cert_file, tls.key_file, tls.client_ca):
        with contextlib.suppress(OSError):
            if name is not None:
                stat = Path(name).stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return tuple(found)


def _bound(address: SocketAddress) -> socket.socket:
    found: socket.socket | None = None
    try:
        choices: Sequence[Any] = (
            [(socket.AF_INET6, ("::", address.port)), (socket.AF_INET, ("0.0.0.0", address.port))]  # noqa: S104
            if address.host == ""
            else [
                (family, place)
                for family, _, _, _, place in socket.getaddrinfo(
                    address.host, address.port, type=socket.SOCK_STREAM
                )
            ]
        )
        for family, place in choices:
            try:
                found = socket.socket(family, socket.SOCK_STREAM)
                if family == socket.AF_INET6:
                    found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address.host == "" else 1)
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(place)
                found.listen(BACKLOG)
                found.setblocking(False)
                return found
            except OSError:
                if found is not None:
                    found.close()
                if place is choices[-1][1]:
                    raise
    except OSError as error:
        raise StateError(
            f"Cannot listen on {address.text}: {(error.strerror or 'the address is not one of this machine').lower()}.",
            reason="address-taken",
        ) from None
    raise StateError(f"Cannot listen on {address.text}: it has no address.", reason="address-taken")
