"""The wire's face of Signer: protobuf in, decisions, protobuf out.

Never puts a secret into an answer except those of KeysetChanges and TenantConfig, which the authorisation
table reserves for Shield and for the source itself.
"""

from __future__ import annotations

from services.signer.certificates import Certificates
from services.signer.keysets import Keysets
from snavio.clock import Clock
from snavio.domain.keyset import Keyset
from snavio.transport.gate import Gate
from snavio.transport.server import Call, Methods
from snavio.v1 import signer_pb2 as wire


class SignerServicer:
    """Every method of `snavio.v1.Signer`."""

    def __init__(
        self, *, keysets: Keysets, certificates: Certificates, gate: Gate, clock: Clock, poll_after_s: int
    ) -> None:
        self._keysets = keysets
        self._certificates = certificates
        self._gate = gate
        self._clock = clock
        self._poll_after_s = poll_after_s

    def methods(self) -> Methods:
        """Handlers for the server."""
        methods = Methods()
        at = "/snavio.v1.Signer/"
        methods.unary(at + "IssueCertificate", self.issue_certificate, wire.IssueCertificateRequest)
        methods.unary(at + "RevokeCertificate", self.revoke_certificate, wire.RevokeCertificateRequest)
        methods.unary(at + "Denylist", self.denylist, wire.DenylistRequest)
        methods.unary(at + "CreateKeyset", self.create_keyset, wire.CreateKeysetRequest)
        methods.unary(at + "RotateKeyset", self.rotate_keyset, wire.RotateKeysetRequest)
        methods.unary(at + "RevokeKey", self.revoke_key, wire.RevokeKeyRequest)
        methods.unary(at + "KeysetChanges", self.keyset_changes, wire.KeysetChangesRequest)
        methods.unary(at + "TenantConfig", self.tenant_config, wire.TenantConfigRequest)
        return methods

    async def issue_certificate(
        self, request: wire.IssueCertificateRequest, call: Call
    ) -> wire.IssueCertificateResponse:
        issued = self._certificates.issue(
            csr_pem=request.csr_pem,
            spiffe_id=request.spiffe_id,
            ttl_s=request.ttl_seconds,
            caller=call.peer.identity,
        )
        return wire.IssueCertificateResponse(
            certificate_pem=issued.certificate_pem,
            ca_pem=issued.ca_pem,
            serial=issued.serial,
            not_after_unix_ns=issued.not_after_ns,
        )

    async def revoke_certificate(
        self, request: wire.RevokeCertificateRequest, call: Call
    ) -> wire.RevokeCertificateResponse:
        version = await self._certificates.revoke(
            serial=request.serial, reason=request.reason, caller=call.peer.identity
        )
        # Signer pulls from nobody: its own gate learns here, and from the store at start.
        self._gate.revoke([request.serial])
        return wire.RevokeCertificateResponse(version=version)

    async def denylist(self, request: wire.DenylistRequest, _call: Call) -> wire.DenylistResponse:
        page = await self._certificates.denylist(request.since_version)
        return wire.DenylistResponse(
            version=page.version, serial=[revocation.serial for revocation in page.revocations]
        )

    async def create_keyset(self, request: wire.CreateKeysetRequest, call: Call) -> wire.KeysetStatus:
        return self._status(await self._keysets.create(request.source, actor=str(call.peer.identity)))

    async def rotate_keyset(self, request: wire.RotateKeysetRequest, call: Call) -> wire.KeysetStatus:
        return self._status(await self._keysets.rotate(request.source, actor=str(call.peer.identity)))

    async def revoke_key(self, request: wire.RevokeKeyRequest, call: Call) -> wire.KeysetStatus:
        keyset = await self._keysets.revoke(
            request.source, request.key_version, actor=str(call.peer.identity)
        )
        return self._status(keyset)

    async def keyset_changes(
        self, request: wire.KeysetChangesRequest, _call: Call
    ) -> wire.KeysetChangesResponse:
        page = await self._keysets.changes(request.since_version, limit=request.limit)
        return wire.KeysetChangesResponse(
            version=page.version,
            keyset=[_keyset(keyset, secrets=True) for keyset in page.keysets],
            more=page.more,
            store_epoch=page.store_epoch,
        )

    async def tenant_config(
        self, _request: wire.TenantConfigRequest, call: Call
    ) -> wire.TenantConfigResponse:
        # The source comes from the certificate; there is no field in which to ask for another's.
        keyset = await self._keysets.of(call.peer.identity.source)
        return wire.TenantConfigResponse(
            keyset=_keyset(keyset, secrets=True),
            primary=self._primary(keyset),
            poll_after_seconds=self._poll_after_s,
        )

    def _status(self, keyset: Keyset) -> wire.KeysetStatus:
        return wire.KeysetStatus(keyset=_keyset(keyset, secrets=False), primary=self._primary(keyset))

    def _primary(self, keyset: Keyset) -> str:
        primary = keyset.primary(self._clock.unix_ns())
        return primary.name if primary is not None else ""


def _keyset(keyset: Keyset, *, secrets: bool) -> wire.Keyset:
    return wire.Keyset(
        source=keyset.source,
        version=[
            wire.KeyVersion(
                version=version.name,
                secret=version.secret if secrets else b"",
                not_before_unix_ns=version.not_before_ns,
                not_after_unix_ns=version.not_after_ns,
                primary_from_unix_ns=version.primary_from_ns,
                revoked=version.revoked,
            )
            for version in keyset.versions
        ],
    )
