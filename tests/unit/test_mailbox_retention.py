"""Retention of ready messages: exact to the second in every topic, however long that of others is."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from services.mailbox.oversight import metrics
from services.mailbox.state.policy import Policies, Policy, topic_rules
from services.mailbox.state.topics import Limits
from snavio.adapters.embedded import mailbox_rows
from snavio.adapters.embedded.commit_mark import mark_path
from snavio.adapters.embedded.mailbox_database import PAGE_SIZE
from snavio.adapters.embedded.sqlite import open_store
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import NewBatch, Origin, Send
from tests.support.bare_mailbox import BareMailbox, bare_mailbox
from tests.support.mailbox import commands, send_batch

SECOND = 1_000_000_000
SHORT, LONG = "acme/short", "acme/long"
RULES = Policies(Policy(ready_s=604_800), {SHORT: Policy(ready_s=60), "acme/later": Policy(ready_s=65)})


ruled_mailbox = partial(bare_mailbox, policies=RULES)


async def sent(bare: BareMailbox, seq: int, *topics: str, count: int = 1) -> None:
    answer = await bare.take(send_batch(seq, *((topic, commands(count)) for topic in topics)))
    assert set(await asyncio.wait_for(answer, 10)) == {1}


async def passed(bare: BareMailbox, seconds: int) -> None:
    """Time, with retention looking once a second, as it does."""
    for _ in range(seconds):
        bare.clock.advance(seconds=1)
        await bare.retention.step()
        await asyncio.sleep(0)
    while bare.commits._waiting_bytes:
        await asyncio.sleep(0.001)


def dead(bare: BareMailbox, topic: str) -> int:
    counts = bare.delivery.topics.counts(topic)
    assert counts is not None
    return counts.dead


async def test_B8_a_short_retention_beside_a_long_one_is_exact_to_the_second() -> None:
    async with ruled_mailbox() as bare:
        await passed(bare, 3)
        await sent(bare, 1, SHORT, LONG)
        await passed(bare, 20)
        await sent(bare, 2, SHORT)
        await passed(bare, 39)
        assert dead(bare, SHORT) == 0, "59 seconds"
        await passed(bare, 2)
        assert dead(bare, SHORT) == 1, "61 seconds"
        await passed(bare, 18)
        assert dead(bare, SHORT) == 1
        await passed(bare, 2)
        assert dead(bare, SHORT) == 2 and dead(bare, LONG) == 0


async def test_B8_what_waits_on_disk_expires_in_time_too() -> None:
    async with ruled_mailbox(limits=Limits(window_batches=2)) as bare:
        for seq in range(1, 31):
            await sent(bare, seq, SHORT, count=2)
        topic = bare.delivery.topics.topic(SHORT)
        assert topic is not None and len(topic.batches) < 30
        await passed(bare, 30)
        await sent(bare, 99, SHORT, count=3)
        await passed(bare, 29)
        assert dead(bare, SHORT) == 0
        await passed(bare, 2)
        assert dead(bare, SHORT) == 60
        await passed(bare, 30)
        assert dead(bare, SHORT) == 63


async def test_B8_many_topics_do_not_make_it_late() -> None:
    async with ruled_mailbox() as bare:
        seq = 0
        for number in range(0, 300, 50):
            seq += 1
            await sent(bare, seq, *(f"acme/t{n}" for n in range(number, number + 50)))
        await sent(bare, seq + 1, SHORT)
        for number in range(300, 600, 50):
            seq += 1
            await sent(bare, seq + 1, *(f"acme/t{n}" for n in range(number, number + 50)))
        await passed(bare, 59)
        assert dead(bare, SHORT) == 0
        await passed(bare, 2)
        assert dead(bare, SHORT) == 1


async def test_B8_the_age_of_a_batch_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest)
    send = Send(Origin("fast/0", 1, 1), b"", (NewBatch(SHORT, 1, b"x"),))
    ((batch_id,),) = store.commit([send], [], now_unix_ns=1, age_ns=77 * SECOND)
    store.note_age(80 * SECOND)
    store.close()
    store = SqliteMailboxStore(path, digest=blake3_digest)
    record = store.record(SHORT, batch_id)
    assert record is not None and record.stored_age_ns == 77 * SECOND and store.age() == 80 * SECOND
    store.close()


def test_B8_rows_of_an_older_store_get_their_age_from_its_milestones(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest)
    sends = [Send(Origin("fast/0", 1, seq), b"", (NewBatch(SHORT, 1, b"x"),)) for seq in range(1, 7)]
    ids = [store.commit([send], [], now_unix_ns=1)[0][0] for send in sends]
    store.note_age(500)
    store.close()
    _as_schema_8(path, {100: ids[1], 300: ids[1], 400: ids[3]})
    store = SqliteMailboxStore(path, digest=blake3_digest)
    told = [one.stored_age_ns for one in store.records(SHORT, after=0, limit=10)]
    assert told[:4] == [100, 100, 400, 400]
    assert all(age >= 500 for age in told[4:]), "never older than they are"
    assert store.age() == 500
    store.close()


def _as_schema_8(path: Path, milestones: dict[int, int]) -> None:
    """The file as the program before wrote it."""
    connection = open_store(
        path,
        application_id=mailbox_rows.APPLICATION_ID,
        schema_version=mailbox_rows.SCHEMA_VERSION,
        create=mailbox_rows.CREATE,
        migrations=mailbox_rows.MIGRATIONS,
        page_size=PAGE_SIZE,
    )
    connection.execute("ALTER TABLE batches DROP COLUMN stored_age_ns")
    connection.execute("ALTER TABLE counters DROP COLUMN commits")
    connection.execute(
        "CREATE TABLE milestones (age_ns INTEGER PRIMARY KEY, batch_id INTEGER NOT NULL) STRICT"
    )
    connection.executemany("INSERT INTO milestones VALUES (?, ?)", milestones.items())
    connection.execute("PRAGMA user_version = 8")
    connection.close()
    mark_path(path).unlink()


@pytest.mark.parametrize("version", range(2, mailbox_rows.SCHEMA_VERSION))
def test_every_schema_has_a_way_forward(version: int) -> None:
    assert version in mailbox_rows.MIGRATIONS


TELEMETRY = "acme/snavio.telemetry"
FULL_RULES = Policies(Policy(), {"*/snavio.telemetry": Policy(ready_messages=5)})


async def test_a_full_topic_that_takes_new_messages_lets_its_oldest_go_and_says_so() -> None:
    async with bare_mailbox(policies=FULL_RULES) as bare:
        for seq in range(1, 5):
            await sent(bare, seq, TELEMETRY, LONG, count=2)
        await passed(bare, 3)
        topic = bare.delivery.topics.topic(TELEMETRY)
        assert topic is not None
        assert (topic.messages, dead(bare, TELEMETRY)) == (4, 4), "whole batches, the oldest first"
        assert sorted(topic.batches) == [3, 4] or len(topic.batches) == 2
        assert dead(bare, LONG) == 0, "a topic without such a rule keeps what it has"
        told = [one.event for one in bare.events.after(0, limit=100)]
        assert [(event.name, event.fields()["dropped_events"]) for event in told] == [
            ("snavio.telemetry.dropped", 4)
        ]
        assert (told[0].fields()["tenant"], told[0].fields()["reason"]) == ("acme", "queue_unconsumed")
        read = metrics.telemetry_queues(bare.delivery)
        assert read['telemetry_queue_sent{tenant="acme"}'] == 8
        assert read['telemetry_queue_deleted{tenant="acme"}'] == 0
        assert read['telemetry_queue_dlq_depth{tenant="acme"}'] == 4
        assert read['telemetry_queue_age_seconds{tenant="acme"}'] >= 3
        assert 'telemetry_queue_delayed{tenant="acme"}' in read
        assert {name.partition("{")[2] for name in read} == {'tenant="acme"}'}, "of no other topic"


async def test_what_ages_out_of_another_topic_is_no_lost_telemetry() -> None:
    async with ruled_mailbox() as bare:
        await sent(bare, 1, SHORT)
        await passed(bare, 62)
        assert dead(bare, SHORT) == 1
        assert [one.event.name for one in bare.events.after(0, limit=100)] == []


def test_a_rule_of_every_tenant_is_beaten_by_a_topics_own() -> None:
    rules = topic_rules("*/mail ready_s=60; acme/mail ready_s=30", Policy())
    policies = Policies(Policy(ready_s=10), rules)
    assert [policies.of(topic).ready_s for topic in ("acme/mail", "globex/mail", "acme/own/mail")] == [
        30,
        60,
        10,
    ]
