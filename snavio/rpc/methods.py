"""The methods of a server with their handlers, all on raw bytes.

Never accepts a method without a row in the authorisation table, nor two handlers for one method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError

from snavio.errors import BadRequest
from snavio.rpc.authorisation import TABLE
from snavio.rpc.call import Call
from snavio.rpc.limits import PUBLIC_FRAME_BYTES
from snavio.rpc.proto_message import ProtoMessage

Request = TypeVar("Request", bound=ProtoMessage)
Response = TypeVar("Response", bound=ProtoMessage)

UnaryHandler = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler = Callable[[Call], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method; exactly one of the handlers is set."""

    name: str
    unary: UnaryHandler | None = None
    stream: StreamHandler | None = None
    max_bytes: int = PUBLIC_FRAME_BYTES
    """Bound on one message of a caller outside the mesh."""
    idle_s: float | None = None
    """Longest silence of such a caller on a stream; the server's own limit if not set."""


def read_strictly(request_type: type[Request], request: bytes) -> Request:
    """The message; BadRequest if it has a field that is unknown here. Raises DecodeError for malformed bytes."""
    message = request_type.FromString(request)
    message.DiscardUnknownFields()
    known = message.ByteSize()
    # Most requests are encoded as here, and then nothing was dropped.
    if known != len(request) and request_type.FromString(request).ByteSize() != known:
        raise BadRequest("The request has a field that is not known here.", reason="unknown-field")
    return message


def parsed(request_type: type[Request], message: bytes) -> Request:
    """The message of a stream; BadRequest for malformed bytes."""
    try:
        return request_type.FromString(message)
    except DecodeError:
        raise BadRequest("The request cannot be read.", reason="malformed") from None


class Methods:
    """Collects handlers. Methods look like `/snavio.v1.Signer/TenantConfig`."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}

    def unary(
        self,
        method: str,
        handler: Callable[[Request, Call], Awaitable[Response]],
        request_type: type[Request],
        *,
        strict: bool = False,
        max_bytes: int = PUBLIC_FRAME_BYTES,
    ) -> None:
        """Serve a method with one request and one response; unreadable requests are BadRequest.

        With `strict`, so are those with an unknown field.
        """

        async def on_bytes(request: bytes, call: Call) -> bytes:
            try:
                message = read_strictly(request_type, request) if strict else request_type.FromString(request)
            except DecodeError:
                raise BadRequest(f"The request of {method} cannot be read.", reason="malformed") from None
            return (await handler(message, call)).SerializeToString()

        self.unary_raw(method, on_bytes, max_bytes=max_bytes)

    def unary_raw(self, method: str, handler: UnaryHandler, *, max_bytes: int = PUBLIC_FRAME_BYTES) -> None:
        """Serve a method with one request and one response, both as bytes of the wire."""
        self.add(Method(method, unary=handler, max_bytes=max_bytes))

    def stream_raw(
        self,
        method: str,
        handler: StreamHandler,
        *,
        max_bytes: int = PUBLIC_FRAME_BYTES,
        idle_s: float | None = None,
    ) -> None:
        """Serve a bidirectional stream; the handler uses `call.read` and `call.write`, and returns at the end."""
        self.add(Method(method, stream=handler, max_bytes=max_bytes, idle_s=idle_s))

    def services(self) -> tuple[str, ...]:
        """Full names of the services that have a method here."""
        return tuple(sorted({name.split("/")[1] for name in self._methods}))

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def add(self, method: Method) -> None:
        """Serve `method`; ValueError if it has no row in the table, or a handler already."""
        # A method without a row would be refused for everybody; better not to start.
        if method.name not in TABLE:
            raise ValueError(f"{method.name} has no row in the authorisation table")
        if method.name in self._methods:
            raise ValueError(f"{method.name} has a handler already")
        self._methods[method.name] = method
