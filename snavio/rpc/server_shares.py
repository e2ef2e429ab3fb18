"""Bounds that the callers of one server share: running calls, open streams, and bytes of requests in memory.

Never counts a call that was refused at its headers.
"""

from __future__ import annotations

from collections.abc import Callable

from snavio.host.shares import ShareLimit, Shares, default_share
from snavio.host.waiting_shares import WaitingShares
from snavio.rpc.limits import BYTES_IN_FLIGHT, CALLS, SIDE_STREAMS, STREAMS


class ServerShares:
    """The bounds. `share` divides a total, as the configuration's `MeshSettings.share` does.

    Streams of health and reflection have a bound of their own. The others may be open by the hundred, and gRPC holds an
    unfinished frame for each.
    """

    def __init__(
        self,
        share: Callable[[str, int], ShareLimit] = default_share,
        *,
        calls: int = CALLS,
        streams: int = STREAMS,
        side_streams: int = SIDE_STREAMS,
        bytes_in_flight: int = BYTES_IN_FLIGHT,
    ) -> None:
        self.calls = Shares("calls", share("calls", calls))
        self.streams = Shares("streams", share("streams", streams))
        self.side_streams = Shares("side_streams", share("side_streams", side_streams))
        self.bytes = Shares("bytes", share("bytes", bytes_in_flight))
        self.bodies = WaitingShares(self.bytes)
        """The same bytes, for callers that can wait."""

    def all(self) -> tuple[Shares, ...]:
        """All of them, for `Introspection.shares`."""
        return self.calls, self.streams, self.side_streams, self.bytes
