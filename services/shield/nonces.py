"""Nonces by tenant, in the form of every shared bound.

Never counts by itself: the native table does, by the rule of `Shares`.
"""

from __future__ import annotations

from collections.abc import Mapping

from snavio.host.shares import ShareLimit
from snavio.native import Admission


class NonceShares:
    """The nonce table of one Shield, for `Introspection.shares`."""

    name = "nonces"

    def __init__(self, admission: Admission, limit: ShareLimit) -> None:
        self._admission = admission
        self.limit = limit

    @property
    def used(self) -> int:
        """Commands that are remembered."""
        return self._admission.counters()["nonces_live"]

    @property
    def refused(self) -> int:
        """Commands for which there was no room."""
        return self._admission.counters()["saturated"]

    def holders(self) -> Mapping[str, int]:
        """Remembered commands by tenant."""
        return self._admission.nonce_holders()
