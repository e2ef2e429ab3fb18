"""gRPC reflection of the services that a server offers, under its names v1alpha and v1.

Never answers for a service that this server does not have, and never costs anything before the first call.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from snavio.rpc.call import Call
from snavio.rpc.methods import Methods, parsed

V1ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
V1: Final = "grpc.reflection.v1.ServerReflection"
"""The same messages under another name: identical on the wire."""
_INSIDE_OF_BYTES: Final = (
    "snavio.v1.command_pb2",
    "google.rpc.status_pb2",
    "google.rpc.error_details_pb2",
)
"""Messages that no method names: commands, and the details of errors, which a tool shows as bytes without these."""
_MAX_BYTES: Final = 4 << 10
_IDLE_S: Final = 60.0


def register_reflection(methods: Methods) -> None:
    """Serve the descriptors of every service that `methods` has, health and reflection included."""
    services = tuple(sorted((*methods.services(), V1ALPHA, V1)))

    async def info(call: Call) -> None:
        # Imported on the first call: a process without reflection calls does not pay for it, least of all at its start.
        from grpc_reflection.v1alpha import reflection_pb2

        from snavio.rpc.descriptors import Descriptors

        for service in services:
            package, _, name = service.rpartition(".")
            if package == "snavio.v1":
                # One service per file, named for it. A server on raw bytes may not have imported its own.
                import_module(f"snavio.v1.{name.lower()}_pb2")
        for module in _INSIDE_OF_BYTES:
            import_module(module)
        descriptors = Descriptors(services)
        while (message := await call.read()) is not None:
            request = parsed(reflection_pb2.ServerReflectionRequest, message)
            await call.write(descriptors.answer(request).SerializeToString())

    for name in (V1ALPHA, V1):
        methods.stream_raw(f"/{name}/ServerReflectionInfo", info, max_bytes=_MAX_BYTES, idle_s=_IDLE_S)
