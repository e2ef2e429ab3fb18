"""Calls the methods of one service under one certificate.

Never retries: only the caller knows if a call may be made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, TypeVar

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.proto_message import ProtoMessage
from snavio.sdk.lifetime import Closable

M = TypeVar("M", bound=ProtoMessage)


class ServiceClient(Closable):
    """A client of `service` at `address`, under the certificate in `certificates`."""

    service: ClassVar[str]
    """As its certificate names it; its methods are those of `snavio.v1` under the same name."""
    call_seconds: ClassVar[float] = 5.0
    """Time limit of a call that sets none."""

    def __init__(self, address: str, *, certificates: Path, trust_domain: str = DEFAULT_TRUST_DOMAIN) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._channel = MeshChannel(address, files=files, service=self.service, trust_domain=trust_domain)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._channel.close()

    async def _call(
        self, method: str, request: ProtoMessage, response: type[M], *, timeout_s: float | None = None
    ) -> M:
        return await self._channel.call(
            f"/snavio.v1.{self.service.capitalize()}/{method}",
            request,
            response,
            timeout_s=self.call_seconds if timeout_s is None else timeout_s,
        )


class RegistryClient(ServiceClient):
    """A client of Registry."""

    service = "registry"


class SignerClient(ServiceClient):
    """A client of Signer."""

    service = "signer"
