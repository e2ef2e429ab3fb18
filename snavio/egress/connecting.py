"""The connector of outgoing requests: dials checked addresses only, and looks at the connected socket once more.

Never hands out a connection whose peer is not an address that the policy permits for this host.
"""

from __future__ import annotations

import socket
import ssl
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver

from snavio.egress.addresses import address_of
from snavio.egress.policy import EgressPolicy
from snavio.egress.resolving import CheckedResolver
from snavio.errors import NotAllowed, Unavailable

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

DIALLED: ContextVar[str] = ContextVar("dialled", default="")
"""The peer's address of the current task's request; empty before it is connected."""
_HOST: ContextVar[str] = ContextVar("host", default="")


class CheckedConnector(aiohttp.TCPConnector):
    """A connector under one policy. Connections are kept for the host that they were dialled for."""

    def __init__(
        self, policy: EgressPolicy, resolver: CheckedResolver, *, tls: ssl.SSLContext, connections: int
    ) -> None:
        super().__init__(
            ssl=tls,
            resolver=cast(AbstractResolver, resolver),
            use_dns_cache=False,
            limit=connections,
            socket_factory=self._socket,
            keepalive_timeout=15.0,
        )
        self._policy = policy

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 aiohttp's own signature
    ) -> Connection:
        """A connection whose peer is permitted; of a redirect too, since each hop comes through here."""
        host = req.url.raw_host or ""
        DIALLED.set("")
        _HOST.set(host)
        self._policy.check_url(req.url)
        connection = await super().connect(req, traces, timeout)
        try:
            peer = _peer(connection)
            address = address_of(peer)
            if address is None:
                raise Unavailable(f"{host} was gone at once.", reason="egress-connect")
            self._policy.check_addresses(host, [address])
        except BaseException:
            connection.close()
            raise
        DIALLED.set(peer)
        return connection

    def _socket(self, info: AddrInfoType) -> socket.socket:
        # The last look before the packet: what stands here is what is dialled, also for a literal address.
        family, kind, protocol, _, target = info
        address = address_of(str(target[0]))
        if address is None:
            raise NotAllowed("Only literal addresses are dialled.", reason="egress-address")
        self._policy.check_addresses(_HOST.get(), [address])
        return socket.socket(family=family, type=kind, proto=protocol)


def _peer(connection: Any) -> str:
    try:
        name = connection.transport.get_extra_info("peername") if connection.transport is not None else None
    except OSError:
        return ""
    return str(name[0]) if name else ""
