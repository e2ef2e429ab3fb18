"""Asks the Signer that runs on this machine for join tokens, with Signer's own certificate.

That certificate lies in Signer's state folder and nowhere else, so what it permits takes that machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from snavio.config import MeshSettings
from snavio.errors import BadRequest, StateError
from snavio.pki import CERTIFICATE_FILE
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.signer_pb2 import CreateJoiningRequest, CreateJoiningResponse

CALL_SECONDS = 10.0


async def make_join_tokens(mesh: MeshSettings, services: Sequence[str], *, ttl_s: int) -> list[str]:
    """A token for each; StateError on a machine that is not Signer's."""
    folder = mesh.certificates("signer")
    if not (folder / CERTIFICATE_FILE).exists():
        raise StateError(
            f"{folder} holds no certificate: join tokens are made on Signer's machine, with its state folder.",
            reason="no-certificate",
        )
    if ttl_s < 1:
        raise BadRequest("--ttl-s must be at least 1.", reason="bad-field")
    files = CertificateFiles.in_folder(folder)
    channel = MeshChannel(mesh.signer, files=files, service="signer", trust_domain=mesh.trust_domain)
    try:
        return [await _token(channel, service, ttl_s) for service in services]
    finally:
        await channel.close()


async def _token(channel: MeshChannel, service: str, ttl_s: int) -> str:
    made = await channel.call(
        "/snavio.v1.Signer/CreateJoining",
        CreateJoiningRequest(service=service, ttl_seconds=ttl_s),
        CreateJoiningResponse,
        timeout_s=CALL_SECONDS,
    )
    return made.token


def write_token(path: Path, token: str) -> None:
    """Write a token for its owner alone, whole or not at all: who waits for the file must not read half of it."""
    trial = path.with_suffix(".part")
    # Never into a file that was there: whoever laid it there can read what is written to it.
    trial.unlink(missing_ok=True)
    descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    trial.rename(path)
