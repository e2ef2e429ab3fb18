"""Checks a capability for a service that holds no root secret, such as the gateway.

Never gives a reason that would help a forger, and never takes an ended capability for a living one.
"""

from __future__ import annotations

from typing import NoReturn

from services.signer.capabilities.issuing import MILLISECOND, CapabilityIssuer
from snavio.clock import Clock
from snavio.domain.capability import derive_root, read_text, verify
from snavio.domain.caveat import CaveatBounds, Denial, Operation
from snavio.domain.identity import Identity
from snavio.errors import BadRequest, NotAllowed, Unauthenticated
from snavio.ports.capabilities import CapabilityLedger


class CapabilityCheck:
    """Reads the same secrets and the same ledger as the issuer."""

    def __init__(self, *, issuer: CapabilityIssuer, ledger: CapabilityLedger, clock: Clock) -> None:
        self._issuer = issuer
        self._ledger = ledger
        self._clock = clock

    async def check(self, text: str, *, holder: Identity, operation: Operation, topic: str) -> CaveatBounds:
        """The bounds of a capability that permits this now; Unauthenticated or NotAllowed with a `Denial`'s reason."""
        try:
            capability = read_text(text)
        except BadRequest as refused:
            unknown = refused.reason == Denial.UNKNOWN_CAVEAT.reason
            _deny(Denial.UNKNOWN_CAVEAT if unknown else Denial.MALFORMED)
        identifier, bounds = capability.identifier, capability.bounds()
        secrets = {each.root: each.secret for each in await self._issuer.roots()}
        if identifier.root not in secrets:
            _deny(Denial.UNKNOWN_ROOT)
        key = derive_root(secrets[identifier.root], realm=identifier.realm, version=identifier.version)
        if verify(key, capability) is None:
            _deny(Denial.FORGED)
        if not bounds.held_by(holder):
            _deny(Denial.HOLDER)
        now = self._clock.unix_ns()
        if bounds.expires_ms * MILLISECOND <= now:
            _deny(Denial.EXPIRED)
        known = await self._ledger.living(now_ns=now, cap_id=identifier.cap_id, limit=1)
        # One that the ledger does not know was issued to somebody in a history that a backup has replaced.
        if not known or known[0][1]:
            _deny(Denial.REVOKED)
        if (denial := bounds.denial(operation, topic)) is not None:
            _deny(denial)
        return bounds


def _deny(denial: Denial) -> NoReturn:
    sentence = f"{denial.code}: {denial.sentence}"
    if denial.code == "E_CAP_AUTH":
        raise Unauthenticated(sentence, reason=denial.reason)
    raise NotAllowed(sentence, reason=denial.reason)
