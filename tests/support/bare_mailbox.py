"""The mailbox with its real commits, receives and acknowledgements, over a disk that tests hold up and break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.delivery.receiving import Receiving, Wanted
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.intake.batch_intake import BatchIntake, Sender
from services.mailbox.intake.commits import Commits
from services.mailbox.oversight.change_requests import Oversight
from services.mailbox.oversight.listing import Listing
from services.mailbox.retention.batch_rewrite import BatchRewrite
from services.mailbox.retention.empty_topics import EmptyTopics
from services.mailbox.retention.pruning import Retention
from services.mailbox.retention.store_clock import StoreClock
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.batch import Batch
from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.policy import Policies
from services.mailbox.state.topics import Limits
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.clock import ManualClock
from snavio.host.shares import ShareLimit
from snavio.host.store_readers import StoreReaders
from snavio.native import read_leased_batches
from snavio.ports.mailbox_store import Progress, Send
from snavio.telemetry.events import EventJournal
from snavio.v1.batch_pb2 import Verdicts
from tests.support.mailbox import TOPIC

ME = "spiffe://snavio.local/tenant/acme/service/me"


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
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int, age_ns: int = 0
    ) -> list[tuple[int, ...]]:
        assert self.open.wait(10)
        self.groups.append((len(sends), len(progress)))
        if self.fault is not None and (sends or not self.only_sends):
            raise self.fault
        return super().commit(sends, progress, now_unix_ns=now_unix_ns, age_ns=age_ns)


class BareMailbox:
    """The mailbox without server and disk."""

    def __init__(
        self,
        *,
        max_waiting_bytes: int = 1 << 20,
        cached_bytes: int = 32 << 20,
        policies: Policies | None = None,
        kind: type[Delivery] = Delivery,
        disk: Disk | None = None,
        limits: Limits | None = None,
        percent: int = 100,
        store_bytes: int = 1 << 40,
    ) -> None:
        """`percent` is a tenant's share of every bound."""
        self.disk, self.clock, self.waiters = disk or Disk(), ManualClock(), Waiters()
        self.age = StoreClock(clock=self.clock, age_ns=0)
        self.commits = Commits(
            self.disk, clock=self.clock, max_waiting_bytes=max_waiting_bytes, age_ns=self.age.now_ns
        )
        # One, so that a test which has work done behind what is under way knows that this is over.
        self.worker = StoreReaders("reads", readers=1)
        self.rows = BatchReader(self.disk, worker=self.worker, max_bytes=cached_bytes)
        limits = limits or Limits()
        self.shares = MailboxShares.of(
            limits,
            lambda _, total: ShareLimit.of(total, tenant_percent=percent, reserve_percent=0),
            store_bytes=store_bytes,
            held=self.disk.stored_bytes,
        )
        self.delivery = kind(
            clock=self.clock,
            boot_epoch=1,
            records=self.disk.topics(),
            woken=self.waiters.wake,
            record=lambda state: self.commits.submit(progress=(state,)),
            policies=policies,
            limits=limits,
            shares=self.shares,
            age_ns=self.age.now_ns,
        )
        self.settlements = Settlements(delivery=self.delivery, commits=self.commits, rows=self.rows)
        self.intake = BatchIntake(
            store=self.disk,
            commits=self.commits,
            delivery=self.delivery,
            settlements=self.settlements,
            rows=self.rows,
            clock=self.clock,
        )
        self.receiving = Receiving(
            delivery=self.delivery, rows=self.rows, waiters=self.waiters, stopping=lambda: False
        )
        self.listing = Listing(delivery=self.delivery, store=self.disk, rows=self.rows, worker=self.worker)
        self.oversight = Oversight(
            delivery=self.delivery,
            listing=self.listing,
            settlements=self.settlements,
            store=self.disk,
            clock=self.clock,
        )
        batch_rewrite = BatchRewrite(
            delivery=self.delivery,
            oversight=self.oversight,
            listing=self.listing,
            rows=self.rows,
            store=self.disk,
            age=self.age,
        )
        self.events = EventJournal(epoch=1)
        self.retention = Retention(
            delivery=self.delivery,
            oversight=self.oversight,
            listing=self.listing,
            batch_rewrite=batch_rewrite,
            rows=self.rows,
            commits=self.commits,
            store=self.disk,
            age=self.age,
            events=self.events,
            clock=self.clock,
            empty_topics=EmptyTopics(
                delivery=self.delivery, listing=self.listing, store=self.disk, awaited=self.waiters.waiting
            ),
        )

    async def take(self, frame: bytes) -> asyncio.Future[bytes]:
        """The codes of the final answer, when it comes."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def final(verdicts: bytes) -> None:
            answer.set_result(Verdicts.FromString(verdicts).codes)

        await self.intake.take(frame, Sender("fast/fast-0", 1), final=final)
        return answer

    def wanted(self, most: int, holder: str = ME) -> Wanted:
        return Wanted(TOPIC, holder, 1000, most, 1 << 20, 0.0, lambda: None)

    async def receive(self, most: int = 5000) -> list[int]:
        response = await self.receiving.receive(self.wanted(most))
        return [message.msg_id for message in read_leased_batches(response)[1]]

    def batches(self) -> list[Batch]:
        """Those of the topic that are in memory."""
        topic = self.delivery.topics.topic(TOPIC)
        return list(topic.batches.values()) if topic else []

    def reorder_depth(self) -> dict[int, int]:
        counts = self.delivery.topics.counts(TOPIC)
        assert counts is not None
        return dict(counts.reorder_depth)

    async def ack(self, msg_ids: list[int]) -> bytes:
        """Of the first attempt at each."""
        return await self.settlements.settle(TOPIC, 1, msg_ids, [1] * len(msg_ids), holder=ME, final=True)

    async def close(self) -> None:
        self.disk.open.set()
        await self.commits.close()
        await self.worker.close(lambda: None)


@asynccontextmanager
async def bare_mailbox(**settings: Any) -> AsyncIterator[BareMailbox]:
    """A mailbox whose commits run, closed behind the block."""
    bare = BareMailbox(**settings)
    bare.commits.start()
    try:
        yield bare
    finally:
        await bare.close()
