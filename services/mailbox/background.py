"""Background work whose failures are logged, counted and tried again.

Never lets one failure end a chore: leases that never end and a log that is never copied would be found out days later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from services.mailbox.oversight.metrics import labelled
from snavio.host.background import background

FAILURES_TOTAL = "chore_failures_total"


class BackgroundWork:
    """Any thread; each chore is one thread's."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    def failed(self, chore: str, error: Exception, **where: object) -> None:
        """Tell and count what the chore itself goes on after."""
        self.failures[chore] += 1
        background().failed(chore, error, **where)

    def counted(self, chore: str, turn: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """`turn`, whose failures are counted here; its caller logs them."""

        async def counting() -> None:
            try:
                await turn()
            except Exception:
                self.failures[chore] += 1
                raise

        return counting

    def counters(self) -> dict[str, int]:
        """`chore_failures_total` by chore."""
        return {labelled(FAILURES_TOTAL, chore=chore): times for chore, times in self.failures.items()}
