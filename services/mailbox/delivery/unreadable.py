"""Batches whose bytes the disk does not give: delayed for a while, and given up after some attempts.

Never lets one bad sector hold up the messages behind it, and never takes a disk that is away for one that has lost
something: without other bytes that could be read meanwhile, or the disk's own word, nothing is given up.
"""

from __future__ import annotations

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from snavio.errors import Unavailable, Unreadable

TRIES = 5
FIRST_PAUSE_NS = 1_000_000_000
"""After each failure twice as long as after the one before."""


class UnreadableBatches:
    """Lives on one event loop."""

    def __init__(self, *, delivery: Delivery, rows: BatchReader) -> None:
        self._delivery = delivery
        self._rows = rows

    def lost(self, batch: Batch, error: Unavailable) -> bool:
        """True when it was tried often enough; if not, it comes again after a pause."""
        others_came = self._rows.reads > batch.reads_then
        batch.reads_then = self._rows.reads
        if isinstance(error, Unreadable) or (batch.failures and others_came):
            batch.failures += 1
        batch.failures = max(1, batch.failures)
        if batch.failures >= TRIES:
            return True
        self._delivery.set_aside(batch, FIRST_PAUSE_NS << batch.failures - 1)
        return False
