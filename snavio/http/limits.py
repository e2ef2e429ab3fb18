"""Bounds of an HTTP listener.

Never unlimited: uvicorn itself takes heads of any size and waits for them for any time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one connection, and of all of them together."""

    head_bytes: int = 32 << 10
    """Request line and headers of one request."""
    headers: int = 100
    head_s: float = 10.0
    """For the handshake to be over and the head to arrive; also from one request to the end of the next one's head."""
    body_s: float = 30.0
    """For the body to arrive."""
    body_bytes: int = 64 << 10
    idle_s: float = 30.0
    """Between two requests of one connection."""
    connections: int = 4096
    connections_per_address: int = 1024
    handshake_s: float = 10.0
