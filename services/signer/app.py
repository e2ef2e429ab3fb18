"""Composes Signer: sealed store, CA, certificates, capabilities and keys.

Never starts without a CA: making one is `init`'s, once, and not a side effect of serving.
"""

from __future__ import annotations

from services.signer.capabilities.composition import compose_capabilities
from services.signer.certificates.composition import SignerCertificates, compose_certificates, open_door
from services.signer.keys.composition import SignerKeys, compose_keys
from services.signer.settings import SignerSettings
from snavio.errors import StateError
from snavio.host.service import HostedService
from snavio.pki import CertificateAuthority
from snavio.ports.keystore import KeyStore
from snavio.rpc.methods import Methods
from snavio.wiring import open_key_store


class SignerApp(HostedService[SignerSettings]):
    """One Signer process. Tests may look at its attributes, once it has started."""

    service = "signer"
    # Others follow its denylist and have their certificates renewed by it; it does both itself.
    follows_signer = False
    store: KeyStore
    certificates: SignerCertificates
    keys: SignerKeys
    enrolment_port = 0

    async def compose(self) -> int:
        """Open the store, make everything ready, open the enrolment door, then serve."""
        host, settings, methods = self.host, self._settings, Methods()
        store = self.store = host.hold(
            await open_key_store(
                settings.store_path(host.mesh),
                sealing_key=settings.sealing_key_path(host.mesh),
                kms=settings.kms(host.mesh),
            )
        )
        authority = await store.authority()
        if authority is None:
            raise StateError(
                "This installation has no CA; run `python -m services.signer init`.", reason="no-ca"
            )
        ca = CertificateAuthority.from_pem(
            authority.certificate_pem.encode(), authority.private_key_pem.encode()
        )
        certificates = self.certificates = await compose_certificates(
            host, settings, ca=ca, store=store, methods=methods
        )
        await compose_capabilities(
            host, settings, store=store, certificates=certificates.issuer, methods=methods
        )
        self.keys = await compose_keys(host, settings, store=store, methods=methods)
        self.enrolment_port = await open_door(host, certificates.door)
        return await host.serve(methods)
