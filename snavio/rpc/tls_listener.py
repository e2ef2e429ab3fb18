"""A listening socket and its TLS for listeners that are not gRPC's: the gateway's HTTPS and the health ports."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from snavio.errors import StateError
from snavio.rpc.credentials import CertificateFiles

_BACKLOG: Final = 1024


def server_context(files: CertificateFiles) -> ssl.SSLContext:
    """TLS in which a client may present a certificate of the mesh's CA; one of another CA ends the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.private_key)
    context.load_verify_locations(files.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would skip the check of the certificate against a CA that was replaced.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; StateError `address-taken` when that is not possible."""
    found = None
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            found = socket.socket(family, kind, protocol)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(place)
            found.listen(_BACKLOG)
            found.setblocking(False)
            return found
    except OSError:
        if found is not None:
            with contextlib.suppress(OSError):
                found.close()
    raise StateError(
        f"Cannot listen on {host}:{port}: the address is taken, or is not one of this machine.",
        reason="address-taken",
    )
