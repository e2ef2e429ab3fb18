"""Group commit and intake against a disk that tests delay, fill and break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from services.mailbox.intake import commits as commits_module
from services.mailbox.intake.commits import Commits, Committed, Outcome
from services.mailbox.state.receipts import DONE, GONE
from snavio.domain.verdict import Verdict
from snavio.errors import IntegrityError, Saturated, SnavioError, Unavailable
from snavio.host.background import Background, host
from snavio.ports.mailbox_store import NewBatch, Origin, Progress, Send
from tests.support.bare_mailbox import BareMailbox
from tests.support.mailbox import TOPIC, commands, send_batch
from tests.support.panics import panicking


@pytest.fixture
async def bare() -> AsyncIterator[BareMailbox]:
    one = BareMailbox()
    one.commits.start()
    yield one
    await one.close()


def send(seq: int) -> Send:
    return Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, 1, b"x"),))


async def told(commits: Commits, *, one: Send | None = None, progress: Sequence[Progress] = ()) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    commits.submit(send=one, progress=progress, done=future.set_result)
    async with asyncio.timeout(10):
        return await future


async def test_what_waits_shares_one_commit_and_is_answered_in_order(bare: BareMailbox) -> None:
    bare.disk.open.clear()
    heard: list[int] = []
    for seq in range(1, 9):
        bare.commits.submit(send=send(seq), done=lambda _, seq=seq: heard.append(seq))  # type: ignore[misc]
    assert heard == []
    last = asyncio.create_task(told(bare.commits, progress=[Progress(TOPIC, 99, 1, 1)]))
    await asyncio.sleep(0)
    bare.disk.open.set()
    assert isinstance(await last, Committed)
    assert heard == list(range(1, 9))
    assert len(bare.disk.groups) <= 2 and sum(sends for sends, _ in bare.disk.groups) == 8


@pytest.mark.parametrize("fault", [Unavailable("gone"), RuntimeError("a bug")])
async def test_failed_commit_is_told_to_everybody_in_it_and_later_ones_go_on(
    bare: BareMailbox, fault: Exception
) -> None:
    bare.disk.fault = fault
    assert isinstance(await told(bare.commits, one=send(1)), Unavailable)
    assert isinstance(await told(bare.commits, progress=[Progress(TOPIC, 1, 1, 1)]), Unavailable)
    bare.disk.fault = None
    assert isinstance(await told(bare.commits, one=send(2)), Committed)


async def test_sends_that_do_not_fit_do_not_keep_acknowledgements_out(bare: BareMailbox) -> None:
    bare.disk.fault, bare.disk.only_sends = Saturated("full", retry_after_ms=7), True
    bare.disk.open.clear()
    bare.commits.submit(send=send(1))
    both = asyncio.gather(
        told(bare.commits, one=send(2)), told(bare.commits, progress=[Progress(TOPIC, 1, 1, 1)])
    )
    await asyncio.sleep(0)
    bare.disk.open.set()
    refused, stored = await both
    assert isinstance(refused, Saturated) and isinstance(stored, Committed)


async def test_close_commits_what_waits_and_takes_no_more(bare: BareMailbox) -> None:
    outcomes = [asyncio.create_task(told(bare.commits, one=send(seq))) for seq in range(1, 5)]
    await asyncio.sleep(0)
    await bare.commits.close()
    assert all(isinstance(one, Committed) for one in await asyncio.gather(*outcomes))
    with pytest.raises(Unavailable):
        bare.commits.submit(send=send(9))


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Saturated("full", retry_after_ms=7), Verdict.SATURATED),
        (Unavailable("broken"), Verdict.OUTCOME_UNKNOWN),
    ],
)
async def test_send_that_the_disk_refused_is_never_called_delivered_and_takes_no_room(
    bare: BareMailbox, fault: SnavioError, verdict: Verdict
) -> None:
    bare.disk.fault = fault
    assert await (await bare.take(send_batch(1, (TOPIC, commands(3))))) == bytes([verdict]) * 3
    assert bare.delivery.topics.counts(TOPIC) is None and bare.delivery.topics.names() == []
    bare.disk.fault = None
    assert await (await bare.take(send_batch(1, (TOPIC, commands(3))))) == DONE * 3
    assert len(await bare.receive()) == 3


async def test_batch_that_waited_longer_than_its_budget_is_refused_before_it_is_stored() -> None:
    bare = BareMailbox(max_waiting_bytes=1000)
    bare.commits.start()
    bare.disk.open.clear()
    first = await bare.take(send_batch(1, (TOPIC, commands(1, size=2000))))
    second = asyncio.create_task(bare.take(send_batch(2, (TOPIC, commands(1)), budget_ms=40)))
    await asyncio.sleep(0)
    assert not second.done(), "an overloaded disk is felt by not being read from"
    bare.clock.advance(seconds=0.04)
    bare.disk.open.set()
    assert await first == DONE
    assert await (await second) == bytes([Verdict.DELIVERY_FAILURE])
    assert len(await bare.receive()) == 1
    await bare.close()


async def test_ack_that_the_disk_refused_is_an_error_and_can_be_repeated(bare: BareMailbox) -> None:
    await (await bare.take(send_batch(1, (TOPIC, commands(3)))))
    got = await bare.receive()
    bare.disk.fault = Unavailable("broken")
    with pytest.raises(Unavailable):
        await bare.ack(got)
    bare.disk.fault = None
    assert await bare.ack(got) == DONE * 3


async def test_I_3_ack_whose_caller_went_away_is_final_all_the_same(bare: BareMailbox) -> None:
    await (await bare.take(send_batch(1, (TOPIC, commands(3)))))
    got = await bare.receive()
    bare.disk.open.clear()
    asking = asyncio.create_task(bare.ack(got))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    again = asyncio.create_task(bare.ack(got))
    await asyncio.sleep(0)
    assert not again.done(), "gone is not said before the first ack is on disk"
    bare.disk.open.set()
    assert await again == GONE * 3
    bare.clock.advance(seconds=5)
    assert await bare.receive() == []


async def test_gone_is_not_said_when_the_ack_that_it_relies_on_fails(bare: BareMailbox) -> None:
    await (await bare.take(send_batch(1, (TOPIC, commands(1)))))
    got = await bare.receive()
    bare.disk.open.clear()
    bare.disk.fault = Unavailable("broken")
    both = asyncio.gather(bare.ack(got), bare.ack(got), return_exceptions=True)
    await asyncio.sleep(0)
    bare.disk.open.set()
    assert [type(one) for one in await both] == [Unavailable, Unavailable]


async def test_receive_that_fails_leases_nothing(bare: BareMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for seq in (1, 2):
        await (await bare.take(send_batch(seq, (TOPIC, commands(2)))))
        bare.rows.forget(seq)

    def broken(_topic: str, _batch_id: int) -> bytes:
        raise Unavailable("broken")

    with monkeypatch.context() as patch:
        patch.setattr(bare.disk, "read", broken)
        with pytest.raises(Unavailable):
            await bare.receive()
    assert bare.delivery.inflight.total == 0
    bare.clock.advance(seconds=1)
    assert len(await bare.receive()) == 4


async def test_receive_that_fails_half_way_hands_out_what_it_has(
    bare: BareMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in (1, 2, 3):
        await (await bare.take(send_batch(seq, (TOPIC, commands(2)))))
    bare.rows.forget(2)

    def broken(_topic: str, _batch_id: int) -> bytes:
        raise Unavailable("broken")

    with monkeypatch.context() as patch:
        patch.setattr(bare.disk, "read", broken)
        assert [msg_id // 1024 for msg_id in await bare.receive()] == [1, 1]
    assert bare.delivery.inflight.total == 2
    bare.clock.advance(seconds=1)
    bare.delivery.tick()
    assert {msg_id // 1024 for msg_id in await bare.receive()} >= {2, 3}


async def test_G_9_receive_that_waits_for_the_disk_is_not_overtaken_by_one_of_newer_messages(
    bare: BareMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in (1, 2, 3):
        await (await bare.take(send_batch(seq, (TOPIC, commands(2)))))
    bare.rows.forget(1)
    may_read, stored = threading.Event(), bare.disk.read

    def slow(topic: str, batch_id: int) -> bytes:
        assert may_read.wait(10)
        return stored(topic, batch_id)

    monkeypatch.setattr(bare.disk, "read", slow)
    left: list[list[int]] = []

    async def receive(most: int) -> None:
        left.append(await bare.receive(most))

    async with asyncio.TaskGroup() as group:
        group.create_task(receive(3))
        group.create_task(receive(3))
        for _ in range(5):
            await asyncio.sleep(0)
        assert left == [], "the second has its bytes in memory, and waits"
        may_read.set()
    assert left == [[1024, 1025, 2048], [2049, 3072, 3073]]
    assert bare.reorder_depth() == {}


async def test_C_5_depth_counts_what_came_back_unsent_after_newer_ones_had_gone(bare: BareMailbox) -> None:
    for seq in (1, 2):
        await (await bare.take(send_batch(seq, (TOPIC, commands(40)))))
    unsent = await bare.receiving.take(bare.wanted(40))
    assert len(await bare.receive(40)) == 40
    bare.receiving.give_back(unsent)
    assert len(await bare.receive(40)) == 40
    assert bare.reorder_depth() == {0: 40}


async def test_damaged_row_costs_its_own_change_and_not_those_that_were_committed_with_it(
    bare: BareMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = bare.disk.commit

    def damaged(sends: Sequence[Send], progress: Sequence[Progress], **times: int) -> Any:
        if any(one.batch_id == 7 for one in progress):
            raise IntegrityError("a page does not match its checksum")
        return commit(sends, progress, **times)

    monkeypatch.setattr(bare.disk, "commit", damaged)
    bare.disk.open.clear()
    first = asyncio.create_task(told(bare.commits, one=send(1)))
    hit = asyncio.create_task(told(bare.commits, progress=[Progress(TOPIC, 7, 1, 1)]))
    last = asyncio.create_task(told(bare.commits, progress=[Progress(TOPIC, 8, 1, 1)]))
    await asyncio.sleep(0)
    bare.disk.open.set()
    assert isinstance(await hit, IntegrityError)
    assert isinstance(await first, Committed) and isinstance(await last, Committed)


@pytest.mark.parametrize("where", ["recognise", "commit", "outcomes"])
async def test_whatever_panics_the_commits_go_on_and_everybody_is_told(
    bare: BareMailbox, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "outcomes":
        # After the fsync, at an unexpected place.
        monkeypatch.setattr(commits_module, "_committed", panicking)
    else:
        monkeypatch.setattr(bare.disk, where, panicking)
    outcomes = [asyncio.create_task(told(bare.commits, one=send(seq))) for seq in range(1, 5)]
    for outcome in await asyncio.gather(*outcomes):
        assert isinstance(outcome, Unavailable)
    assert bare.commits._waiting_bytes == 0
    monkeypatch.undo()
    assert isinstance(await told(bare.commits, one=send(9)), Committed)


async def test_one_that_cannot_take_its_outcome_costs_nobody_theirs(bare: BareMailbox) -> None:
    bare.disk.open.clear()
    bare.commits.submit(send=send(1), done=panicking)
    rest = [asyncio.create_task(told(bare.commits, one=send(seq))) for seq in (2, 3)]
    await asyncio.sleep(0)
    bare.disk.open.set()
    assert all(isinstance(one, Committed) for one in await asyncio.gather(*rest))
    assert bare.commits._waiting_bytes == 0


async def test_what_is_on_disk_and_cannot_be_brought_in_is_delivered_by_the_next_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Background()
    host(own)
    bare = BareMailbox()
    bare.commits.start()
    monkeypatch.setattr(bare.delivery.window, "stored", panicking)
    assert await (await bare.take(send_batch(1, (TOPIC, commands(3))))) == DONE * 3, "it is durable"
    async with asyncio.timeout(10):
        while own.lost_work is None:
            await asyncio.sleep(0.01)
    await bare.close()
