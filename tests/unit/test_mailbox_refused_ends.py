"""Messages that were delivered once too often, while the disk refuses to end them."""

from __future__ import annotations

import pytest

from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.receipts import LATE
from services.mailbox.state.settling import Settling
from snavio.errors import Unavailable
from snavio.native import read_leased_batches
from tests.support.bare_mailbox import ME, BareMailbox
from tests.support.checked import CheckedDelivery
from tests.support.mailbox import TOPIC, commands, send_batch

LAST = 2


async def received(bare: BareMailbox) -> list[tuple[int, int]]:
    """Message and attempt of all that can be had."""
    response = await bare.receiving.receive(bare.wanted(100))
    return [(one.msg_id, one.attempt) for one in read_leased_batches(response)[1]]


@pytest.mark.parametrize("restarted", [False, True])
async def test_I_3_I_4_refused_end_hands_out_no_attempt_twice(restarted: bool) -> None:
    bare = BareMailbox(policies=Policies(Policy(max_attempts=LAST)), kind=CheckedDelivery)
    refusing, refused = True, list[Settling]()

    def commit_ended(settling: Settling) -> None:
        if refusing:
            refused.append(settling)
            bare.delivery.transitions.revert(settling)
        else:
            bare.settlements.commit(settling)

    bare.delivery.transitions.commit_ended = commit_ended
    bare.commits.start()
    await (await bare.take(send_batch(1, (TOPIC, commands(3)))))
    seen = []
    for _ in range(LAST):
        seen.append(await received(bare))
        bare.clock.advance(seconds=1.5)
    assert [[attempt for _, attempt in one] for one in seen] == [[1] * 3, [2] * 3]
    first_refused = seen[-1]
    for _ in range(3):
        assert await received(bare) == [], "the last attempt was handed out before"
        bare.clock.advance(seconds=1.5)
    assert len(refused) >= 2, "it is tried again"
    ids, attempts = [one for one, _ in first_refused], [attempt for _, attempt in first_refused]
    assert await bare.settlements.settle(TOPIC, 1, ids, attempts, holder=ME) == LATE * 3
    refusing = False
    if restarted:
        await bare.commits.close()
        again = BareMailbox(
            policies=Policies(Policy(max_attempts=LAST)), kind=CheckedDelivery, disk=bare.disk
        )
        await bare.worker.close(lambda: None)
        bare = again
        bare.commits.start()
    assert await received(bare) == []
    await bare.close()
    counts = bare.delivery.topics.counts(TOPIC)
    assert counts is not None and (counts.ready, counts.inflight, counts.dead) == (0, 0, 3)
    (record,) = bare.disk.records(TOPIC, after=0, limit=10)
    (ended,) = record.ends
    assert ended.ending.attempt == LAST and [one.attempt for one in ended.ending.history] == [1, 2]


async def test_I_4_disk_that_refuses_for_a_while_ends_them_when_it_is_back() -> None:
    bare = BareMailbox(policies=Policies(Policy(max_attempts=1)), kind=CheckedDelivery)
    bare.delivery.transitions.commit_ended = bare.settlements.commit
    bare.commits.start()
    await (await bare.take(send_batch(1, (TOPIC, commands(2)))))
    assert len(await received(bare)) == 2
    bare.disk.fault = Unavailable("broken")
    bare.clock.advance(seconds=1.5)
    assert await received(bare) == []
    await bare.settlements.over(bare.batches())
    bare.disk.fault = None
    for _ in range(2):
        bare.clock.advance(seconds=1.5)
        assert await received(bare) == []
        await bare.settlements.over(bare.batches())
    counts = bare.delivery.topics.counts(TOPIC)
    assert counts is not None and counts.dead == 2
    await bare.close()
