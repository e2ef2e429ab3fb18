"""Checks on every call and every batch that a certificate, once accepted by TLS, is still valid.

A stream is one call for gRPC, which goes on serving a certificate that has expired or was revoked since. Never drops a
revocation to make room for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from snavio.clock import Clock
from snavio.domain.identity import IdentityKind
from snavio.domain.lineage import Revoked, normal_subject
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated, SnavioError, Unauthenticated, Unavailable
from snavio.rpc.peer import Peer

MAX_REVOKED: Final = 1_000_000
# Between this and the next pull of the denylist the feeder can do nothing useful.
_RETRY_AFTER_MS: Final = 60_000

UNKNOWN: Final = "revocations-unknown"
_SENTENCES: Final = {
    Verdict.CERTIFICATE_EXPIRED: "The certificate has expired.",
    Verdict.CERTIFICATE_REVOKED: "The certificate was revoked.",
}


class CertificateGate:
    """Expiry and denylist, in memory."""

    def __init__(self, *, clock: Clock, max_revoked: int = MAX_REVOKED) -> None:
        self._clock = clock
        self._max_revoked = max_revoked
        # By subject: certificates issued before that time are revoked.
        self._revoked: dict[str, int] = {}
        self._news_within_ns: int | None = None
        self._heard_mono_ns: int | None = None
        self.refused: Callable[[Peer | None, str], None] = _untold
        """Called for every refusal with the peer, None without an identity, and the reason."""

    def expect_news(self, *, within_s: float) -> None:
        """Refuse callers from outside the mesh when the denylist was not confirmed for so long.

        Services of the mesh go on with each other: without them nothing in progress could be finished.
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
        """UNDECIDED when the certificate is valid, otherwise the reason of the refusal.

        SATURATED, which may be retried, when its revocation cannot be ruled out.
        """
        verdict = self.judge(peer)
        if verdict is not Verdict.UNDECIDED:
            self.refused(peer, UNKNOWN if verdict is Verdict.SATURATED else verdict.reason)
        return verdict

    def judge(self, peer: Peer) -> Verdict:
        """As `check`, without counting or reporting a refusal."""
        # Almost always no subject is listed, and this is one lookup per subject without a Python loop.
        if (
            self._revoked
            and not self._revoked.keys().isdisjoint(peer.subjects)
            and self.covers(peer.subjects, peer.lineage.issued_ns)
        ):
            return Verdict.CERTIFICATE_REVOKED
        if self._clock.unix_ns() >= peer.not_after_unix_ns:
            return Verdict.CERTIFICATE_EXPIRED
        if peer.identity.kind is not IdentityKind.MESH and not self._fresh():
            return Verdict.SATURATED
        return Verdict.UNDECIDED

    def covers(self, subjects: Iterable[str], issued_ns: int) -> bool:
        """True if a certificate that has these subjects and was issued then is on the denylist."""
        revoked = self._revoked
        return any(issued_ns < revoked.get(subject, 0) for subject in subjects)

    def revoked(self, serial: str) -> bool:
        """True if a certificate is on the denylist by its serial."""
        return serial in self._revoked

    def require(self, peer: Peer) -> None:
        """Raise Unauthenticated with the verdict's reason unless `check` passes; Unavailable `revocations-unknown` when
        it cannot say.
        """
        verdict = self.check(peer)
        if verdict is not Verdict.UNDECIDED:
            raise _refusal(verdict)

    def refusal(self, peer: Peer) -> SnavioError:
        """The error that `require` raises for a peer that `judge` refuses; counted as one."""
        return _refusal(self.check(peer))

    def revoke(self, entries: Iterable[str | Revoked]) -> None:
        """Refuse certificates of these subjects from now on; a bare text covers every time of issue.

        At the bound, as many as fit are added and Saturated is raised: refusing every caller would turn a long denylist
        into an outage, and evicting would let a revoked certificate in again. The feeder then pulls the whole list,
        which has no expired entries, and calls `replace`.
        """
        self._add(self._revoked, entries)

    def replace(self, entries: Iterable[str | Revoked]) -> None:
        """Refuse exactly these: the whole denylist, pulled from version 0."""
        revoked: dict[str, int] = {}
        try:
            self._add(revoked, entries)
        except Saturated:
            # Both lists are right; keep as much of the two as there is room for.
            self._add_quietly(revoked)
            raise
        self._revoked = revoked

    def _add_quietly(self, entries: dict[str, int]) -> None:
        for subject, before_ns in entries.items():
            if subject in self._revoked or len(self._revoked) < self._max_revoked:
                self._revoked[subject] = max(before_ns, self._revoked.get(subject, 0))

    def _add(self, revoked: dict[str, int], entries: Iterable[str | Revoked]) -> None:
        malformed = left_out = 0
        for entry in entries:
            named, before_ns = Revoked(entry) if isinstance(entry, str) else entry
            try:
                subject = normal_subject(named)
            except ValueError:
                # An entry in another spelling would be in the list and match no certificate.
                malformed += 1
                continue
            if subject in revoked or len(revoked) < self._max_revoked:
                # Pages may overlap: an older one must not bring back what a newer one has ended.
                revoked[subject] = max(before_ns, revoked.get(subject, 0))
            else:
                left_out += 1
        if left_out:
            raise Saturated(
                f"The denylist is full; {left_out} revocations were left out.",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        if malformed:
            raise BadRequest(f"{malformed} entries of the denylist name nothing.", reason="bad-serial")


def _refusal(verdict: Verdict) -> SnavioError:
    if verdict is Verdict.SATURATED:
        return Unavailable(
            "Which certificates were revoked cannot be known; Signer is away for too long.", reason=UNKNOWN
        )
    return Unauthenticated(_SENTENCES[verdict], reason=verdict.reason)


def _untold(_peer: Peer | None, _reason: str) -> None:
    return
