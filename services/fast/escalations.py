"""The way to Slow: every source waits in a line of its own, and whoever was served least is next.

Never lets a flood of one source, banned or not, keep the escalations of others waiting; what does not fit into a
source's own share is refused with a hint.
"""

from __future__ import annotations

from snavio.hop.ledger_part import LedgerPart
from snavio.hop.send_queue import FairSendQueue
from snavio.ports.queue import BatchPart


def fair_line(*, max_bytes: int, max_source_bytes: int, max_source_commands: int) -> FairSendQueue:
    """Where escalations wait."""
    return FairSendQueue(
        max_bytes=max_bytes,
        max_source_bytes=max_source_bytes,
        max_source_commands=max_source_commands,
        source_of=_source_of,
        what="Escalations",
    )


def _source_of(batch_part: BatchPart) -> str:
    return batch_part.source if isinstance(batch_part, LedgerPart) else ""
