"""Checks that an address can be listened on, before gRPC tries it and prints a line of its own to the terminal.

Never keeps the address.
"""

from __future__ import annotations

import contextlib
import socket

from snavio.errors import StateError


def address_taken(listen: str) -> StateError:
    """The error for an address that cannot be listened on."""
    return StateError(
        f"Cannot listen on {listen}: the address is taken, or is not one of this machine.",
        reason="address-taken",
    )


def require_free(listen: str) -> None:
    """StateError if nobody could listen on `listen`; what this cannot tell, gRPC will."""
    host, _, port = listen.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: connections of an earlier process that still end do not occupy it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError:
                raise address_taken(listen) from None
