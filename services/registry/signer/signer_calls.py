"""Registry's calls to Signer when the directory changes: keys, enrolment tokens, and rights to act as a service.

Never decides anything, and never keeps a token longer than it takes to answer with it.
"""

from __future__ import annotations

from typing import TypeVar

import structlog

from services.registry.reads.preflight import KeyStanding
from snavio.domain.directory import Principal, Service
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import NotFound, Saturated, SnavioError, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.proto_message import ProtoMessage
from snavio.v1 import signer_pb2 as signer

_AT = "/snavio.v1.Signer/"

M = TypeVar("M", bound=ProtoMessage)


class SignerCalls:
    """Signer as Registry uses it. Every call may be repeated without harm."""

    def __init__(self, channel: MeshChannel, *, timeout_s: float) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._log = structlog.get_logger()

    async def keyset(self, source: str) -> None:
        """Make the source's first HMAC key, if it has none."""
        await self._call("CreateKeyset", signer.CreateKeysetRequest(source=source), signer.KeysetStatus)

    async def key_state(self, source: str) -> KeyStanding | None:
        """The source's HMAC keys; None when Signer cannot answer now."""
        try:
            request = signer.DescribeKeysetsRequest(source=source)
            answer = await self._call("DescribeKeysets", request, signer.DescribeKeysetsResponse)
        except NotFound as error:
            return KeyStanding() if error.reason == "no-keyset" else None
        except SnavioError:
            return None
        if not answer.keyset:
            return KeyStanding()
        status = answer.keyset[0]
        return KeyStanding(
            known=True,
            primary=status.primary,
            last_poll_unix_ns=status.last_poll_unix_ns,
            next_rotation_unix_ns=status.next_rotation_unix_ns,
        )

    async def principals(self, service: Service, *, suspended: bool) -> None:
        """Set the principals that may act as a service."""
        request = signer.SetServicePrincipalsRequest(
            source=service.source, principal=service.principals, suspended=suspended
        )
        await self._call("SetServicePrincipals", request, signer.SetServicePrincipalsResponse)

    async def remove(self, service: Service) -> None:
        """End the right of every principal to act as a service, and the certificates for it."""
        await self._channel.call(
            _AT + "SetServicePrincipals",
            signer.SetServicePrincipalsRequest(source=service.source, removed=True),
            signer.SetServicePrincipalsResponse,
            timeout_s=self._timeout_s,
        )

    async def dismiss(self, principal: Principal, *, trust_domain: str) -> None:
        """End the certificates of a principal that the directory names no more; an operator can restore it."""
        identity = Identity(trust_domain, IdentityKind.PRINCIPAL, principal.principal, principal.tenant)
        request = signer.RevokeIdentityRequest(
            spiffe_id=identity.spiffe_id, reason="removed from the directory"
        )
        await self._call("RevokeIdentity", request, signer.RevokeIdentityResponse)

    async def enrolment(self, tenant: str, principal: str) -> signer.CreateEnrolmentResponse | None:
        """A token for a principal of a new tenant; None when Signer cannot make one now.

        The tenant is written by then, and an error would say that it is not; a token can be made later.
        """
        try:
            return await self.token(tenant, principal)
        except (Unavailable, Saturated) as error:
            self._log.warning("no enrolment token for a new tenant", tenant=tenant, reason=error.reason)
            return None

    async def token(
        self, tenant: str, principal: str, *, ttl_s: int = 0, actor: str = ""
    ) -> signer.CreateEnrolmentResponse:
        """A token for a principal of a tenant, which the caller knows to exist."""
        request = signer.CreateEnrolmentRequest(
            tenant=tenant, principal=principal, ttl_seconds=ttl_s, on_behalf_of=actor
        )
        return await self._call("CreateEnrolment", request, signer.CreateEnrolmentResponse)

    async def _call(self, method: str, request: ProtoMessage, response: type[M]) -> M:
        return await self._channel.call(_AT + method, request, response, timeout_s=self._timeout_s)
