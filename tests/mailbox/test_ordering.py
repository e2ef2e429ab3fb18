"""The number that tells how far messages of a shard overtake each other."""

from __future__ import annotations

from services.mailbox.ordering import LATEST, Ordering


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
