"""Group commit and intake against a disk that tests hold up, fill and break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from services.mailbox.commits import Commits, Committed, Outcome
from services.mailbox.delivery import Delivery
from services.mailbox.intake import Intake, Sender
from services.mailbox.receiving import Receiving, Waiters, Wanted
from services.mailbox.rows import Rows
from services.mailbox.settling import Settlements
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, SnavioError, Unavailable
from snavio.native import open_parcels
from snavio.ports.mailbox_store import NewBatch, Origin, Progress, Send
from snavio.v1.batch_pb2 import Verdicts
from snavio.worker import Worker
from tests.support.mailbox import TOPIC, commands, send_batch

ME = "spiffe://snavio.local/tenant/acme/service/me"
DONE, GONE = b"\x01", b"\x03"


class Disk(MemoryMailboxStore):
    """A store whose commits tests let through one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.fault: Exception | None = None
        self.only_sends = False
        self.groups: list[tuple[int, int]] = []

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        assert self.open.wait(10)
        self.groups.append((len(sends), len(progress)))
        if self.fault is not None and (sends or not self.only_sends):
            raise self.fault
        return super().commit(sends, progress, now_unix_ns=now_unix_ns)


class Desk:
    """The mailbox without server and disk."""

    def __init__(self, *, max_waiting_bytes: int = 1 << 20) -> None:
        self.disk, self.clock, self.waiters = Disk(), ManualClock(), Waiters()
        self.commits = Commits(self.disk, clock=self.clock, max_waiting_bytes=max_waiting_bytes)
        self.worker = Worker("reads")
        self.rows = Rows(self.disk, worker=self.worker)
        self.delivery = Delivery(
            clock=self.clock,
            boot_epoch=1,
            records=(),
            woken=self.waiters.wake,
            record=lambda state: self.commits.submit(progress=(state,)),
        )
        self.intake = Intake(
            store=self.disk,
            commits=self.commits,
            delivery=self.delivery,
            rows=self.rows,
            clock=self.clock,
        )
        self.receiving = Receiving(
            delivery=self.delivery, rows=self.rows, waiters=self.waiters, stopping=lambda: False
        )
        self.settlements = Settlements(delivery=self.delivery, commits=self.commits, rows=self.rows)

    async def take(self, frame: bytes) -> asyncio.Future[bytes]:
        """The codes of the final answer, when it comes."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def final(verdicts: bytes) -> None:
            answer.set_result(Verdicts.FromString(verdicts).codes)

        await self.intake.take(frame, Sender("fast/fast-0", 1), partial=lambda _: None, final=final)
        return answer

    async def receive(self) -> list[int]:
        response = await self.receiving.receive(Wanted(TOPIC, ME, 1000, 5000, 1 << 20, 0.0, lambda: None))
        return [message[0] for message in open_parcels(response)[1]]

    async def ack(self, msg_ids: list[int]) -> bytes:
        return await self.settlements.settle(TOPIC, 1, msg_ids, [1] * len(msg_ids), holder=ME, final=True)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    one = Desk()
    one.commits.start()
    yield one
    one.disk.open.set()
    await one.commits.close()
    await one.worker.close(lambda: None)


def send(seq: int) -> Send:
    return Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, 1, b"x"),))


async def told(commits: Commits, *, one: Send | None = None, progress: Sequence[Progress] = ()) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    commits.submit(send=one, progress=progress, done=future.set_result)
    async with asyncio.timeout(10):
        return await future


async def test_what_waits_shares_one_commit_and_is_answered_in_order(desk: Desk) -> None:
    desk.disk.open.clear()
    heard: list[int] = []
    for seq in range(1, 9):
        desk.commits.submit(send=send(seq), done=lambda _, seq=seq: heard.append(seq))  # type: ignore[misc]
    assert heard == []
    last = asyncio.create_task(told(desk.commits, progress=[Progress(TOPIC, 99, 1, 1)]))
    await asyncio.sleep(0)
    desk.disk.open.set()
    assert isinstance(await last, Committed)
    assert heard == list(range(1, 9))
    assert len(desk.disk.groups) <= 2 and sum(sends for sends, _ in desk.disk.groups) == 8


@pytest.mark.parametrize("fault", [Unavailable("gone"), RuntimeError("a bug")])
async def test_failed_commit_is_told_to_everybody_in_it_and_later_ones_go_on(
    desk: Desk, fault: Exception
) -> None:
    desk.disk.fault = fault
    assert isinstance(await told(desk.commits, one=send(1)), Unavailable)
    assert isinstance(await told(desk.commits, progress=[Progress(TOPIC, 1, 1, 1)]), Unavailable)
    desk.disk.fault = None
    assert isinstance(await told(desk.commits, one=send(2)), Committed)


async def test_sends_that_do_not_fit_do_not_keep_acknowledgements_out(desk: Desk) -> None:
    desk.disk.fault, desk.disk.only_sends = Saturated("full", retry_after_ms=7), True
    desk.disk.open.clear()
    desk.commits.submit(send=send(1))
    both = asyncio.gather(
        told(desk.commits, one=send(2)), told(desk.commits, progress=[Progress(TOPIC, 1, 1, 1)])
    )
    await asyncio.sleep(0)
    desk.disk.open.set()
    refused, stored = await both
    assert isinstance(refused, Saturated) and isinstance(stored, Committed)


async def test_close_commits_what_waits_and_takes_no_more(desk: Desk) -> None:
    outcomes = [asyncio.create_task(told(desk.commits, one=send(seq))) for seq in range(1, 5)]
    await asyncio.sleep(0)
    await desk.commits.close()
    assert all(isinstance(one, Committed) for one in await asyncio.gather(*outcomes))
    with pytest.raises(Unavailable):
        desk.commits.submit(send=send(9))


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Saturated("full", retry_after_ms=7), Verdict.SATURATED),
        (Unavailable("broken"), Verdict.OUTCOME_UNKNOWN),
    ],
)
async def test_send_that_the_disk_refused_is_never_called_delivered_and_takes_no_room(
    desk: Desk, fault: SnavioError, verdict: Verdict
) -> None:
    desk.disk.fault = fault
    assert await (await desk.take(send_batch(1, (TOPIC, commands(3))))) == bytes([verdict]) * 3
    counts = desk.delivery.counts(TOPIC)
    assert counts is not None and counts.ready == 0
    desk.disk.fault = None
    assert await (await desk.take(send_batch(1, (TOPIC, commands(3))))) == DONE * 3
    assert len(await desk.receive()) == 3


async def test_batch_that_waited_longer_than_its_budget_is_refused_before_it_is_stored() -> None:
    desk = Desk(max_waiting_bytes=1000)
    desk.commits.start()
    desk.disk.open.clear()
    first = await desk.take(send_batch(1, (TOPIC, commands(1, size=2000))))
    second = asyncio.create_task(desk.take(send_batch(2, (TOPIC, commands(1)), budget_ms=40)))
    await asyncio.sleep(0)
    assert not second.done(), "an overloaded disk is felt by not being read from"
    desk.clock.advance(seconds=0.04)
    desk.disk.open.set()
    assert await first == DONE
    assert await (await second) == bytes([Verdict.DELIVERY_FAILURE])
    assert len(await desk.receive()) == 1
    await desk.commits.close()
    await desk.worker.close(lambda: None)


async def test_ack_that_the_disk_refused_is_an_error_and_can_be_repeated(desk: Desk) -> None:
    await (await desk.take(send_batch(1, (TOPIC, commands(3)))))
    got = await desk.receive()
    desk.disk.fault = Unavailable("broken")
    with pytest.raises(Unavailable):
        await desk.ack(got)
    desk.disk.fault = None
    assert await desk.ack(got) == DONE * 3


async def test_I_3_ack_whose_caller_went_away_is_final_all_the_same(desk: Desk) -> None:
    await (await desk.take(send_batch(1, (TOPIC, commands(3)))))
    got = await desk.receive()
    desk.disk.open.clear()
    asking = asyncio.create_task(desk.ack(got))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    again = asyncio.create_task(desk.ack(got))
    await asyncio.sleep(0)
    assert not again.done(), "gone is not said before the first ack is on disk"
    desk.disk.open.set()
    assert await again == GONE * 3
    desk.clock.advance(seconds=5)
    assert await desk.receive() == []


async def test_gone_is_not_said_when_the_ack_that_it_relies_on_fails(desk: Desk) -> None:
    await (await desk.take(send_batch(1, (TOPIC, commands(1)))))
    got = await desk.receive()
    desk.disk.open.clear()
    desk.disk.fault = Unavailable("broken")
    both = asyncio.gather(desk.ack(got), desk.ack(got), return_exceptions=True)
    await asyncio.sleep(0)
    desk.disk.open.set()
    assert [type(one) for one in await both] == [Unavailable, Unavailable]


async def test_receive_that_fails_leases_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for seq in (1, 2):
        await (await desk.take(send_batch(seq, (TOPIC, commands(2)))))
    desk.rows.forget(2)

    def broken(_topic: str, _batch_id: int) -> bytes:
        raise Unavailable("broken")

    with monkeypatch.context() as patch:
        patch.setattr(desk.disk, "read", broken)
        with pytest.raises(Unavailable):
            await desk.receive()
    assert desk.delivery.inflight == 0
    assert len(await desk.receive()) == 4
