"""Work beside the traffic that goes on whatever happens: what failed is told, counted, and tried again.

Never lets one failure end a chore: leases that nobody ends and a log that nobody copies would be found out days later.
"""

from __future__ import annotations

from collections import Counter

import structlog

from services.mailbox.metrics import labelled
from snavio.errors import SnavioError

FAILURES_TOTAL = "chore_failures_total"


class Chores:
    """Any thread; each chore is one thread's."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._known: set[tuple[str, type[Exception]]] = set()
        self._log = structlog.get_logger()

    def failed(self, chore: str, error: Exception, **where: object) -> None:
        """Tell it. What is no SnavioError is a fault of ours, and the first of its kind comes with where it was."""
        self.failures[chore] += 1
        kind = (chore, type(error))
        if isinstance(error, SnavioError) or kind in self._known:
            reason = error.reason if isinstance(error, SnavioError) else type(error).__name__
            self._log.warning("chore failed", chore=chore, reason=reason, message=str(error), **where)
            return
        # Once: a fault that comes with every tick must not fill the disk with traces.
        self._known.add(kind)
        self._log.error("chore failed unexpectedly", chore=chore, exc_info=error, **where)

    def counters(self) -> dict[str, int]:
        """`chore_failures_total` by chore."""
        return {labelled(FAILURES_TOTAL, chore=chore): times for chore, times in self.failures.items()}
