"""Joins a mesh with an invitation: trusts its CA, becomes a principal, and keeps both as a context.

Never sends the token to another mesh than the one that invited, never spends it where the result could not be kept, and
never takes a context away from another mesh.
"""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from snavio.clock import Clock
from snavio.domain.identity import valid_name
from snavio.domain.invitation import Invitation
from snavio.errors import BadRequest, Conflict, IntegrityError, NotAllowed, StateError, Unavailable
from snavio.sdk.context import CERTIFICATES, FOLDER_VARIABLE, IDENTITIES, Context, ContextFile
from snavio.sdk.enrolment import EnrolmentResult, enroll

LOCK_SECONDS: Final = 30.0
LOCK_PAUSE_S: Final = 0.05
OFF_SECONDS: Final = 60.0
"""A clock that is further off than this has its commands refused; see docs/clock.md."""


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The context after a join."""

    context: Context
    enrolled: EnrolmentResult

    @property
    def clock_off_s(self) -> float:
        """Seconds that this machine's clock is ahead of the mesh's, negative when behind; 0 while that is harmless."""
        return self.enrolled.ahead_s if abs(self.enrolled.ahead_s) > OFF_SECONDS / 2 else 0.0


async def join(
    invitation: Invitation, *, file: ContextFile, clock: Clock, principal: str = "", name: str = ""
) -> JoinResult:
    """Enrol, write identity and context, and make the context the one in use.

    `principal` where the invitation leaves it open; `name` of the context, by default `<tenant>-<principal>`.
    """
    _require_open(invitation, clock)
    principal = _principal(invitation, principal)
    name = name or f"{invitation.tenant}-{principal}"[:63]
    fingerprint = invitation.token.fingerprint.hex()
    folder = file.folder / IDENTITIES / name / CERTIFICATES
    # Valid before the token is spent, as everything that can be known before.
    context = Context(
        name=name,
        identity=folder / f"{invitation.tenant}-{principal}",
        tenant=invitation.tenant,
        ca_sha256=fingerprint,
        trust_domain=invitation.trust_domain,
        addresses=invitation.addresses,
    )
    async with _alone(folder):
        _require_ours(file, context)
        file.check_writable()
        enrolled = await _enrol(invitation, folder, principal)
        if enrolled.identity.tenant != invitation.tenant:
            raise IntegrityError(
                "The certificate that came back is of another tenant.", reason="bad-certificate"
            )
        await asyncio.to_thread(file.put, context, use=True)
    return JoinResult(context, enrolled)


async def _enrol(invitation: Invitation, folder: Path, principal: str) -> EnrolmentResult:
    address = invitation.addresses["enrolment"]
    try:
        return await enroll(
            invitation.token.text, address=address, folder=folder, name=principal, nested=True
        )
    except NotAllowed as error:
        if error.reason == "wrong-installation":
            raise NotAllowed(
                f"{address} shows another CA than the one that this invitation names; nothing was sent. Either the "
                "address leads to another mesh now, or somebody stands in between.",
                reason="wrong-ca",
            ) from None
        if error.reason == "enrolment-refused":
            raise NotAllowed(
                "The mesh does not accept this invitation: it was used, it has ended, or it was withdrawn. Ask "
                f"an operator for another: `snavio tenant invite {invitation.tenant} --principal {principal}`.",
                reason=error.reason,
            ) from None
        raise


def _require_open(invitation: Invitation, clock: Clock) -> None:
    if invitation.expires_unix_s * 1_000_000_000 <= clock.unix_ns():
        end, now = (
            datetime.fromtimestamp(seconds, UTC)
            for seconds in (invitation.expires_unix_s, clock.unix_ns() // 1_000_000_000)
        )
        raise NotAllowed(
            f"This invitation ended at {end:%Y-%m-%d %H:%M:%S} UTC, and this machine's clock says "
            f"{now:%Y-%m-%d %H:%M:%S}: ask an operator for another. Nothing was sent.",
            reason="invitation-expired",
        )


def _principal(invitation: Invitation, wanted: str) -> str:
    if invitation.principal:
        if wanted not in ("", invitation.principal):
            raise BadRequest(
                f"This invitation is for the principal {invitation.principal}, and no other: leave --name out.",
                reason="wrong-name",
            )
        return invitation.principal
    if not wanted:
        raise BadRequest(
            "This invitation leaves the principal's name open: give one with --name, such as --name ci.",
            reason="no-name",
        )
    if not valid_name(wanted):
        raise BadRequest(
            f"--name: {wanted[:40]!r} is no name: 1 to 63 lower-case letters, digits and hyphens, with none of "
            "those at its ends.",
            reason="bad-name",
        )
    return wanted


def _require_ours(file: ContextFile, context: Context) -> None:
    known = file.read().by_name.get(context.name)
    if known is not None and (known.ca_sha256, known.tenant) != (context.ca_sha256, context.tenant):
        raise Conflict(
            f"There is a context {context.name} already, of another mesh or tenant: give this one another name with "
            "--context NAME. Nothing was sent.",
            reason="context-taken",
        )


def _opened(folder: Path) -> IO[bytes]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return (folder / ".join.lock").open("wb")


@asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """One join at a time into a folder: two at once would mix one's key with the other's certificate."""
    try:
        lock = await asyncio.to_thread(_opened, folder)
    except OSError as error:
        raise StateError(
            f"{folder} cannot be written ({error.strerror}): fix its permissions, or set {FOLDER_VARIABLE} to "
            "a folder of yours. Nothing was sent.",
            reason="folder-unwritable",
        ) from None
    with lock:
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(LOCK_PAUSE_S)
        except TimeoutError:
            raise Unavailable(
                f"Another `snavio join` has been writing to {folder} for {LOCK_SECONDS:.0f} s.",
                reason="join-under-way",
            ) from None
        yield
