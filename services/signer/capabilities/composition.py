"""Composes the capabilities of Signer: their ledger, their issuer and its methods.

Never issues one before the ledger of what was revoked is open.
"""

from __future__ import annotations

from typing import Final

from services.signer.capabilities.checking import CapabilityCheck
from services.signer.capabilities.issuing import CapabilityIssuer
from services.signer.certificates.issuing import CertificateIssuer
from services.signer.settings import SignerSettings
from services.signer.wire.capability_servicer import CapabilityServicer
from snavio.host.service import ServiceHost
from snavio.ports.keystore import KeyStore
from snavio.rpc.methods import Methods
from snavio.wiring import open_capability_ledger

MAX_CAPABILITY_REVOCATIONS: Final = 200_000


async def compose_capabilities(
    host: ServiceHost,
    settings: SignerSettings,
    *,
    store: KeyStore,
    certificates: CertificateIssuer,
    methods: Methods,
) -> None:
    """Open the ledger, make the first root if there is none, and register the methods."""
    mesh = host.mesh
    ledger = host.hold(
        await open_capability_ledger(
            settings.capabilities_path(mesh),
            limit=mesh.share("capability_revocations", MAX_CAPABILITY_REVOCATIONS),
        )
    )
    host.introspection.shares(ledger.shares)
    capabilities = CapabilityIssuer(
        store=store,
        ledger=ledger,
        certificates=certificates,
        clock=host.clock,
        trust_domain=mesh.trust_domain,
        ttl_s=settings.capability_ttl_s,
        max_ttl_s=settings.capability_max_ttl_s,
        delay_ns=round(settings.distribution_delay_s * 1e9),
        overlap_ns=round(settings.overlap_s * 1e9),
    )
    await capabilities.start()
    check = CapabilityCheck(issuer=capabilities, ledger=ledger, clock=host.clock)
    CapabilityServicer(capabilities=capabilities, check=check, trust_domain=mesh.trust_domain).register(
        methods
    )
