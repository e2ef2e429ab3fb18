"""Bounds and deadlines of a server's calls.

Never a place for what a method means: only for what any call may cost before its handler has seen it.
"""

from __future__ import annotations

from typing import Final

PUBLIC_FRAME_BYTES: Final = 1 << 20
"""The largest message that anybody outside of the mesh may send; links inside the mesh agree on more."""
FRAME_SLACK_BYTES: Final = 64 << 10
"""Taken by gRPC beyond a method's bound, so that a sentence of ours can say what was too large."""

WINDOW_BYTES: Final = 128 << 10
"""Buffered by gRPC for one call before its handler reads. By its own measure that would be 4 MiB."""

HOP_WINDOW_BYTES: Final = 1 << 20
"""The same where batches come in: one that does not fit is sent in steps, each of which costs CPU on both sides."""

SMALL_ANSWER_BYTES: Final = 16 << 10
"""Answers up to here count as calls alone; larger ones as bytes too, until they are sent."""

FIRST_READ_S: Final = 10.0
"""For the request of a unary call, and for the first message of a stream."""
IDLE_STREAM_S: Final = 600.0
"""For a caller outside of the mesh to say something on its stream; the stream then ends as it does at its age."""
SWEEP_S: Final = 1.0
"""Between looks at open calls: who was revoked, which stream is silent."""

CALLS: Final = 4096
STREAMS: Final = 2048
BYTES_IN_FLIGHT: Final = 256 << 20
GRPC_CALLS: Final = 65_536
"""gRPC's own bound, which knows no tenants: far above those that do."""
