"""Messages as workers see them: the request that came in, or what somebody sent to the topic by other means.

Never shows what a request carried in order to be let in: it is not stored.
"""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError

from services.gateway.pull.endpoints import PullEndpoint
from snavio.edge.topics import HTTP_CONTENT_TYPE, PULL_TARGET, event_id
from snavio.native import Received
from snavio.v1.edge_pb2 import HttpEnvelope

MOST_BODY_BYTES: Final = 32 << 20
"""Of a body that was deflated: a message of 1 MiB can name a gigabyte. What is larger is given as it is stored."""
SECOND_NS: Final = 1_000_000_000


def item(endpoint: PullEndpoint, message: Received, lease_id: str) -> dict[str, Any]:
    """One message of a response."""
    payload, received_ns = message.payload, message.stored_unix_ns
    headers: dict[str, str] = {}
    if message.content_type == HTTP_CONTENT_TYPE and (request := _request(payload)) is not None:
        payload = request.body
        received_ns = request.received_unix_ns or received_ns
        for header in request.header:
            name, value = header_name(header.name), header.value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    elif message.content_type:
        headers["Content-Type"] = message.content_type
    told: dict[str, Any] = {
        "id": event_id(endpoint.topic.topic_hash, message.msg_id),
        "lease_id": lease_id,
        "route": endpoint.route,
        "target": PULL_TARGET,
        "received_at": time_text(received_ns),
        "attempt": message.attempt,
        "payload_b64": base64.b64encode(payload).decode(),
        "headers": headers,
    }
    if message.traceparent:
        told["trace"] = {"traceparent": message.traceparent}
    return told


def serialised(told: dict[str, Any]) -> bytes:
    """As JSON."""
    return orjson.dumps(told)


@lru_cache(maxsize=4096)
def header_name(name: str) -> str:
    """The usual spelling: `content-type` is `Content-Type`."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def time_text(unix_ns: int) -> str:
    """RFC 3339 with as many digits as are needed."""
    seconds, rest = divmod(unix_ns, SECOND_NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else text + "Z"


def _request(payload: bytes) -> Any:
    """The stored request with its body as it was sent; None for bytes that are none."""
    try:
        request: Any = HttpEnvelope.FromString(payload)
        if request.body_size > MOST_BODY_BYTES:
            return None
        if request.body_size:
            inflating = zlib.decompressobj()
            body = inflating.decompress(request.body, request.body_size)
            if len(body) != request.body_size or inflating.unconsumed_tail:
                return None
            request.body = body
    except (DecodeError, zlib.error):
        return None
    return request
