"""Whether a certificate that TLS once accepted may still be used: asked for every call and every batch.

A stream is one call for gRPC, which goes on serving a certificate that has expired or was revoked since.
Never forgets a revoked serial to make room for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from snavio.clock import Clock
from snavio.domain.identity import Kind
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated, Unauthenticated, Unavailable
from snavio.transport.peer import Peer

MAX_REVOKED_SERIALS: Final = 1_000_000
# Between this and the next pull of the denylist the feeder can do nothing useful.
_RETRY_AFTER_MS: Final = 60_000
# RFC 5280 allows serials of 20 octets.
_SERIAL: Final = re.compile(r"[0-9a-fA-F]{1,40}")

_SENTENCES: Final = {
    Verdict.CERTIFICATE_EXPIRED: "The certificate has expired.",
    Verdict.CERTIFICATE_REVOKED: "The certificate was revoked.",
}


class Gate:
    """Expiry and denylist, in memory."""

    def __init__(self, *, clock: Clock, max_revoked: int = MAX_REVOKED_SERIALS) -> None:
        self._clock = clock
        self._max_revoked = max_revoked
        self._revoked: set[str] = set()
        self._news_within_ns: int | None = None
        self._heard_mono_ns: int | None = None

    def expect_news(self, *, within_s: float) -> None:
        """Let nobody in from outside the mesh when the denylist was not heard of for so long.

        Services of the mesh go on with each other: without them nothing that is under way could be finished.
        """
        self._news_within_ns = round(within_s * 1e9)

    def heard(self, mono_ns: int) -> None:
        """The denylist is complete as of that time."""
        heard = self._heard_mono_ns
        self._heard_mono_ns = mono_ns if heard is None else max(heard, mono_ns)

    def _fresh(self) -> bool:
        bound, heard = self._news_within_ns, self._heard_mono_ns
        return bound is None or (heard is not None and self._clock.mono_ns() - heard < bound)

    def check(self, peer: Peer) -> Verdict:
        """UNDECIDED when nothing speaks against the certificate, otherwise why it is refused.

        SATURATED, which may be tried again, when nobody can say whether it was revoked.
        """
        if peer.cert_serial in self._revoked:
            return Verdict.CERTIFICATE_REVOKED
        if self._clock.unix_ns() >= peer.not_after_unix_ns:
            return Verdict.CERTIFICATE_EXPIRED
        if peer.identity.kind is not Kind.MESH and not self._fresh():
            return Verdict.SATURATED
        return Verdict.UNDECIDED

    def revoked(self, serial: str) -> bool:
        """Whether a certificate is on the denylist."""
        return serial in self._revoked

    def require(self, peer: Peer) -> None:
        """Raise Unauthenticated, with the verdict's reason, unless `check` finds nothing; Unavailable
        `revocations-unknown` when it cannot say."""
        verdict = self.check(peer)
        if verdict is Verdict.SATURATED:
            raise Unavailable(
                "Which certificates were revoked cannot be known; Signer is away for too long.",
                reason="revocations-unknown",
            )
        if verdict is not Verdict.UNDECIDED:
            raise Unauthenticated(_SENTENCES[verdict], reason=verdict.reason)

    def revoke(self, serials: Iterable[str]) -> None:
        """Refuse these certificates from now on.

        At the bound, what fits is taken and Saturated is raised: refusing every caller would turn a long
        denylist into an outage, and evicting would let a revoked certificate in again. The feeder then
        pulls the whole list, which has no expired certificates in it, and calls `replace`.
        """
        self._add(self._revoked, serials)

    def replace(self, serials: Iterable[str]) -> None:
        """Refuse exactly these certificates: the whole denylist, pulled from version 0."""
        revoked: set[str] = set()
        try:
            self._add(revoked, serials)
        except Saturated:
            # Both lists are right about whom to refuse; keep as much of the two as there is room for.
            self._add_quietly(revoked)
            raise
        self._revoked = revoked

    def _add_quietly(self, serials: Iterable[str]) -> None:
        for serial in serials:
            if len(self._revoked) >= self._max_revoked:
                return
            self._revoked.add(serial)

    def _add(self, revoked: set[str], serials: Iterable[str]) -> None:
        malformed = left_out = 0
        for serial in serials:
            # An entry in another spelling would sit in the list and match nobody.
            if not _SERIAL.fullmatch(serial):
                malformed += 1
            elif len(revoked) < self._max_revoked:
                revoked.add(format(int(serial, 16), "x"))
            elif format(int(serial, 16), "x") not in revoked:
                left_out += 1
        if left_out:
            raise Saturated(
                f"The denylist is full; {left_out} revoked certificates were left out.",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        if malformed:
            raise BadRequest(f"{malformed} entries of the denylist are not serials.", reason="bad-serial")
