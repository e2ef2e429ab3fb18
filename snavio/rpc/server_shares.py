"""What the callers of one server share: calls being served, open streams, and bytes of requests in memory.

Never counts a call that was refused at its headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from snavio.host.shares import ShareLimit, Shares
from snavio.host.waiting_shares import WaitingShares
from snavio.rpc.limits import BYTES_IN_FLIGHT, CALLS, STREAMS

TENANT_PERCENT: Final = 25.0
RESERVE_PERCENT: Final = 10.0


def default_share(_bound: str, total: int) -> ShareLimit:
    """The division of a bound where nobody has configured one."""
    return ShareLimit.of(total, tenant_percent=TENANT_PERCENT, reserve_percent=RESERVE_PERCENT)


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
        """The same bytes, for those who can wait."""

    def all(self) -> tuple[Shares, ...]:
        """For `Introspection.shares`."""
        return self.calls, self.streams, self.bytes
