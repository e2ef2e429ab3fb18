"""Messages that were delivered once too often, while the disk refuses to end them."""

from __future__ import annotations

import pytest

from services.mailbox.state.delivery import LATE
from services.mailbox.state.leases import Settling
from services.mailbox.state.policy import Policies, Policy
from snavio.errors import Unavailable
from snavio.native import read_leased_batches
from tests.support.checked import CheckedDelivery
from tests.support.desk import ME, Desk
from tests.support.mailbox import TOPIC, commands, send_batch

LAST = 2


async def received(desk: Desk) -> list[tuple[int, int]]:
    """Message and attempt of all that can be had."""
    response = await desk.receiving.receive(desk.wanted(100))
    return [(one[0], one[1]) for one in read_leased_batches(response)[1]]


@pytest.mark.parametrize("restarted", [False, True])
async def test_I_3_I_4_refused_end_hands_out_no_attempt_twice(restarted: bool) -> None:
    desk = Desk(policies=Policies(Policy(max_attempts=LAST)), kind=CheckedDelivery)
    refusing, refused = True, list[Settling]()

    def commit_ended(settling: Settling) -> None:
        if refusing:
            refused.append(settling)
            desk.delivery.transitions.revert(settling)
        else:
            desk.settlements.commit(settling)

    desk.delivery.transitions.commit_ended = commit_ended
    desk.commits.start()
    await (await desk.take(send_batch(1, (TOPIC, commands(3)))))
    seen = []
    for _ in range(LAST):
        seen.append(await received(desk))
        desk.clock.advance(seconds=1.5)
    assert [[attempt for _, attempt in one] for one in seen] == [[1] * 3, [2] * 3]
    first_refused = seen[-1]
    for _ in range(3):
        assert await received(desk) == [], "the last attempt was handed out before"
        desk.clock.advance(seconds=1.5)
    assert len(refused) >= 2, "it is tried again"
    ids, attempts = [one for one, _ in first_refused], [attempt for _, attempt in first_refused]
    assert await desk.settlements.settle(TOPIC, 1, ids, attempts, holder=ME) == LATE * 3
    refusing = False
    if restarted:
        await desk.commits.close()
        again = Desk(policies=Policies(Policy(max_attempts=LAST)), kind=CheckedDelivery, disk=desk.disk)
        await desk.worker.close(lambda: None)
        desk = again
        desk.commits.start()
    assert await received(desk) == []
    await desk.close()
    counts = desk.delivery.topics.counts(TOPIC)
    assert counts is not None and (counts.ready, counts.inflight, counts.dead) == (0, 0, 3)
    (record,) = desk.disk.records(TOPIC, after=0, limit=10)
    (ended,) = record.ends
    assert ended.ending.attempt == LAST and [one.attempt for one in ended.ending.history] == [1, 2]


async def test_I_4_disk_that_refuses_for_a_while_ends_them_when_it_is_back() -> None:
    desk = Desk(policies=Policies(Policy(max_attempts=1)), kind=CheckedDelivery)
    desk.delivery.transitions.commit_ended = desk.settlements.commit
    desk.commits.start()
    await (await desk.take(send_batch(1, (TOPIC, commands(2)))))
    assert len(await received(desk)) == 2
    desk.disk.fault = Unavailable("broken")
    desk.clock.advance(seconds=1.5)
    assert await received(desk) == []
    await desk.settlements.over(desk.batches())
    desk.disk.fault = None
    for _ in range(2):
        desk.clock.advance(seconds=1.5)
        assert await received(desk) == []
        await desk.settlements.over(desk.batches())
    counts = desk.delivery.topics.counts(TOPIC)
    assert counts is not None and counts.dead == 2
    await desk.close()
