"""One escalated batch while it is being decided: its commands by key, and its answers in the order they were made.

Never answers a command twice, and never sends the last answer before the others, whatever each of them waits for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from snavio.domain.claim import Claimed
from snavio.domain.verdict import Verdict
from snavio.hop.ledger_part import rest_unknown
from snavio.host.background import background
from snavio.native import Arbitration
from snavio.ports.coordination import ClaimAsk, PermitReturn
from snavio.v1.registry_pb2 import Resolution


@dataclass(slots=True)
class _Answer:
    frame: bytes
    done: bool
    ready: bool


class ArbitrationJob:
    """See the module. `answer(verdicts, final)` writes to Fast; `closed` is called after the last answer."""

    def __init__(
        self,
        native: Arbitration,
        *,
        number: int,
        opened_mono_ns: int,
        deadline_mono_ns: int,
        answer: Callable[[bytes, bool], None],
        closed: Callable[[ArbitrationJob], None],
    ) -> None:
        self.native = native
        self.number = number
        self.opened_mono_ns = opened_mono_ns
        self.deadline_mono_ns = deadline_mono_ns
        self.lanes: list[Lane] = []
        self.parts = 0
        """Parts of the ledger so far."""
        self.ruled = asyncio.Event()
        """Every lane was refused or sent on."""
        self.unruled = 0
        self._answer = answer
        self._closed = closed
        self._line: deque[_Answer] = deque()
        self._over = False

    def settled(self, frame: bytes) -> None:
        """Send verdicts, after those that were made before."""
        self._join(frame, ready=True)

    def hold(self, frame: bytes) -> Callable[[], None]:
        """Keep verdicts, and all that are made after them, until the returned function is called."""
        place = self._join(frame, ready=False)

        def release() -> None:
            if place is not None:
                place.ready = True
                self._flush()

        return release

    def refuse(self, key: int, verdict: Verdict, retry_after_ms: int, detail: str) -> None:
        """Refuse what is undecided of one key."""
        try:
            self.settled(self.native.refuse(key, verdict, retry_after_ms, detail))
        except Exception as error:
            background().failed("case", error)
            self.break_off()

    def break_off(self, _frame: bytes = b"") -> None:
        """The ledger has failed: send the last answer without it. What was not told by then is unknown."""
        if not self._over:
            self._over = True
            self._line.clear()
            self._answer(rest_unknown(self.native.ledger, "Slow failed."), True)
            self._close()

    def _join(self, frame: bytes, *, ready: bool) -> _Answer | None:
        if not frame:
            return None
        place = _Answer(frame, self.native.ledger.done, ready)
        self._line.append(place)
        self._flush()
        return place

    def _flush(self) -> None:
        while self._line and self._line[0].ready and not self._over:
            answer = self._line.popleft()
            self._over = answer.done
            self._answer(answer.frame, answer.done)
            if answer.done:
                self._close()

    def _close(self) -> None:
        try:
            self._closed(self)
        except Exception as error:
            # Whoever brought the last answer has others to bring.
            background().failed("books of a case", error)


@dataclass(slots=True)
class Lane:
    """The commands of one case that share source, target, name and reason: what a decision is about."""

    job: ArbitrationJob
    key: int
    source: str
    target: str
    name: str
    reason: int
    resolution: Resolution | None = None
    """Set once nothing in it refuses the lane."""
    count: int = 0
    """Commands that may still go on."""
    permits: list[PermitReturn] = field(default_factory=list)
    """What they cost; what was not used of it goes back."""
    permits_end_mono_ns: int | None = None
    """From when on they would be used in an interval that has not paid for them."""
    claims: list[tuple[int, ClaimAsk, Claimed]] = field(default_factory=list)
    """Number in the batch, claim and how it was had, for strict delivery that needs one."""
    sent: bool = False

    def refuse(self, verdict: Verdict, retry_after_ms: int, detail: str) -> None:
        """Refuse what is undecided of it."""
        self.count = 0
        self.job.refuse(self.key, verdict, retry_after_ms, detail)
