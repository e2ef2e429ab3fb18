"""One hop of a batch: every command is answered once, and neither a queue nor the books cost another its answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.forward import BatchAnswers, OutgoingPart, forward
from snavio.native import Ledger, Sending, read_verdicts
from snavio.ports.queue import BatchPart, TargetQueue
from snavio.v1.batch_pb2 import BatchHeader, Run, Verdicts
from snavio.v1.mailbox_pb2 import SendBatch, TopicRuns

GOOD = bytes([Verdict.DELIVERED])
Put = Callable[[BatchPart], None]


def ledger_of(*counts: int) -> Ledger:
    """A batch with one part per count."""
    topics = [
        TopicRuns(topic=f"acme/bot-{at}", run=[Run(source="acme/billing", command=[b"c"] * count)])
        for at, count in enumerate(counts)
    ]
    frame = SendBatch(header=BatchHeader(batch_seq=5), topic=topics).SerializeToString()
    return Sending.open(frame).ledger


def queue(put: Put) -> TargetQueue:
    return cast(TargetQueue, SimpleNamespace(put=put))


def deliver(part: BatchPart) -> None:
    part.settle(0, read_verdicts(Verdicts(codes=GOOD * part.count, final=True).SerializeToString()))


def full(_part: BatchPart) -> None:
    raise Saturated("full", retry_after_ms=70)


def failing(_part: BatchPart) -> None:
    raise RuntimeError("scripted")


def no_books(_final: bool = False) -> None:
    """Nothing to record."""


class Hop:
    """Forwards one batch and keeps its answers."""

    def __init__(self, *puts: Put, answered: Callable[[bool], None] = no_books) -> None:
        self.ledger = ledger_of(*(2 for _ in puts))
        self.told: list[tuple[bytes, bool]] = []
        self.answers = BatchAnswers(
            self.ledger,
            lambda frame, final: self.told.append((frame, final)),
            answered=answered,
            books="books",
        )
        self.parts: list[OutgoingPart] = [
            (queue(put), 2, b"body", f"acme/{at}") for at, put in enumerate(puts)
        ]

    def send(self, *, opening: bytes = b"", recorded: Callable[[], None] = no_books) -> Hop:
        forward(self.answers, opening, self.parts, service="Fast", deadline_mono_ns=9, recorded=recorded)
        return self

    @property
    def finals(self) -> list[bool]:
        return [final for _, final in self.told]


def test_the_first_answer_goes_before_any_part() -> None:
    seen: list[int] = []
    hop = Hop(lambda _part: seen.append(len(hop.told)))
    hop.send(opening=b"opening")
    assert (hop.told, seen) == ([(b"opening", False)], [1])


def test_an_empty_batch_is_answered_too() -> None:
    assert Hop().send().told == [(b"", True)]


def test_each_part_goes_to_its_queue_with_its_source_and_deadline() -> None:
    seen: list[BatchPart] = []
    Hop(seen.append, seen.append).send()
    assert [(part.source, part.count, part.body, part.deadline_mono_ns) for part in seen] == [
        ("acme/0", 2, b"body", 9),
        ("acme/1", 2, b"body", 9),
    ]


@pytest.mark.parametrize(
    ("put", "verdict", "hint"),
    [
        (full, Verdict.SATURATED, (70, "The queue is full.")),
        (failing, Verdict.DELIVERY_FAILURE, (250, "Fast failed.")),
    ],
)
def test_a_part_that_no_queue_takes_is_refused_and_the_next_is_sent(
    put: Put, verdict: Verdict, hint: tuple[int, str]
) -> None:
    hop = Hop(put, deliver).send()
    assert hop.ledger.codes == bytes([verdict]) * 2 + GOOD * 2
    assert hop.finals == [False, True]
    [(_, _, retry_after_ms, _, detail)] = read_verdicts(hop.told[0][0]).refusals()
    assert (retry_after_ms, detail) == hint


def test_books_are_kept_behind_each_answer_and_their_failure_costs_none() -> None:
    noted: list[tuple[int, bool]] = []

    def answered(final: bool) -> None:
        noted.append((len(hop.told), final))
        raise RuntimeError("scripted")

    def recorded() -> None:
        raise RuntimeError("scripted")

    hop = Hop(deliver, deliver, answered=answered)
    hop.send(recorded=recorded)
    assert (hop.finals, noted) == ([False, True], [(1, False), (2, True)])


def test_nothing_follows_the_last_answer() -> None:
    parts: list[BatchPart] = []
    hop = Hop(parts.append, parts.append).send()
    hop.answers.break_off(b"broken")
    hop.answers.break_off(b"again")
    for part in parts:
        deliver(part)
    # A second last answer would free a place in the window that another batch has taken.
    assert hop.told == [(b"broken", True)]
