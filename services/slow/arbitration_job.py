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
from snavio.hop.forward import BatchAnswers
from snavio.hop.ledger_part import rest_unknown
from snavio.host.background import background
from snavio.native import Arbitration
from snavio.ports.coordination import ClaimAsk, PermitReturn
from snavio.v1.registry_pb2 import Resolution


@dataclass(slots=True)
class _Answer:
    frame: bytes
    final: bool
    ready: bool


class OrderedAnswers(BatchAnswers):
    """`BatchAnswers` that can be held: the answers made after a held one wait for it."""

    __slots__ = ("_made",)

    def __init__(
        self,
        native: Arbitration,
        answer: Callable[[bytes, bool], None],
        *,
        answered: Callable[[bool], None],
    ) -> None:
        super().__init__(native.ledger, answer, answered=answered, books="books of arbitration")
        self._made: deque[_Answer] = deque()

    def settled(self, frame: bytes) -> None:
        """Send verdicts after those that were made before."""
        self._append(frame, ready=True)

    def hold(self, frame: bytes) -> Callable[[], None]:
        """Keep verdicts, and all that are made after them, until the returned function is called."""
        held = self._append(frame, ready=False)

        def release() -> None:
            if held is not None:
                held.ready = True
                self._flush()

        return release

    def break_off(self, frame: bytes) -> None:
        """Send the last answer without the ledger; the outcome of what was not answered by then is unknown."""
        self._made.clear()
        super().break_off(frame)

    def _append(self, frame: bytes, *, ready: bool) -> _Answer | None:
        if not frame:
            return None
        made = _Answer(frame, self.ledger.done, ready)
        self._made.append(made)
        self._flush()
        return made

    def _flush(self) -> None:
        while self._made and self._made[0].ready:
            first = self._made.popleft()
            self._send(first.frame, first.final)


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
        self.answers = OrderedAnswers(native, answer, answered=lambda final: closed(self) if final else None)

    def refuse(
        self, key: int, verdict: Verdict, retry_after_ms: int, detail: str, until_unix_ns: int = 0
    ) -> None:
        """Refuse the undecided commands of one key."""
        try:
            self.answers.settled(
                self.native.refuse(key, verdict, retry_after_ms, detail, throttle_until_unix_ns=until_unix_ns)
            )
        except Exception as error:
            background().failed("arbitration", error)
            self.answers.break_off(rest_unknown(self.native.ledger, "Slow failed."))


@dataclass(slots=True)
class Lane:
    """The commands of one job that share source, target, name and reason: a decision is about all of them."""

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
    """Permits that they cost; unused ones go back."""
    permits_end_mono_ns: int | None = None
    """Time from which on they would be used in an interval that has not paid for them."""
    claims: list[tuple[int, ClaimAsk, Claimed]] = field(default_factory=list)
    """Index in the batch, claim and its result, for strict delivery that needs one."""
    sent: bool = False

    def refuse(self, verdict: Verdict, retry_after_ms: int, detail: str, until_unix_ns: int = 0) -> None:
        """Refuse its undecided commands; `until_unix_ns` is when the cause ends, if that is known."""
        self.count = 0
        self.job.refuse(self.key, verdict, retry_after_ms, detail, until_unix_ns)
