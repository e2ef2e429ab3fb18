"""Gives a new instance of a service its first certificate, for a join token that was made on Signer's machine.

Does nothing where the instance has one: a token that was left in place is not spent at the next start. Never shows the
token: its file is read, and what is wrong with it is told without quoting it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from snavio.config import MeshSettings
from snavio.errors import StateError, Unavailable
from snavio.pki import CERTIFICATE_FILE
from snavio.sdk.enrolment import enroll

TOKEN_BYTES: Final = 4096
WITHIN_S: Final = 60.0
PAUSE_S: Final = 0.5


async def join(service: str, mesh: MeshSettings, *, within_s: float = WITHIN_S) -> bool:
    """Enrol `service` if it has no certificate and `[mesh] join_token` is set; True if it did.

    Waits for the file and for Signer `within_s`: in a deployment everything starts at once. A token that is refused is
    told at once, for waiting would not make it good.
    """
    folder = mesh.certificates(service)
    if mesh.join_token is None or (folder / CERTIFICATE_FILE).exists():
        return False
    if mesh.enrolment is None:
        raise StateError(
            "join_token needs [mesh] enrolment: the address at which Signer lets newcomers in.",
            reason="no-enrolment",
        )
    log = structlog.get_logger()
    loop = asyncio.get_running_loop()
    ends, told = loop.time() + within_s, ""
    while True:
        try:
            token = await asyncio.to_thread(_token, mesh.join_token)
            enrolled = await enroll(token, address=mesh.enrolment, folder=folder, service=service)
        except Unavailable as error:
            if loop.time() >= ends:
                raise
            if error.reason != told:
                log.warning("joining waits", reason=error.reason, detail=str(error))
                told = error.reason
            await asyncio.sleep(PAUSE_S)
            continue
        if abs(enrolled.ahead_s) > 30:
            log.warning("clock differs from the mesh's", ahead_s=round(enrolled.ahead_s))
        log.info("joined", identity=enrolled.identity.spiffe_id, serial=enrolled.serial)
        return True


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_BYTES + 1).decode("ascii", "strict").strip()
    except UnicodeDecodeError:
        raise StateError(f"{path} holds no join token.", reason="bad-token") from None
    except FileNotFoundError:
        raise Unavailable(f"The join token {path} is not there yet.", reason="no-join-token") from None
    except OSError as error:
        raise StateError(
            f"The join token {path} cannot be read: {error.strerror}.", reason="bad-token"
        ) from None
    if not text:
        raise Unavailable(f"The join token {path} is empty.", reason="no-join-token")
    if len(text) > TOKEN_BYTES:
        raise StateError(f"{path} holds no join token.", reason="bad-token")
    return text
