"""The way to Slow: every source waits in a line of its own, and whoever was served least is next.

Never lets a flood of one source, banned or not, keep the escalations of others waiting; what does not fit into a
source's own share is refused with a hint.
"""

from __future__ import annotations

from collections.abc import Callable

from snavio.native import Ledger
from snavio.ports.queue import Consignment
from snavio.transport.consignment import LedgerConsignment
from snavio.transport.waiting import FairBySource


class Escalation(LedgerConsignment):
    """The commands of one source in one batch that Slow is to decide."""

    __slots__ = ("source",)

    def __init__(
        self,
        ledger: Ledger,
        part: int,
        *,
        source: str,
        count: int,
        body: bytes,
        deadline_mono_ns: int,
        answer: Callable[[bytes], None],
        broken: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(
            ledger,
            part,
            count=count,
            body=body,
            deadline_mono_ns=deadline_mono_ns,
            answer=answer,
            broken=broken,
        )
        self.source = source


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
    return consignment.source if isinstance(consignment, Escalation) else ""
