"""Topics, stored bytes and ranges in memory: each tenant has a share, and filling it does not stop other tenants."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.intake.batch_intake import Sender
from services.mailbox.state.delivery import NackTerms
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.topics import Limits
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.native import blake3_digest, read_leased_batches
from snavio.ports.mailbox_store import ROW_BYTES, MailboxStore, NewBatch, Origin, Progress, Send
from snavio.v1.batch_pb2 import Verdicts
from tests.support.bare_mailbox import ME, BareMailbox, bare_mailbox
from tests.support.mailbox import commands, send_batch


class Sends:
    """Stores messages; the final answer to each."""

    def __init__(self, bare: BareMailbox) -> None:
        self._mailbox = bare
        self._seq = 0

    async def __call__(self, topic: str, count: int = 1, *, size: int = 20, **more: Any) -> Verdicts:
        self._seq += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        frame = send_batch(self._seq, (topic, commands(count, size=size)), **more)
        await self._mailbox.intake.take(frame, Sender("fast/fast-0", 1), final=answer.set_result)
        return Verdicts.FromString(await asyncio.wait_for(answer, 10))


async def emptied(bare: BareMailbox, topic: str) -> int:
    """Receive and acknowledge everything; the number of messages."""
    done = 0
    while True:
        response = await bare.receiving.receive(replace(bare.wanted(5000), topic=topic))
        messages = read_leased_batches(response)[1]
        if not messages:
            return done
        ids, attempts = [one.msg_id for one in messages], [one.attempt for one in messages]
        await bare.settlements.settle(topic, 1, ids, attempts, holder=ME)
        done += len(ids)


async def test_A6_topics_of_one_tenant_leave_the_others_theirs() -> None:
    async with bare_mailbox(limits=Limits(topics=8), percent=25) as bare:
        send = Sends(bare)
        for number in range(2):
            assert (await send(f"acme/{number}")).codes == bytes([Verdict.DELIVERED])
        answer = await send("acme/more")
        assert answer.codes == bytes([Verdict.SATURATED])
        assert answer.refusal[0].retry_after_ms > 0 and answer.refusal[0].detail.startswith("tenant-share")
        assert (await send("acme/1")).codes == bytes([Verdict.DELIVERED]), "the topics that it has go on"
        assert (await send("globex/1")).codes == bytes([Verdict.DELIVERED])
        assert bare.shares.topics.holders() == {"acme": 2, "globex": 1}
        assert bare.delivery.topics.rejected["too-many-topics"] == 1


async def test_A6_a_topic_exists_from_its_first_committed_message_on() -> None:
    async with bare_mailbox() as bare:
        send = Sends(bare)
        bare.disk.fault = Unavailable("broken")
        assert (await send("acme/never")).codes == bytes([Verdict.OUTCOME_UNKNOWN])
        bare.disk.fault = None
        assert bare.delivery.topics.names() == [] and bare.shares.topics.used == 0
        bare.disk.open.clear()
        sending = asyncio.create_task(send("acme/soon"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert bare.delivery.topics.names() == [] and bare.delivery.topics.counts("acme/soon") is None
        assert bare.shares.topics.used == 1, "room is taken up: nobody may begin more than may be"
        bare.disk.open.set()
        await sending
        assert bare.delivery.topics.names() == ["acme/soon"]


async def test_A6_an_empty_topic_is_let_go_and_comes_back_with_its_next_message() -> None:
    async with bare_mailbox(limits=Limits(topics=4), percent=25) as bare:
        send = Sends(bare)
        await send("acme/a")
        assert (await send("acme/b")).codes == bytes([Verdict.SATURATED])
        await bare.retention.step()
        assert bare.delivery.topics.names() == ["acme/a"], "it has a message"
        assert await emptied(bare, "acme/a") == 1
        await bare.retention.step()
        assert bare.delivery.topics.names() == ["acme/a"], "it was used a moment ago"
        bare.clock.advance(seconds=301)
        await bare.retention.step()
        assert (
            bare.delivery.topics.names() == [] and bare.disk.topics() == [] and bare.shares.topics.used == 0
        )
        assert (await send("acme/b")).codes == bytes([Verdict.DELIVERED])
        assert await emptied(bare, "acme/b") == 1
        bare.clock.advance(seconds=301)
        await bare.retention.step()
        assert (await send("acme/a", 3)).codes == bytes([Verdict.DELIVERED]) * 3
        assert await emptied(bare, "acme/a") == 3


async def test_A6_topics_that_somebody_needs_are_kept() -> None:
    rules = Policies(by_topic={"acme/ruled": Policy(ready_s=60)})
    async with bare_mailbox(policies=rules) as bare:
        send = Sends(bare)
        for name in ("acme/ruled", "acme/awaited", "acme/dead", "acme/keyed", "acme/plain"):
            await send(name, once_ms=3_600_000 if name == "acme/keyed" else 0)
        for name in ("acme/ruled", "acme/awaited", "acme/keyed", "acme/plain"):
            await emptied(bare, name)
        response = await bare.receiving.receive(replace(bare.wanted(1), topic="acme/dead"))
        (last,) = read_leased_batches(response)[1]
        await bare.settlements.settle(
            "acme/dead", 1, [last.msg_id], [last.attempt], holder=ME, final=False, nack=NackTerms(dead=True)
        )
        wanted = replace(bare.wanted(1), topic="acme/awaited", wait_s=60.0)
        waiting = asyncio.create_task(bare.receiving.receive(wanted))
        bare.clock.advance(seconds=1000)
        await asyncio.sleep(0)
        await bare.retention.step()
        assert bare.delivery.topics.names() == ["acme/ruled", "acme/awaited", "acme/dead", "acme/keyed"]
        bare.clock.advance(seconds=3600)
        await bare.retention.step()
        assert "acme/keyed" not in bare.delivery.topics.names()
        waiting.cancel()
        await asyncio.wait((waiting,))


async def test_A6_a_message_that_comes_while_its_topic_is_let_go_is_delivered() -> None:
    async with bare_mailbox() as bare:
        send = Sends(bare)
        await send("acme/a")
        await emptied(bare, "acme/a")
        bare.clock.advance(seconds=1000)
        dropping = bare.disk.drop_topics

        def drop(names: Any) -> list[str]:
            dropped = dropping(names)
            asyncio.run_coroutine_threadsafe(send("acme/a", 2), loop).result(10)
            return dropped

        loop = asyncio.get_running_loop()
        bare.disk.drop_topics = drop  # type: ignore[method-assign]
        await bare.retention.step()
        assert bare.delivery.topics.names() == ["acme/a"] and await emptied(bare, "acme/a") == 2
        assert bare.shares.topics.used == 1


async def test_A9_stored_bytes_of_one_tenant_leave_the_others_theirs() -> None:
    async with bare_mailbox(store_bytes=400_000, percent=25) as bare:
        send = Sends(bare)
        codes = bytes([Verdict.DELIVERED])
        stored = 0
        while True:
            answer = await send(f"acme/{stored % 3}", size=10_000)
            if answer.codes != codes:
                break
            stored += 1
        assert answer.codes == bytes([Verdict.SATURATED]) and answer.refusal[0].retry_after_ms > 0
        assert answer.refusal[0].detail.startswith("tenant-share")
        assert stored == 9
        assert (await send("globex/1", size=10_000)).codes == codes
        assert await emptied(bare, "acme/0") == 3
        assert (await send("acme/0", size=10_000)).codes == codes
        bare.shares.stored.recount()
        held = bare.shares.stored.shares.holders()
        assert held == dict(bare.disk.stored_bytes()) and held["acme"] > 7 * 10_000


async def test_A9_refused_and_repeated_messages_leave_no_bytes_behind() -> None:
    async with bare_mailbox() as bare:
        send = Sends(bare)
        bare.disk.fault = Unavailable("broken")
        await send("acme/a", size=1000)
        bare.disk.fault = None
        await send("acme/a", 2, size=1000, once_ms=1000)
        bare.shares.stored.recount()
        assert bare.shares.stored.shares.holders() == dict(bare.disk.stored_bytes())


async def test_A9_ranges_of_one_tenant_leave_the_others_theirs_and_what_it_tried_goes_on() -> None:
    limits = Limits(all_spans=80, topic_spans=1000)
    async with bare_mailbox(limits=limits, percent=25) as bare:
        send = Sends(bare)
        for topic in ("acme/a", "acme/b", "globex/a"):
            await send(topic, 200)
        given_back: list[tuple[str, int, int]] = []
        for _ in range(3):
            response = await bare.receiving.receive(replace(bare.wanted(30), topic="acme/a"))
            for one in read_leased_batches(response)[1][::2]:
                await bare.settlements.settle(
                    "acme/a",
                    1,
                    [one.msg_id],
                    [one.attempt],
                    holder=ME,
                    final=False,
                    nack=NackTerms(delay_ms=60_000),
                )
                given_back.append(("acme/a", one.msg_id, one.attempt))
        assert 20 < bare.shares.spans.shares.held("acme") < 60
        for topic in ("acme/a", "acme/b"):
            wanted = replace(bare.wanted(10), topic=topic)
            assert read_leased_batches(await bare.receiving.receive(wanted))[1] == []
        assert (
            len(
                read_leased_batches(await bare.receiving.receive(replace(bare.wanted(10), topic="globex/a")))[
                    1
                ]
            )
            == 10
        )
        waiting = asyncio.create_task(
            bare.receiving.receive(replace(bare.wanted(10), topic="acme/b", wait_s=60.0))
        )
        bare.clock.advance(seconds=61)
        bare.delivery.tick()
        assert await emptied(bare, "acme/a") >= len(given_back)
        assert len(read_leased_batches(await asyncio.wait_for(waiting, 10))[1]) == 10, (
            "woken when there is room again"
        )


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MailboxStore:
    if request.param == "memory":
        return MemoryMailboxStore()
    return SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)


def _send(seq: int, *batches: NewBatch) -> Send:
    return Send(Origin("fast/0", 1, seq), b"", batches)


def test_A9_store_counts_bytes_by_tenant(store: MailboxStore) -> None:
    runs = bytes(5000)
    sends = [
        _send(1, NewBatch("acme/a", 10, runs), NewBatch("acme/b", 10, runs), NewBatch("globex/a", 10, runs))
    ]
    ((first, _, third),) = store.commit(sends, [], now_unix_ns=1)
    one = len(runs) + ROW_BYTES
    assert dict(store.stored_bytes()) == {"acme": 2 * one, "globex": one}
    store.commit([], [Progress("globex/a", third, 10, (1 << 10) - 1)], now_unix_ns=2)
    store.commit([], [Progress("acme/a", first, 10, (1 << 10) - 1)], now_unix_ns=2)
    store.commit([], [Progress("acme/a", first, 10, (1 << 10) - 1)], now_unix_ns=3)
    assert dict(store.stored_bytes()) == {"acme": one}


def test_A6_store_drops_only_topics_without_batches(store: MailboxStore) -> None:
    ((first, _),) = store.commit(
        [_send(1, NewBatch("acme/a", 1, b"a" * 9), NewBatch("acme/b", 1, b"b" * 9))], [], now_unix_ns=1
    )
    store.commit([], [Progress("acme/a", first, 1, 1)], now_unix_ns=2)
    assert store.drop_topics(["acme/a", "acme/b", "acme/c"]) == ["acme/a"]
    assert [one.topic for one in store.topics()] == ["acme/b"]
    ((again,),) = store.commit([_send(2, NewBatch("acme/a", 1, b"c" * 9))], [], now_unix_ns=3)
    assert again > first and store.read("acme/a", again) == b"c" * 9
    assert store.read("acme/b", first + 1) == b"b" * 9


def test_A9_bytes_and_topics_are_counted_anew_at_a_start(tmp_path: Path) -> None:
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest)
    sends = [_send(1, NewBatch("acme/a", 10, bytes(50_000)), NewBatch("acme/b", 10, bytes(10)))]
    ((_, second),) = store.commit(sends, [], now_unix_ns=1)
    store.commit([], [Progress("acme/b", second, 10, (1 << 10) - 1)], now_unix_ns=2)
    before = dict(store.stored_bytes())
    assert store.drop_topics(["acme/b"]) == ["acme/b"]
    store.close()
    store = SqliteMailboxStore(path, digest=blake3_digest)
    assert dict(store.stored_bytes()) == before == {"acme": 50_000 + ROW_BYTES}
    assert [one.topic for one in store.topics()] == ["acme/a"]
    store.close()
