"""The options and the port of every gRPC server here, of the mesh's and of the one for callers without a certificate.

Never leaves to gRPC's defaults a value that an attacker or a dead peer could stretch.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from snavio.errors import StateError
from snavio.rpc.connection_options import (
    COMMON_OPTIONS,
    HANDSHAKE_TIMEOUT_S,
    MAX_ANSWER_BYTES,
    MIN_PING_INTERVAL_S,
    Options,
)


def server_options(*, max_message_bytes: int, window_bytes: int) -> Options:
    """The options that all have."""
    return (
        *COMMON_OPTIONS,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
        # An unread body must not fill the memory; while one is read, the window follows its length.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", window_bytes),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_TIMEOUT_S * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", round(MIN_PING_INTERVAL_S * 1000)),
    )


async def listen(server: Any, address: str, credentials: Any, *, shared: bool = False) -> int:
    """Start `server` at `address`; the port. StateError if the address is in use."""
    if not shared:
        _require_free(address)
    try:
        port: int = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise _taken(address) from None
    await server.start()
    return port


def _taken(address: str) -> StateError:
    return StateError(
        f"Cannot listen on {address}: the address is taken, or is not one of this machine.",
        reason="address-taken",
    )


def _require_free(address: str) -> None:
    """StateError where nobody could listen: gRPC would print a line of its own before ours."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: connections of an earlier process that still end do not occupy it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(place)
            except OSError:
                raise _taken(address) from None
