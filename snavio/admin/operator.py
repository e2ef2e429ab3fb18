"""Client of operators and principals for Signer and Registry.

Never keeps a private key in memory longer than it takes to write it to its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity
from snavio.pki import make_key_and_csr, write_certificate_folder
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.proto_message import ProtoMessage
from snavio.sdk.lifetime import Closable
from snavio.v1 import registry_pb2 as registry
from snavio.v1 import signer_pb2 as signer

CALL_SECONDS = 5.0

M = TypeVar("M", bound=ProtoMessage)


class Operator(Closable):
    """A client of the control plane, under the certificate in `certificates`."""

    def __init__(
        self,
        *,
        signer_address: str,
        registry_address: str,
        certificates: Path,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._signer = MeshChannel(signer_address, files=files, service="signer", trust_domain=trust_domain)
        self._registry = MeshChannel(
            registry_address, files=files, service="registry", trust_domain=trust_domain
        )

    async def close(self) -> None:
        """Let go of both connections."""
        await self._signer.close()
        await self._registry.close()

    async def certify(self, identity: Identity, folder: Path, *, ttl_seconds: int = 0) -> str:
        """Make a key, have it certified for `identity`, write both to `folder`; returns the serial."""
        private_key_pem, csr_pem = make_key_and_csr()
        request = signer.IssueCertificateRequest(
            csr_pem=csr_pem.decode(), spiffe_id=identity.spiffe_id, ttl_seconds=ttl_seconds
        )
        issued = await self._ask_signer("IssueCertificate", request, signer.IssueCertificateResponse)
        write_certificate_folder(
            folder,
            certificate_pem=issued.certificate_pem.encode(),
            private_key_pem=private_key_pem,
            ca_pem=issued.ca_pem.encode(),
        )
        return str(issued.serial)

    async def revoke_certificate(self, serial: str, *, reason: str) -> None:
        """Put a certificate on the denylist."""
        request = signer.RevokeCertificateRequest(serial=serial, reason=reason)
        await self._ask_signer("RevokeCertificate", request, signer.RevokeCertificateResponse)

    async def rotate_key(self, source: str) -> str:
        """Add a key version for `source`; returns the version that is primary now."""
        request = signer.RotateKeysetRequest(source=source)
        return str((await self._ask_signer("RotateKeyset", request, signer.KeysetStatus)).primary)

    async def revoke_key(self, source: str, key_version: str) -> str:
        """End a key version at once; returns the version that is primary now."""
        request = signer.RevokeKeyRequest(source=source, key_version=key_version)
        return str((await self._ask_signer("RevokeKey", request, signer.KeysetStatus)).primary)

    async def create_tenant(self, tenant: str) -> int:
        """Create a tenant; returns the directory's version, as all writes below do."""
        return await self._write(
            "CreateTenant", registry.CreateTenantRequest(tenant=registry.Tenant(tenant=tenant))
        )

    async def register_service(self, tenant: str, service: str) -> int:
        """Register a service and make its key set."""
        value = registry.Service(tenant=tenant, service=service)
        return await self._write("RegisterService", registry.RegisterServiceRequest(service=value))

    async def claim_target(self, target: str, tenant: str) -> int:
        """Claim a target's name for a tenant."""
        value = registry.Target(target=target, tenant=tenant)
        return await self._write("ClaimTarget", registry.ClaimTargetRequest(target=value))

    async def put_route(
        self,
        target: str,
        name: str,
        *,
        profile: registry.Profile = registry.PROFILE_LOW,
        queue_kind: registry.QueueKind = registry.QUEUE_KIND_MAILBOX,
    ) -> int:
        """Route a command of a target to its queue: its mailbox topic, unless another kind is named."""
        value = registry.Route(target=target, name=name, profile=profile, queue_kind=queue_kind)
        return await self._write("PutRoute", registry.PutRouteRequest(route=value))

    async def delete_route(self, target: str, name: str) -> int:
        """Take a route away."""
        return await self._write("DeleteRoute", registry.DeleteRouteRequest(target=target, name=name))

    async def grant(self, source: str, target: str, name: str) -> int:
        """Let a source send a command to a target."""
        value = registry.AclEntry(source=source, target=target, name=name)
        return await self._write("GrantAccess", registry.GrantAccessRequest(acl=value))

    async def revoke(self, source: str, target: str, name: str) -> int:
        """Take that right away."""
        value = registry.AclEntry(source=source, target=target, name=name)
        return await self._write("RevokeAccess", registry.RevokeAccessRequest(acl=value))

    async def set_suspended(self, source: str, suspended: bool, *, reason: str = "") -> int:
        """Suspend a source, or end its suspension."""
        value = registry.Suspension(source=source, reason=reason)
        return await self._write(
            "SetSuspension", registry.SetSuspensionRequest(suspension=value, suspended=suspended)
        )

    async def followers(self, service: str) -> list[registry.Follower]:
        """The processes of a service that act on the directory, and which version each has applied."""
        answer = await self._registry.call(
            "/snavio.v1.Registry/Followers",
            registry.FollowersRequest(),
            registry.FollowersResponse,
            timeout_s=CALL_SECONDS,
        )
        return [each for each in answer.follower if each.service == service]

    async def _ask_signer(self, method: str, request: ProtoMessage, response: type[M]) -> M:
        return await self._signer.call(
            f"/snavio.v1.Signer/{method}", request, response, timeout_s=CALL_SECONDS
        )

    async def _write(self, method: str, request: ProtoMessage) -> int:
        answer = await self._registry.call(
            f"/snavio.v1.Registry/{method}", request, registry.WriteResponse, timeout_s=CALL_SECONDS
        )
        return int(answer.version)
