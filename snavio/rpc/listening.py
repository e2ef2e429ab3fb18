"""The options and the port of every gRPC server here, of the mesh's and of the one for callers without a certificate.

Never leaves to gRPC's defaults a value that an attacker or a dead peer could stretch.
"""

from __future__ import annotations

from typing import Any

from snavio.errors import StateError
from snavio.rpc.connection_options import (
    COMMON_OPTIONS,
    HANDSHAKE_TIMEOUT_S,
    MIN_PING_INTERVAL_S,
    Options,
)


def server_options(*, max_message_bytes: int, window_bytes: int) -> Options:
    """The options that all have."""
    return (
        # A gRPC server takes the last of several options with one name.
        *(option for option in COMMON_OPTIONS if option[0] != "grpc.max_receive_message_length"),
        ("grpc.max_receive_message_length", max_message_bytes),
        # An unread body must not fill the memory; while one is read, the window follows its length.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", window_bytes),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_TIMEOUT_S * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", round(MIN_PING_INTERVAL_S * 1000)),
    )


async def listen(server: Any, address: str, credentials: Any) -> int:
    """Start `server` at `address`; the port. StateError if the address is in use."""
    try:
        port: int = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise StateError(
            f"Cannot listen on {address}: the address is taken, or is not one of this machine.",
            reason="address-taken",
        ) from None
    await server.start()
    return port
