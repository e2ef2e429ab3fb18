"""Bounds and deadlines of a server's calls.

Never about the meaning of a method: only about the cost of any call before its handler has seen it.
"""

from __future__ import annotations

from typing import Final

PUBLIC_FRAME_BYTES: Final = 1 << 20
"""The largest message from outside the mesh."""
FRAME_SLACK_BYTES: Final = 64 << 10
"""Accepted by gRPC beyond a method's bound, so that the refusal can say which bound was exceeded."""
MAX_FRAME_BYTES: Final = PUBLIC_FRAME_BYTES + FRAME_SLACK_BYTES
"""The largest message that any server lets gRPC receive: an unfinished one is kept where nobody can count it, and gRPC
has one limit per port. Batches inside the mesh fit into it with their runs."""

WINDOW_BYTES: Final = 128 << 10
"""Buffered by gRPC for one call before its handler reads; gRPC's default is 4 MiB."""

HOP_WINDOW_BYTES: Final = 1 << 20
"""The same where batches arrive: one that does not fit is sent in steps, each of which costs CPU on both sides."""

SMALL_ANSWER_BYTES: Final = 16 << 10
"""Answers up to this size count as calls alone; larger ones as bytes too, until they are sent."""

FIRST_READ_S: Final = 10.0
"""Deadline of the request of a unary call, and of the first message of a stream."""
IDLE_STREAM_S: Final = 600.0
"""Longest silence of a caller outside the mesh on its stream; the stream then ends as at its maximum age."""
SWEEP_S: Final = 1.0
"""Interval between checks of open calls for revoked callers and silent streams."""

CALLS: Final = 4096
STREAMS: Final = 2048
SIDE_STREAMS: Final = 256
"""Health watches and reflection: a tenant has as many there as its bytes in flight have room for whole frames."""
BYTES_IN_FLIGHT: Final = 256 << 20
GRPC_CALLS: Final = 65_536
"""gRPC's own bound, which knows no tenants: far above those that do."""
