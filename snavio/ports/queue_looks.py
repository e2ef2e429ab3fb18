"""Looks at the queues of routes: how much waits, for how long, and who receives.

Never changes anything in a queue, and never lets one queue's failure hide the others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from snavio.domain.route_health import QueueLook


class QueueLooks(Protocol):
    """One kind of queue."""

    async def look(self, topics: Sequence[str]) -> Mapping[str, QueueLook]:
        """One look at each topic's queue. A queue that cannot be looked at has a `failure`; never raises for one."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
