"""Puts Signer together: sealed store, CA, keys, certificates, server.

Never starts without a CA: making one is `init`'s, once, and not a side effect of serving.
"""

from __future__ import annotations

from services.signer.certificates import MAX_PAGE, Certificates
from services.signer.keysets import Keysets
from services.signer.servicer import SignerServicer
from services.signer.settings import SignerSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import StateError
from snavio.pki import CertificateAuthority
from snavio.ports.keystore import KeyStore
from snavio.transport.credentials import CertificateFiles
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.server import MeshServer
from snavio.wiring import open_key_store

DRAIN_SECONDS = 5.0


class SignerApp:
    """One Signer process."""

    def __init__(self, mesh: MeshSettings, settings: SignerSettings, *, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._store: KeyStore | None = None
        self._server: MeshServer | None = None

    async def start(self) -> int:
        """Open the store and serve; returns the port."""
        mesh, settings, clock = self._mesh, self._settings, self._clock
        store = self._store = await open_key_store(
            settings.store_path(mesh), sealing_key=settings.sealing_key_path(mesh)
        )
        authority = await store.authority()
        if authority is None:
            raise StateError(
                "This installation has no CA; run `python -m services.signer init`.", reason="no-ca"
            )
        ca = CertificateAuthority.from_pem(
            authority.certificate_pem.encode(), authority.private_key_pem.encode()
        )
        certificates = Certificates(
            ca=ca, store=store, clock=clock, trust_domain=mesh.trust_domain, ttl_s=settings.ttl_s
        )
        gate = Gate(clock=clock)
        await _fill(gate, certificates)
        servicer = SignerServicer(
            keysets=Keysets(
                store=store,
                clock=clock,
                delay_ns=round(settings.distribution_delay_s * 1e9),
                overlap_ns=round(settings.overlap_s * 1e9),
            ),
            certificates=certificates,
            gate=gate,
            clock=clock,
            poll_after_s=settings.poll_after_s,
        )
        methods = servicer.methods()
        Introspection("signer", clock=clock).register(methods)
        self._server = MeshServer(
            listen=settings.listen or mesh.signer,
            files=CertificateFiles.in_folder(mesh.certificates("signer")),
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
        )
        return await self._server.start()

    async def drain(self) -> None:
        """Finish calls under way, then release the store."""
        if self._server is not None:
            await self._server.drain(DRAIN_SECONDS)
        if self._store is not None:
            await self._store.close()


async def _fill(gate: Gate, certificates: Certificates) -> None:
    version = 0
    while True:
        page = await certificates.denylist(version)
        gate.revoke(revocation.serial for revocation in page.revocations)
        if len(page.revocations) < MAX_PAGE:
            return
        version = page.version


def build(mesh: MeshSettings, settings: SignerSettings, clock: Clock) -> SignerApp:
    """Signer, composed and not yet started."""
    return SignerApp(mesh, settings, clock=clock)
