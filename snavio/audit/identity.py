"""The identity of the auditing jobs: `job/spark`, with a certificate of its own beside the operator's.

Never lets a job act as the operator: what it may say to Registry is in the table of rights. A job may not renew itself,
so that a stolen certificate ends with its day; the operator on whose machine it runs does that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cryptography import x509

from snavio.admin.bans import JOB_FOLDER
from snavio.admin.operator import Operator
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.pki import CERTIFICATE_FILE, not_after_unix_ns
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import mesh_renewal

NAME: Final = "spark"
SOON_NS: Final = 30 * 60_000_000_000


async def job_certificates(mesh: MeshSettings, *, operator_certificates: Path, clock: Clock) -> Path:
    """The folder with the job's certificate, made by the operator where it is missing or ends soon."""
    folder = mesh.certificates(JOB_FOLDER)
    if _ends(folder) < clock.unix_ns() + SOON_NS:
        async with Operator(
            signer_address=mesh.signer,
            registry_address=mesh.registry,
            certificates=operator_certificates,
            trust_domain=mesh.trust_domain,
        ) as operator:
            await operator.certify(Identity(mesh.trust_domain, IdentityKind.JOB, NAME), folder)
    return folder


@asynccontextmanager
async def renewed(
    folder: Path, mesh: MeshSettings, *, operator_certificates: Path, clock: Clock
) -> AsyncIterator[None]:
    """Within the block, the operator renews the job's certificate in time; channels follow the files by themselves."""
    signer = MeshChannel(
        mesh.signer,
        files=CertificateFiles.in_folder(operator_certificates),
        service="signer",
        trust_domain=mesh.trust_domain,
    )
    renewal = mesh_renewal(folder, signer, clock=clock)
    renewal.start()
    try:
        yield
    finally:
        await renewal.stop()
        await signer.close()


def _ends(folder: Path) -> int:
    try:
        leaf = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
    except (OSError, ValueError):
        return 0
    return not_after_unix_ns(leaf)
