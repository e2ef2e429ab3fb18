"""Asks the Signer that runs on this machine for a join token, with Signer's own certificate.

That certificate lies in Signer's state folder and nowhere else, so what it permits takes that machine.
"""

from __future__ import annotations

from snavio.config import MeshSettings
from snavio.errors import BadRequest, StateError
from snavio.pki import CERTIFICATE_FILE
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.signer_pb2 import CreateJoiningRequest, CreateJoiningResponse

CALL_SECONDS = 10.0


async def make_join_token(mesh: MeshSettings, service: str, *, ttl_s: int) -> str:
    """The token; StateError on a machine that is not Signer's."""
    folder = mesh.certificates("signer")
    if not (folder / CERTIFICATE_FILE).exists():
        raise StateError(
            f"{folder} holds no certificate: join tokens are made on Signer's machine, with its state folder.",
            reason="no-certificate",
        )
    if ttl_s < 1:
        raise BadRequest("--ttl-s must be at least 1.", reason="bad-field")
    channel = MeshChannel(
        mesh.signer,
        files=CertificateFiles.in_folder(folder),
        service="signer",
        trust_domain=mesh.trust_domain,
    )
    try:
        made = await channel.call(
            "/snavio.v1.Signer/CreateJoining",
            CreateJoiningRequest(service=service, ttl_seconds=ttl_s),
            CreateJoiningResponse,
            timeout_s=CALL_SECONDS,
        )
    finally:
        await channel.close()
    return made.token
