"""The bounds and timings that both ends of every mesh connection agree on.

Never leaves to gRPC's defaults a value that an attacker or a dead peer could stretch.
"""

from __future__ import annotations

from typing import Final

from snavio.rpc.limits import MAX_FRAME_BYTES

# From a server to its client, which asked for it: deliveries, pages of changes and receipts.
MAX_ANSWER_BYTES: Final = 4 << 20

KEEPALIVE_INTERVAL_S: Final = 20.0
KEEPALIVE_TIMEOUT_S: Final = 10.0
# A server closes connections that ping more often than this; half the interval, so that a late timer is tolerated.
MIN_PING_INTERVAL_S: Final = 10.0
# A client that never finishes its TLS handshake holds a socket only this long.
HANDSHAKE_TIMEOUT_S: Final = 10.0

Options = tuple[tuple[str, int | str], ...]

CLIENT_SIZES: Final[Options] = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
)

COMMON_OPTIONS: Final[Options] = (
    # Snavio compresses nothing, and decompressing a message would be work done before the interceptor has authorised
    # its sender. The first option disables decompression, the second returns the reason to the client.
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.keepalive_time_ms", round(KEEPALIVE_INTERVAL_S * 1000)),
    ("grpc.keepalive_timeout_ms", round(KEEPALIVE_TIMEOUT_S * 1000)),
    ("grpc.keepalive_permit_without_calls", 1),
)
