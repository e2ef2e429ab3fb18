"""The number that tells how far messages of a shard overtake each other."""

from __future__ import annotations

import pytest

from services.mailbox.state.ordering import LATEST, MOST_UNHEARD, Ordering
from services.mailbox.state.receipts import DONE
from snavio.ports.mailbox_store import OrderMark
from tests.support.bare_mailbox import BareMailbox
from tests.support.mailbox import TOPIC, commands, send_batch


def test_C_5_order_that_holds_is_depth_nothing() -> None:
    ordering = Ordering()
    for batch in range(1, 200):
        for shard in (0, 1):
            ordering.handed(shard, batch, 0, 10)
            ordering.handed(shard, batch, 10, 15)
    assert ordering.deepest == {}


def test_C_5_depth_counts_the_messages_that_went_before_an_older_one() -> None:
    ordering = Ordering()
    ordering.handed(0, 1, 0, 5)
    ordering.handed(0, 2, 0, 7)
    ordering.handed(0, 3, 4, 6)
    ordering.handed(0, 1, 5, 9)
    assert ordering.deepest == {0: 9}, "seven of batch 2 and two of batch 3"
    ordering.handed(0, 3, 0, 4)
    assert ordering.deepest == {0: 9}, "the deepest stays"
    ordering.handed(1, 1, 0, 1)
    assert ordering.deepest == {0: 9}, "there is no order across shards"


def test_C_5_only_the_latest_deliveries_are_remembered() -> None:
    ordering = Ordering()
    for batch in range(2, 2 + 3 * LATEST):
        ordering.handed(0, batch, 0, 1)
    ordering.handed(0, 1, 0, 1)
    assert ordering.deepest == {0: LATEST}


# -- over a crash ---------------------------------------------------------------------------------------


def crashed(ordering: Ordering) -> Ordering:
    """The next life, with what the store had by now."""
    mark = ordering.mark(0)
    written = ordering._written.get(0)
    assert mark is None or mark == written
    return Ordering([written] if written is not None else [])


def test_C_5_G_9_response_of_which_nothing_was_heard_counts_as_cut_off_by_the_crash() -> None:
    ordering = Ordering()
    ordering.handed(0, 1, 0, 1000)
    ordering.heard(ordering.handed(0, 2, 0, 700))
    ordering.handed(0, 3, 0, 50)
    assert ordering.deepest == {}, "nothing has overtaken anything yet"
    again = crashed(ordering)
    assert again.deepest == {}, "nor is it known before it is handed out again"
    again.handed(0, 1, 0, 1000)
    assert again.deepest == {0: 700}
    assert crashed(again).deepest == {0: 700}, "and stays so"


def test_C_5_one_consumer_that_is_heard_of_before_it_asks_again_is_never_overtaken() -> None:
    ordering = Ordering()
    for batch in range(1, 10):
        ordering.heard(ordering.handed(0, batch, 0, 1000))
        assert ordering.mark(0) is None, "and costs no write"
    ordering.handed(0, 10, 0, 1000)
    again = crashed(ordering)
    again.handed(0, 3, 500, 1000)
    again.handed(0, 10, 0, 1000)
    assert again.deepest == {}


def test_C_5_judgement_outlives_crashes_that_come_before_it() -> None:
    ordering = Ordering()
    ordering.handed(0, 1, 0, 10)
    ordering.heard(ordering.handed(0, 2, 0, 40))
    again = crashed(crashed(crashed(ordering)))
    assert again.mark(0) is None
    again.handed(0, 1, 5, 10)
    assert again.deepest == {0: 40}


def test_C_5_response_that_was_heard_of_late_is_overtaken_by_nothing_any_more() -> None:
    ordering = Ordering()
    first = ordering.handed(0, 1, 0, 10)
    ordering.heard(ordering.handed(0, 2, 0, 40))
    assert ordering.mark(0) == OrderMark(0, 0, 40, (1, 0), (2, 40))
    ordering.heard(first)
    assert ordering.mark(0) == OrderMark(0)
    assert ordering.mark(0) is None
    ordering.unwritten(0)
    assert ordering.mark(0) == OrderMark(0), "what the store refused is told again"


def test_C_5_caller_that_asks_again_has_what_it_was_sent() -> None:
    ordering = Ordering()
    ordering.handed(0, 1, 0, 10, caller="a")
    ordering.heard(ordering.handed(0, 2, 0, 40, caller="b"))
    ordering.asked_again("b")
    assert ordering.mark(0) is not None
    ordering.asked_again("a")
    assert ordering.mark(0) == OrderMark(0)


def test_C_5_caller_that_tells_of_one_response_has_those_before_it() -> None:
    ordering = Ordering()
    for batch in range(1, 5):
        last = ordering.handed(0, batch, 0, 10, caller="a")
    ordering.handed(0, 5, 0, 10, caller="a")
    ordering.heard(last)
    ordering.heard(ordering.handed(0, 6, 0, 40, caller="b"))
    mark = ordering.mark(0)
    assert mark is not None and (mark.oldest, mark.beyond) == ((5, 0), 40)
    assert not ordering._callers.get("b")


def test_C_5_messages_that_never_left_are_no_response() -> None:
    ordering = Ordering()
    ordering.unsent(ordering.handed(0, 1, 0, 10), 10)
    ordering.heard(ordering.handed(0, 2, 0, 40))
    assert ordering.mark(0) is None


def test_C_5_responses_that_nobody_answers_are_bounded() -> None:
    ordering = Ordering()
    for batch in range(1, 3 * MOST_UNHEARD):
        ordering.handed(0, batch, 0, 1)
    assert len(ordering._out[0]) <= MOST_UNHEARD
    other = Ordering()
    other.handed(0, 1, 0, 1)
    for batch in range(2, 3 * MOST_UNHEARD):
        other.heard(other.handed(0, batch, 0, 1))
    assert len(other._out[0]) <= MOST_UNHEARD + 1
    mark = other.mark(0)
    assert mark is not None and mark.beyond == 3 * MOST_UNHEARD - 2


@pytest.mark.parametrize("consumers", [1, 2])
async def test_G_9_gauge_survives_the_failover_that_it_is_to_judge(consumers: int) -> None:
    bare = BareMailbox()
    bare.commits.start()
    for seq in range(1, 4):
        await (await bare.take(send_batch(seq, (TOPIC, commands(1000)))))
    lost = await bare.receive(1000)
    if consumers == 1:
        assert await bare.ack(lost[:1]) == DONE
    seen = await bare.receive(1000)
    assert await bare.ack(seen[:600]) == DONE * 600
    assert bare.reorder_depth() == {}
    expected = {} if consumers == 1 else {0: 1000}
    for _ in range(2):
        bare = await restarted(bare)
        assert bare.reorder_depth() in ({}, expected)
        assert len(await bare.receive(5000)) > 2000
        assert bare.reorder_depth() == expected
    await bare.close()


async def restarted(bare: BareMailbox) -> BareMailbox:
    """Restart the mailbox on the same disk: everything that was only in memory is lost."""
    await bare.close()
    again = BareMailbox(disk=bare.disk)
    again.commits.start()
    return again
