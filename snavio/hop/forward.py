"""One hop of a batch: the first answer, a part to each queue, the answers of the queues, and the books.

Never lets one part keep another from being sent, never sends the last answer of a batch twice, and never lets the
books cost an answer: they are kept behind it, and their failures are reported and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.ledger_part import LedgerPart
from snavio.host.background import background
from snavio.native import Ledger, PartBuffer
from snavio.ports.queue import TargetQueue

FULL = "The queue is full."

OutgoingPart = tuple[TargetQueue, int, bytes | PartBuffer, str]
"""The queue that a part goes to, its commands, its body, and its source as in `BatchPart`."""


class BatchAnswers:
    """The answers of one batch on their way to its sender.

    `answer(verdicts, final)` goes to the sender; `answered(final)` keeps the books, named `books` in the log.
    """

    __slots__ = ("_answer", "_answered", "_over", "books", "ledger")

    def __init__(
        self,
        ledger: Ledger,
        answer: Callable[[bytes, bool], None],
        *,
        answered: Callable[[bool], None],
        books: str,
    ) -> None:
        self.ledger = ledger
        self._answer = answer
        self._answered = answered
        self.books = books
        self._over = False

    def open(self, opening: bytes) -> None:
        """Send the verdicts that need no hop. A batch that is empty, or done with them, is answered in any case."""
        done = self.ledger.done
        if opening or done:
            self._send(opening, done)

    def settled(self, frame: bytes) -> None:
        """Send verdicts of a queue."""
        self._send(frame, self.ledger.done)

    def break_off(self, frame: bytes) -> None:
        """Send the last answer in place of the ledger, which has failed and never says any more that it is done."""
        self._send(frame, True)

    def _send(self, frame: bytes, final: bool) -> None:
        # Each last answer frees a place in the sender's window: a second one would free a place that is taken.
        if self._over:
            return
        self._over = final
        self._answer(frame, final)
        try:
            self._answered(final)
        except Exception as error:
            # The caller has other answers to bring.
            background().failed(self.books, error)


def forward(
    answers: BatchAnswers,
    opening: bytes,
    parts: Iterable[OutgoingPart],
    *,
    service: str,
    deadline_mono_ns: int,
    recorded: Callable[[], None],
    full: str = FULL,
) -> None:
    """Answer with `opening`, send `parts`, which are all of the ledger's, and then call `recorded` for the books."""
    answers.open(opening)
    send_parts(
        answers.ledger,
        parts,
        service,
        deadline_mono_ns,
        answer=answers.settled,
        broken=answers.break_off,
        full=full,
    )
    try:
        recorded()
    except Exception as error:
        background().failed(answers.books, error)


def send_parts(
    ledger: Ledger,
    parts: Iterable[OutgoingPart],
    service: str,
    deadline_mono_ns: int,
    *,
    answer: Callable[[bytes], None],
    broken: Callable[[bytes], None],
    first_part: int = 0,
    full: str = FULL,
) -> None:
    """Send the ledger's parts from `first_part` on, and answer for those that no queue takes.

    A full queue is a refusal with its retry hint. After any other failure the part was not written, and so not
    delivered. `answer` and `broken` are those of `LedgerPart`.
    """
    for number, (queue, count, body, source) in enumerate(parts, first_part):
        part = LedgerPart(
            ledger,
            number,
            count=count,
            body=body,
            deadline_mono_ns=deadline_mono_ns,
            answer=answer,
            broken=broken,
            source=source,
        )
        try:
            queue.put(part)
        except Saturated as saturated:
            part.refuse(Verdict.SATURATED, full, retry_after_ms=saturated.retry_after_ms)
        except Exception as error:
            background().failed("send to the next hop", error)
            part.lost(written=False, cause=f"{service} failed.")
