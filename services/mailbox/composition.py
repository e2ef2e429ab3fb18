"""Composes the state of the mailbox and the decisions on it, from an open store.

Never opens a second store on the same folder, and closes the one it opened after the last commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.delivery.receiving import Receiving
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.intake.batch_intake import BatchIntake
from services.mailbox.intake.commits import CLOSE_SECONDS, Commits
from services.mailbox.intake.message_groups import GroupIntake
from services.mailbox.intake.new_messages import MessageIntake
from services.mailbox.intake.send_commit import SendCommit
from services.mailbox.oversight.change_requests import Oversight
from services.mailbox.oversight.listing import Listing
from services.mailbox.retention.batch_rewrite import BatchRewrite
from services.mailbox.retention.empty_topics import EmptyTopics
from services.mailbox.retention.pruning import Retention
from services.mailbox.retention.store_clock import StoreClock
from services.mailbox.retention.topic_rules import TopicRules
from services.mailbox.settings import MailboxSettings
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.settling import Settling
from snavio.errors import Unavailable
from snavio.host.service import ServiceHost
from snavio.host.store_readers import StoreReaders
from snavio.ports.mailbox_store import MailboxStore, Progress
from snavio.telemetry.events import EventJournal
from snavio.wiring import open_mailbox_store

RULES_PULLS: Final = 2
"""Pulls of other copies of the directory for one of the topic rules: nobody waits for a rule to the second."""


@dataclass(frozen=True, slots=True)
class MailboxParts:
    """The state of one mailbox, what decides on it, and the threads that read and write it."""

    store: MailboxStore
    readers: StoreReaders
    commits: Commits
    tenants: MailboxShares
    delivery: Delivery
    settlements: Settlements
    listing: Listing
    oversight: Oversight
    retention: Retention
    receiving: Receiving
    intake: BatchIntake
    message_intake: MessageIntake
    group_intake: GroupIntake
    events: EventJournal
    topic_rules: TopicRules


async def compose_parts(
    host: ServiceHost, settings: MailboxSettings, *, waiters: Waiters, stopping: Callable[[], bool]
) -> MailboxParts:
    """Open the store, count its topics, and begin to commit."""
    clock = host.clock
    folder = None if settings.amnesia else host.mesh.state_dir / "mailbox"
    store = await asyncio.to_thread(
        open_mailbox_store, folder, max_bytes=settings.max_store_bytes, max_keys=settings.max_replay_keys
    )
    readers = StoreReaders("mailbox-reads")
    host.at_stop("store", lambda: readers.close(store.close))
    epoch = await asyncio.to_thread(store.begin_epoch, clock.unix_ns())
    records = await asyncio.to_thread(store.topics)
    policies = settings.policies()
    topic_rules = TopicRules(
        host.channel("registry"),
        policies,
        clock=clock,
        interval_s=RULES_PULLS * host.pull_interval_s,
        folder=folder,
    )
    topic_rules.load()
    age = StoreClock(clock=clock, age_ns=await asyncio.to_thread(store.age))
    commits = Commits(store, clock=clock, max_waiting_bytes=settings.queued_bytes, age_ns=age.now_ns)
    # Without a disk the store is the cache, and a second copy could not be wiped.
    rows = BatchReader(store, worker=readers, max_bytes=0 if settings.amnesia else settings.cached_bytes)
    limits = settings.limits()
    tenants = MailboxShares.of(
        limits, host.mesh.share, store_bytes=settings.max_store_bytes, held=store.stored_bytes
    )

    def note(progress: Progress) -> None:
        with contextlib.suppress(Unavailable):  # stopping: the attempt is then not counted
            commits.submit(progress=(progress,))

    def commit_ended(settling: Settling) -> None:
        # Messages that ended by themselves: no caller waits for it.
        settlements.commit(settling)

    delivery = Delivery(
        clock=clock,
        boot_epoch=epoch,
        records=records,
        woken=waiters.wake,
        record=note,
        limits=limits,
        shares=tenants,
        policies=policies,
        commit_ended=commit_ended,
        age_ns=age.now_ns,
    )
    settlements = Settlements(delivery=delivery, commits=commits, rows=rows, clock=clock)
    listing = Listing(delivery=delivery, store=store, rows=rows, worker=readers)
    oversight = Oversight(
        delivery=delivery, listing=listing, settlements=settlements, store=store, clock=clock
    )
    events = EventJournal(epoch=epoch, onward=host.reporting.record)
    batch_rewrite = BatchRewrite(
        delivery=delivery, oversight=oversight, listing=listing, rows=rows, store=store, age=age
    )
    retention = Retention(
        delivery=delivery,
        oversight=oversight,
        listing=listing,
        batch_rewrite=batch_rewrite,
        rows=rows,
        commits=commits,
        store=store,
        age=age,
        events=events,
        clock=clock,
        empty_topics=EmptyTopics(delivery=delivery, listing=listing, store=store, awaited=waiters.waiting),
    )
    receiving = Receiving(delivery=delivery, rows=rows, waiters=waiters, stopping=stopping, clock=clock)
    intake = BatchIntake(
        store=store, commits=commits, delivery=delivery, settlements=settlements, rows=rows, clock=clock
    )
    storing = SendCommit(
        commits=commits, delivery=delivery, intake=intake, settlements=settlements, rows=rows
    )
    message_intake = MessageIntake(
        store=store, commits=commits, delivery=delivery, storing=storing, clock=clock
    )
    group_intake = GroupIntake(store=store, commits=commits, delivery=delivery, storing=storing, clock=clock)
    # After the server and before the store: every answered send is committed, every committed one is answered.
    host.at_stop("commits", commits.close, within_s=CLOSE_SECONDS)
    commits.start()
    return MailboxParts(
        store=store,
        readers=readers,
        commits=commits,
        tenants=tenants,
        delivery=delivery,
        settlements=settlements,
        listing=listing,
        oversight=oversight,
        retention=retention,
        receiving=receiving,
        intake=intake,
        message_intake=message_intake,
        group_intake=group_intake,
        events=events,
        topic_rules=topic_rules,
    )
