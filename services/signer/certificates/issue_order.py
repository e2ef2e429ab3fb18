"""The order in which Signer issues and revokes: times that only rise, whatever the clock does.

Never gives a certificate a time before a revocation that came earlier, nor a revocation one that leaves out a
certificate which was there: with the clock alone, setting it back would do both.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.ports.certificates import CertificateLedger
from snavio.ports.keystore import KeyStore


class IssueOrder:
    """Times of issue and of revocation; the caller holds the lock of both."""

    def __init__(self, clock: Clock, *, latest_ns: int) -> None:
        self._clock = clock
        self._latest_ns = latest_ns

    @classmethod
    async def load(cls, clock: Clock, *, ledger: CertificateLedger, store: KeyStore) -> IssueOrder:
        """Go on after everything that was issued or revoked before."""
        return cls(clock, latest_ns=max(await ledger.latest_ns(), await store.latest_revoked_ns()))

    def next(self) -> int:
        """A time after every other: a certificate's, or the one before which all are revoked."""
        self._latest_ns = max(self._clock.unix_ns(), self._latest_ns + 1)
        return self._latest_ns
