"""Bounds that the callers of one server share: running calls, open streams, and bytes of requests in memory.

Never counts a call that was refused at its headers.
"""

from __future__ import annotations

from collections.abc import Callable

from snavio.host.shares import ShareLimit, Shares, default_share
from snavio.host.waiting_shares import WaitingShares
from snavio.rpc.limits import BYTES_IN_FLIGHT, CALLS, STREAMS


class ServerShares:
    """The three bounds. `share` divides a total, as the configuration's `MeshSettings.share` does."""

    def __init__(
        self,
        share: Callable[[str, int], ShareLimit] = default_share,
        *,
        calls: int = CALLS,
        streams: int = STREAMS,
        bytes_in_flight: int = BYTES_IN_FLIGHT,
    ) -> None:
        self.calls = Shares("calls", share("calls", calls))
        self.streams = Shares("streams", share("streams", streams))
        self.bytes = Shares("bytes", share("bytes", bytes_in_flight))
        self.bodies = WaitingShares(self.bytes)
        """The same bytes, for callers that can wait."""

    def all(self) -> tuple[Shares, ...]:
        """All three, for `Introspection.shares`."""
        return self.calls, self.streams, self.bytes
