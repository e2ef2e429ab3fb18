"""The way to Slow: every source waits in a line of its own, and whoever was served least is next.

Never lets a flood of one source, banned or not, keep the escalations of others waiting; what does not fit into a
source's own share is refused with a hint.
"""

from __future__ import annotations

from snavio.ports.queue import Consignment
from snavio.transport.consignment import LedgerConsignment
from snavio.transport.waiting import FairBySource


def fair_line(*, max_bytes: int, max_source_bytes: int, max_source_commands: int) -> FairBySource:
    """Where escalations wait."""
    return FairBySource(
        max_bytes=max_bytes,
        max_source_bytes=max_source_bytes,
        max_source_commands=max_source_commands,
        source_of=_source_of,
        what="Escalations",
    )


def _source_of(consignment: Consignment) -> str:
    return consignment.source if isinstance(consignment, LedgerConsignment) else ""
