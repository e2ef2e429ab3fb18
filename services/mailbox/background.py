"""Background work whose failures are logged, counted and tried again.

Never lets one failure end it: leases that never end and a log that is never copied would be noticed days later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from services.mailbox.oversight.metrics import labelled
from snavio.host.background import background

FAILURES_TOTAL = "work_failures_total"


class BackgroundWork:
    """Used from any thread; each kind of work runs on one thread."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    def failed(self, work: str, error: Exception, **where: object) -> None:
        """Log and count a failure after which the work itself goes on."""
        self.failures[work] += 1
        background().failed(work, error, **where)

    def counted(self, work: str, turn: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """`turn`, whose failures are counted here; its caller logs them."""

        async def counting() -> None:
            try:
                await turn()
            except Exception:
                self.failures[work] += 1
                raise

        return counting

    def counters(self) -> dict[str, int]:
        """`work_failures_total` by work."""
        return {labelled(FAILURES_TOTAL, work=work): times for work, times in self.failures.items()}
