"""Reads the request of a unary call after authorisation, within a size and the caller's share of bytes.

Never reads for a caller without room for the largest message that gRPC would accept from it.
"""

from __future__ import annotations

from typing import Any

import grpc

from snavio.errors import BadRequest, FrameTooLarge
from snavio.host.waiting_shares import WaitingShares


class Bodies:
    """Reads requests on one server, on which gRPC accepts messages of at most `largest` bytes."""

    def __init__(self, room: WaitingShares, *, largest: int, first_read_s: float) -> None:
        self._room = room
        self._largest = largest
        self._first_read_s = first_read_s

    async def read(self, context: Any, tenant: str, *, max_bytes: int) -> tuple[bytes, int]:
        """The request, and the bytes of its tenant's share that it holds until `release`.

        Waits for room within the deadline of a first read. For the request itself the caller brings the deadline: a
        timer for each call would cost more than the whole interceptor.
        """
        room = self._room
        reserved = room.take_now(tenant, self._largest)
        if not reserved:
            reserved = await room.take(tenant, self._largest, within_s=self._first_read_s)
        try:
            message = await context.read()
        except BaseException:
            room.give_back(tenant, reserved)
            raise
        size = 0 if message is grpc.aio.EOF else len(message)
        if not 0 < size <= max_bytes:
            room.give_back(tenant, reserved)
            if message is grpc.aio.EOF:
                raise BadRequest("The call ended before its request.", reason="malformed")
            if size:
                raise too_large(max_bytes)
            return b"", 0
        held = min(size, reserved)
        room.give_back(tenant, reserved - held)
        return message, held

    def keep(self, tenant: str, answer: bytes) -> int:
        """The bytes of its tenant's share that an answer holds until `release`: its size, or the rest of the share.

        An answer is never refused, since its work is done; but no further request is read for a caller that leaves so
        many unread.
        """
        shares = self._room.shares
        limit = shares.limit
        left = min(limit.per_tenant - shares.held(tenant), limit.total - limit.reserve - shares.used)
        held = min(len(answer), left)
        if held <= 0:
            return 0
        shares.take(tenant, held)
        return held

    def release(self, tenant: str, held: int) -> None:
        """Return the bytes when the call is over."""
        self._room.give_back(tenant, held)


def too_large(max_bytes: int) -> FrameTooLarge:
    """The refusal of a message that is larger than its method accepts."""
    return FrameTooLarge(f"A message has at most {max_bytes} bytes here.")
