"""A client's channel to one service: presents its certificate, verifies the server's, and follows renewals.

Never talks to a server whose certificate does not name the intended service, and never retries a call that may have
been executed: only the SDK knows that a command may be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError

from snavio.clock import Clock, SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.errors import IntegrityError, SnavioError, Unauthenticated, Unavailable
from snavio.host.background import background
from snavio.pki import server_name
from snavio.rpc.capability import CAPABILITY_KEY, CapabilityProvider
from snavio.rpc.connection_options import CLIENT_SIZES, COMMON_OPTIONS, Options
from snavio.rpc.credentials import CertificateBundle, CertificateFiles, CertificateWatch, channel_credentials
from snavio.rpc.proto_message import ProtoMessage
from snavio.rpc.status import error_of

Response = TypeVar("Response", bound=ProtoMessage)

# A check costs three stats; a certificate of a few minutes must be followed before it ends.
_LOOK_INTERVAL_NS: Final = 250_000_000
_RETIRE_GRACE_S: Final = 120.0


class MeshChannel:
    """Calls to one mesh service. Connects at the first call and again after every loss."""

    def __init__(
        self,
        address: str,
        *,
        files: CertificateFiles,
        service: str,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
        clock: Clock | None = None,
        retire_grace_s: float = _RETIRE_GRACE_S,
        capability_provider: CapabilityProvider | None = None,
    ) -> None:
        self.address = address
        self.service = service
        self._files = files
        self._clock = clock or SystemClock()
        self._retire_grace_s = retire_grace_s
        self._capability_provider = capability_provider
        name = server_name(Identity(trust_domain, IdentityKind.MESH, service))
        assert name is not None
        self._options = _options(name)
        self._watch: CertificateWatch | None = None
        self._channel: Any = None
        self._unary: dict[str, Callable[..., Any]] = {}
        self._generation = 0
        self._looked_mono_ns = 0
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False
        self._streamed_with: str | None = None

    async def call(
        self, method: str, request: ProtoMessage, response_type: type[Response], *, timeout_s: float
    ) -> Response:
        """One request, one response; raises the SnavioError that the other end raised."""
        answer = await self.call_raw(method, request.SerializeToString(), timeout_s=timeout_s)
        try:
            return response_type.FromString(answer)
        except DecodeError:
            raise IntegrityError(f"The answer of {method} cannot be read.", reason="malformed") from None

    async def call_raw(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """As `call`, with both messages as bytes of the wire."""
        capability_provider = self._capability_provider
        presented = None if capability_provider is None else capability_provider.present()
        try:
            return await self._unary_call(method, request, presented, timeout_s)
        except Unauthenticated as error:
            # A call that was refused for its capability has done nothing, so it may be made again with another.
            if capability_provider is None or not capability_provider.helps(error):
                raise
            await capability_provider.replace(error, presented)
        try:
            return await self._unary_call(method, request, capability_provider.present(), timeout_s)
        except Unauthenticated as error:
            if not capability_provider.helps(error):
                raise
            # The mailbox has not pulled the root of the new capability yet; that passes.
            raise Unavailable(str(error), reason=error.reason) from None

    async def _unary_call(
        self, method: str, request: bytes, presented: str | None, timeout_s: float
    ) -> bytes:
        channel = self._current()
        unary = self._unary.get(method)
        if unary is None:
            unary = self._unary[method] = channel.unary_unary(method)
        try:
            answer: bytes = await unary(request, timeout=timeout_s, metadata=_metadata(presented))
        except grpc.aio.AioRpcError as error:
            raise error_of(error, peer=self.service.capitalize(), address=self.address) from None
        return answer

    def stream(self, method: str) -> Any:
        """A bidirectional stream of raw bytes: a `grpc.aio.StreamStreamCall`.

        Its errors are gRPC's; `status.error_of` converts them. A client that keeps one open compares `generation` now
        and then: after a renewal the server refuses the old certificate once it has expired.
        """
        self._streamed_with = (
            None if self._capability_provider is None else self._capability_provider.present()
        )
        return self._current().stream_stream(method)(metadata=_metadata(self._streamed_with))

    async def heed(self, rpc_error: Any, *, strict: bool = False) -> bool:
        """Evaluate the end of a stream: if its capability was refused, get another before the next one is opened.

        True in that case, so that another stream may succeed. With `strict`, the error when there is none to be had.
        """
        if self._capability_provider is None:
            return False
        error = error_of(rpc_error)
        if not isinstance(error, Unauthenticated) or not self._capability_provider.helps(error):
            return False
        try:
            await self._capability_provider.replace(error, self._streamed_with)
        except SnavioError:
            # What does not succeed now is tried again after the next refusal.
            if strict:
                raise
        return True

    def generation(self) -> int:
        """Grows with every renewal of the certificate and of the capability that this channel has followed."""
        self._current()
        return self._generation + (
            0 if self._capability_provider is None else self._capability_provider.generation()
        )

    def reload(self) -> None:
        """Look at the certificate files before the next call, however shortly ago that was."""
        self._looked_mono_ns -= _LOOK_INTERVAL_NS

    async def close(self) -> None:
        """Cancel calls in progress and a renewal of the capability, and close every connection."""
        self._closed = True
        retiring = list(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        if self._capability_provider is not None:
            await self._capability_provider.close()
        channel, self._channel = self._channel, None
        self._unary = {}
        if channel is not None:
            await channel.close()

    def _current(self) -> Any:
        if self._closed:
            raise Unavailable(f"The channel to {self.service} is closed.", reason="closed")
        now = self._clock.mono_ns()
        if self._channel is None:
            # Reading at the first use, not before: three small files, once.
            self._watch = CertificateWatch(self._files)
            self._looked_mono_ns = now
            self._open(self._watch.bundle)
        elif now - self._looked_mono_ns >= _LOOK_INTERVAL_NS:
            self._looked_mono_ns = now
            assert self._watch is not None
            renewed = self._watch.renewed()
            if renewed is not None:
                self._retire(self._channel)
                self._open(renewed)
        return self._channel

    def _open(self, bundle: CertificateBundle) -> None:
        self._channel = grpc.aio.secure_channel(
            self.address, channel_credentials(bundle), options=self._options
        )
        self._unary = {}
        self._generation += 1

    def _retire(self, channel: Any) -> None:
        task = background().once("retire channel", self._close_gently(channel))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _close_gently(self, channel: Any) -> None:
        try:
            await channel.close(self._retire_grace_s)
        finally:
            # Cancelled while waiting: the connection must still not outlive us.
            await channel.close()


async def call_once(
    channel: MeshChannel, method: str, request: ProtoMessage, response: type[Response], *, timeout_s: float
) -> Response:
    """The only call over a channel, which is closed behind it: no connection stays open between rare calls."""
    try:
        return await channel.call(method, request, response, timeout_s=timeout_s)
    finally:
        await channel.close()


def _metadata(presented: str | None) -> tuple[tuple[str, str], ...] | None:
    return None if presented is None else ((CAPABILITY_KEY, presented),)


def _options(name: str) -> Options:
    return (
        *COMMON_OPTIONS,
        *CLIENT_SIZES,
        ("grpc.ssl_target_name_override", name),
        ("grpc.enable_retries", 0),
        # A proxy from the environment could only see ciphertext, and would break every call to loopback.
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Connections are pooled per process by address; after a renewal we want a new one.
        ("grpc.use_local_subchannel_pool", 1),
        # A restarted service is back within seconds, so reconnections must be quick.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", 5000),
    )
