"""The table of states: complete, the same in the docs, and held against every step of a batch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.mailbox.state.batch import Batch
from services.mailbox.state.settling import Settling
from services.mailbox.state.states import DECISIONS, ENDED, STEPS, Place, Verb, places
from snavio.clock import ManualClock
from snavio.domain.message import MessageEnding, MessageState
from snavio.ports.mailbox_store import BatchRecord
from tests.support.checked import CheckedDelivery

DOCS = Path(__file__).parents[2] / "docs" / "mailbox.md"


@pytest.fixture
def watched() -> CheckedDelivery:
    """As long as one of these is alive, steps of batches are compared with the table."""
    return CheckedDelivery(
        clock=ManualClock(), boot_epoch=1, records=(), woken=lambda _: None, record=lambda _: None
    )


def batch() -> Batch:
    return Batch("acme/bot", BatchRecord(1, 8, 800, 0))


def test_every_state_is_reached_and_every_state_but_purged_is_left() -> None:
    pairs = {pair for step in STEPS.values() for pair in step}
    assert {end for _, end in pairs} == set(Place)
    assert {start for start, _ in pairs} == set(Place) - {Place.PURGED}
    assert set(DECISIONS) == set(Verb)


def test_what_has_ended_changes_by_a_decision_alone() -> None:
    for name, pairs in STEPS.items():
        if name not in ("move", "revert", "confirm"):
            assert not {state for pair in pairs for state in pair} & (ENDED | {Place.SETTLING}), name


def test_messages_of_a_batch_are_in_one_state_each() -> None:
    one = batch()
    lease = one.lease(0, 2, attempt=1, holder="x", deadline_mono_ns=9, since_mono_ns=0)
    one.delay(2, 3, 5)
    dead = MessageEnding(MessageState.DEAD, 1, "nack")
    settling = Settling()
    ended = one.move(settling, 3, 4, Verb.END, attempt=1, ending=dead)
    one.confirm(ended)
    one.move(settling, 1, 2, Verb.ACK, attempt=1, lease=lease)
    found = {place: bits for place, bits in places(one).items() if bits}
    assert found == {
        Place.LEASED: 0b1,
        Place.SETTLING: 0b10,
        Place.DELAYED: 0b100,
        Place.DEAD: 0b1000,
        Place.READY: 0b1111_0000,
    }


def test_step_that_is_in_no_table_fails(watched: CheckedDelivery) -> None:
    one = batch()
    settling = Settling()
    one.move(settling, 0, 2, Verb.RETRY, attempt=1)
    with pytest.raises(AssertionError, match="in no table"):
        one.lease(0, 1, attempt=1, holder="x", deadline_mono_ns=9, since_mono_ns=0)
    other = batch()
    with pytest.raises(AssertionError, match="ACK"):
        other.move(settling, 0, 1, Verb.ACK, attempt=1)
    assert watched.inflight.total == 0


def test_docs_show_the_table() -> None:
    shown = {}
    for step, starts, ends in re.findall(
        r"^\| `(\w+)` \| (`[^|]*`) \| (`[^|]*`) \|", DOCS.read_text(), re.MULTILINE
    ):
        shown[step] = (set(re.findall(r"`(\w+)`", starts)), set(re.findall(r"`(\w+)`", ends)))
    for name, pairs in STEPS.items():
        assert shown[name] == ({start.value for start, _ in pairs}, {end.value for _, end in pairs})
