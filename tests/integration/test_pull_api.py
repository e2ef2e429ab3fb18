"""The Pull API as a worker uses it: leases over HTTP under the mailbox's rules, and nothing lost with a worker."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.gateway.pull.endpoints import PullLimits
from snavio.admin.queue import QueueClient
from snavio.clock import ManualClock, SystemClock
from snavio.edge.topics import HTTP_CONTENT_TYPE, parse_event_id, route_topic
from snavio.sdk.mailer import Mailer
from snavio.sdk.mailer import NewMessage as Message
from snavio.v1.edge_pb2 import HttpEnvelope
from tests.support.mailbox import MailboxFixture, running_mailbox
from tests.support.pulling import PullFixture, bodies, pulling, table

SECONDS = 30.0


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


@pytest.fixture
async def pull(office: MailboxFixture) -> AsyncIterator[PullFixture]:
    async with pulling(office, table("a", "b")) as one:
        yield one


def moved(pull: PullFixture, seconds: float) -> None:
    assert isinstance(pull.office.clock, ManualClock)
    pull.office.clock.advance(seconds=seconds)


async def counts(pull: PullFixture, name: str = "a") -> tuple[int, int, int]:
    """Ready, inflight and dead."""
    queue = QueueClient.over(pull.office.operator().channel)
    found = await queue.stats(route_topic("acme", f"/hooks/{name}").topic)
    return (found[0].ready, found[0].inflight, found[0].dead) if found else (0, 0, 0)


async def until(pull: PullFixture, wanted: tuple[int, int, int]) -> None:
    async with asyncio.timeout(SECONDS):
        while await counts(pull) != wanted:
            await asyncio.sleep(0.02)


async def test_a_request_that_came_in_is_fetched_as_it_was_sent(pull: PullFixture) -> None:
    await pull.send(b'{"action": "push"}')
    (item,) = await pull.dequeue()
    assert item["headers"] == {"X-Github-Event": "push", "X-Two": "1, 2"}
    assert (item["route"], item["target"], item["attempt"]) == ("/hooks/a", "pull", 1)
    assert item["received_at"] == "2023-11-14T22:13:20.5Z"
    assert bodies([item]) == [b'{"action": "push"}']
    found = parse_event_id(item["id"])
    assert found is not None and found[0] == route_topic("acme", "/hooks/a").topic_hash
    assert await pull.dequeue() == [], "it is leased"
    status, headers, document = await pull.ask("a/ack", {"lease_id": item["lease_id"]})
    assert (status, document) == (204, None) and headers["X-Request-ID"].startswith("req_")
    assert await counts(pull) == (0, 0, 0)


async def test_what_somebody_else_sent_to_the_topic_is_fetched_too(pull: PullFixture) -> None:
    mailer = Mailer.over(pull.office.consumer(name="edge").channel, route_topic("acme", "/hooks/a").topic)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await mailer.send(Message(b"plain", content_type="text/plain", traceparent=trace))
    (item,) = await pull.dequeue()
    assert (bodies([item]), item["headers"]) == ([b"plain"], {"Content-Type": "text/plain"})
    assert item["trace"] == {"traceparent": trace}


async def test_a_repeated_ack_succeeds_and_another_operation_does_not(pull: PullFixture) -> None:
    await pull.send(b"1", b"2")
    first, second = await pull.dequeue(batch=10)
    for _ in range(3):
        assert (await pull.ask("a/ack", {"lease_id": first["lease_id"]}))[0] == 204
    status, _, document = await pull.ask("a/nack", {"lease_id": first["lease_id"]})
    assert (status, document["code"]) == (409, "lease_conflict")
    assert document["conflicts"] == [{"lease_id": first["lease_id"], "reason": "lease_not_found"}]
    assert (await pull.ask("a/nack", {"lease_id": second["lease_id"]}))[0] == 204
    assert (await pull.ask("a/nack", {"lease_id": second["lease_id"]}))[0] == 204, (
        "its answer may have been lost"
    )
    (again,) = await pull.dequeue()
    assert again["attempt"] == 2
    moved(pull, 121)
    assert (await pull.ask("a/ack", {"lease_id": first["lease_id"]}))[0] == 409, "not for ever"


async def test_a_batch_names_its_conflicts_and_settles_the_rest(pull: PullFixture) -> None:
    await pull.send(*(b"%d" % number for number in range(5)))
    ids = [item["lease_id"] for item in await pull.dequeue(batch=5)]
    assert (await pull.ask("a/ack", {"lease_ids": ids[:2]}))[2] == {"acked": 2}
    status, _, document = await pull.ask(
        "a/nack", {"lease_ids": [ids[0], ids[2], "lease_x", ids[2]], "delay": "1h"}
    )
    assert (status, document["succeeded"], document["code"]) == (409, 1, "lease_conflict")
    assert document["conflicts"] == [
        {"lease_id": ids[0], "reason": "lease_not_found"},
        {"lease_id": "lease_x", "reason": "lease_not_found"},
    ]
    moved(pull, 31)
    status, _, document = await pull.ask("a/ack", {"lease_ids": ids[3:]})
    assert (status, document["acked"]) == (409, 0)
    assert {one["reason"] for one in document["conflicts"]} == {"lease_expired"}
    assert sorted(bodies(await pull.dequeue(batch=10))) == [b"3", b"4"], "one is delayed, two are done"


async def test_dead_goes_to_the_dlq_with_its_reason(pull: PullFixture) -> None:
    await pull.send(b"1")
    (item,) = await pull.dequeue()
    asked = {"lease_id": item["lease_id"], "dead": True, "delay": "1h", "reason": "no_retry"}
    assert (await pull.ask("a/nack", asked))[0] == 204
    queue = QueueClient.over(pull.office.operator().channel)
    (dead,) = [one async for one in queue.dlq(route_topic("acme", "/hooks/a").topic)]
    assert (dead.reason, dead.last_error) == ("nack-dead", "no_retry")


async def test_a_lease_is_extended_from_now_or_by_so_much(pull: PullFixture) -> None:
    await pull.send(b"1", b"2")
    first, second = await pull.dequeue(batch=2, lease_ttl="10s")
    moved(pull, 5)
    assert (await pull.ask("a/extend", {"lease_id": first["lease_id"], "lease_ttl": "10s"}))[0] == 204
    assert (await pull.ask("a/extend", {"lease_id": second["lease_id"], "extend_by": "10s"}))[0] == 204
    moved(pull, 12)
    assert (await pull.ask("a/ack", {"lease_id": first["lease_id"]}))[0] == 409, "15 s after it was leased"
    assert (await pull.ask("a/ack", {"lease_id": second["lease_id"]}))[0] == 204, "20 s"
    assert (await pull.ask("a/extend", {"lease_id": first["lease_id"], "extend_by": "10s"}))[0] == 409


async def test_another_routes_lease_is_an_unknown_lease(office: MailboxFixture) -> None:
    async with pulling(office, table("a", "b", b="own")) as pull:
        await pull.send(b"1")
        (item,) = await pull.dequeue()
        for operation, more in (("ack", {}), ("nack", {}), ("extend", {"extend_by": "1s"})):
            status, _, document = await pull.ask(
                f"b/{operation}", {"lease_id": item["lease_id"], **more}, show="own"
            )
            assert (status, document["conflicts"][0]["reason"]) == (409, "lease_not_found")
        assert await counts(pull) == (0, 1, 0)
        forged = base64.urlsafe_b64decode(item["lease_id"].removeprefix("lease_") + "==")
        for position in range(len(forged)):
            other = forged[:position] + bytes([forged[position] ^ 1]) + forged[position + 1 :]
            name = "lease_" + base64.urlsafe_b64encode(other).decode().rstrip("=")
            assert (await pull.ask("a/ack", {"lease_id": name}))[0] == 409
        assert (await pull.ask("a/ack", {"lease_id": item["lease_id"]}))[0] == 204


async def test_tokens_of_a_route_replace_the_listeners(office: MailboxFixture) -> None:
    async with pulling(office, table("a", "b", b="own")) as pull:
        for operation, show, status in (
            ("a/dequeue", "t", 200),
            ("a/dequeue", "own", 401),
            ("b/dequeue", "t", 401),
            ("b/dequeue", "own", 200),
            ("c/dequeue", "", 401),
            ("c/dequeue", "t", 404),
            ("a/steal", "t", 404),
        ):
            assert (await pull.ask(operation, show=show))[0] == status, operation
        async with pull.session.get(
            f"http://127.0.0.1:{pull.port}/pull//a/dequeue/", headers={"Authorization": "Bearer t"}
        ) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        assert [record.route for record in pull.records if record.status == 401] == [""] * 3


@pytest.mark.parametrize(
    ("operation", "raw"),
    [
        ("dequeue", b'{"batch": 1, "bach": 2}'),
        ("dequeue", b'{"batch": 1, "batch": 2}'),
        ("dequeue", b'{"batch": 1} {"batch": 2}'),
        ("dequeue", b'{"batch": -1}'),
        ("dequeue", b'{"batch": true}'),
        ("dequeue", b'{"lease_ttl": "soon"}'),
        ("dequeue", b'{"lease_ttl": "-5s"}'),
        ("dequeue", b"[1]"),
        ("dequeue", b"[" * 10_000),
        ("dequeue", b"\xff"),
        ("ack", b""),
        ("ack", b"{}"),
        ("ack", b'{"lease_id": "a", "lease_ids": ["a"]}'),
        ("ack", b'{"lease_ids": []}'),
        ("ack", b'{"lease_ids": [1]}'),
        ("ack", json.dumps({"lease_ids": [f"lease_{n}" for n in range(101)]}).encode()),
        ("nack", b'{"lease_id": "a", "delay": "13h"}'),
        ("nack", json.dumps({"lease_id": "a", "reason": "x" * 257}).encode()),
        ("extend", b'{"lease_id": "a"}'),
        ("extend", b'{"lease_id": "a", "extend_by": "1s", "lease_ttl": "1s"}'),
        ("extend", b'{"lease_id": "a", "extend_by": "0"}'),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_a_sentence(
    pull: PullFixture, operation: str, raw: bytes
) -> None:
    status, headers, document = await pull.ask(f"a/{operation}", raw=raw)
    assert (status, document["code"]) == (400, "invalid_body") and document["detail"].endswith(".")
    assert "X-Request-ID" in headers


async def test_limits_of_the_file_cap_what_is_asked(office: MailboxFixture) -> None:
    limits = PullLimits(max_batch=3, max_lease_ms=5000, default_lease_ms=2000)
    async with pulling(office, table("a", limits=limits)) as pull:
        await pull.send(*(b"%d" % number for number in range(6)))
        assert len(await pull.dequeue(batch=100, lease_ttl="10h")) == 3
        moved(pull, 5.1)
        assert len(await pull.dequeue(batch=100)) == 3, "the longest lease is five seconds"
        moved(pull, 2.1)
        await until(pull, (6, 0, 0))
        limits = replace(limits, max_wait_ns=100_000_000)
        pull.app.table = table("a", limits=limits)
        await pull.dequeue(batch=3)
        await pull.dequeue(batch=3)
        async with asyncio.timeout(SECONDS):
            assert await pull.dequeue(max_wait="1h") == []


async def test_a_waiting_worker_gets_what_comes_and_only_its_batch(pull: PullFixture) -> None:
    workers = [asyncio.create_task(pull.dequeue(max_wait="60s", batch=2)) for _ in range(3)]
    async with asyncio.timeout(SECONDS):
        while pull.app.waiting.used < 3:
            await asyncio.sleep(0.01)
        await pull.send(*(b"%d" % number for number in range(6)))
        while len([worker for worker in workers if worker.done()]) < 3:
            if (await counts(pull))[0] == 0:
                break
            await asyncio.sleep(0.01)
        got = [await worker for worker in workers]
    assert all(1 <= len(items) <= 2 for items in got)
    rest = await pull.dequeue(batch=10)
    assert sorted(body for items in [*got, rest] for body in bodies(items)) == [b"%d" % n for n in range(6)]


async def test_a_worker_that_leaves_loses_nothing_and_counts_no_attempt(pull: PullFixture) -> None:
    dice = random.Random(3)
    for round_ in range(15):
        workers = [asyncio.create_task(pull.dequeue(max_wait="60s")) for _ in range(4)]
        await asyncio.sleep(dice.choice([0, 0.005, 0.03]))
        sending = asyncio.create_task(pull.send(b"%d" % round_))
        await asyncio.sleep(dice.choice([0, 0.002, 0.005, 0.01, 0.02]))
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await sending
    # What was on its way to a worker that had just left is leased, and comes when that ends.
    got: list[dict[str, Any]] = []
    async with asyncio.timeout(SECONDS):
        while await counts(pull) != (0, 15, 0):
            got += await pull.dequeue(batch=10)
    assert {item["attempt"] for item in got} <= {1}, "nobody saw what came back"
    moved(pull, 31)
    ids: set[str] = set()
    async with asyncio.timeout(SECONDS):
        while len(ids) < 15:
            ids |= {item["id"] for item in await pull.dequeue(batch=100, max_wait="1s")}


async def test_no_more_is_leased_than_workers_ask_for(pull: PullFixture) -> None:
    await pull.send(*(b"%d" % number for number in range(60)))
    for batch in (1, 1, 3):
        got = await asyncio.gather(*(pull.dequeue(batch=batch) for _ in range(8)))
        assert [len(items) for items in got] == [batch] * 8
    assert await counts(pull) == (20, 40, 0)
    assert pull.leases.returned == 0


async def test_idle_workers_share_one_call_of_the_mailbox(pull: PullFixture) -> None:
    await pull.send(b"makes the topic")
    await pull.dequeue()
    workers = [asyncio.create_task(pull.dequeue(max_wait="60s")) for _ in range(50)]
    async with asyncio.timeout(SECONDS):
        while pull.app.waiting.used < 50:
            await asyncio.sleep(0.01)
    assert pull.office.app is not None
    assert pull.office.app.waiters.waiting(route_topic("acme", "/hooks/a").topic) <= 1
    pull.app.stop()
    assert await asyncio.gather(*workers) == [[]] * 50, "a gateway that stops answers them"
    status, headers, document = await pull.ask("a/dequeue")
    assert (status, document["code"]) == (503, "store_unavailable") and int(headers["Retry-After"]) >= 1


async def test_more_waiting_workers_than_there_is_room_for_are_told_to_come_again(
    office: MailboxFixture,
) -> None:
    async with pulling(office, table("a", "b"), most_waiting=4) as pull:
        workers = [asyncio.create_task(pull.dequeue(max_wait="60s")) for _ in range(2)]
        async with asyncio.timeout(SECONDS):
            while pull.app.waiting.used < 2:
                await asyncio.sleep(0.01)
        status, headers, _ = await pull.ask("a/dequeue", {"max_wait": "60s"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert await pull.dequeue() == [], "who does not wait is served"
        other = asyncio.create_task(pull.dequeue("b", max_wait="60s"))
        await asyncio.sleep(0.1)
        assert not other.done(), "another route's workers have their part"
        pull.app.stop()
        await asyncio.gather(*workers, other)


async def test_leases_outlive_the_edge_and_end_with_the_mailbox(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, clock=SystemClock()) as office:
        async with pulling(office, table("a")) as pull:
            await pull.send(b"1", b"2", b"3")
            ids = [item["lease_id"] for item in await pull.dequeue(batch=3)]
        async with pulling(office, table("a"), key=b"o" * 32) as other:
            assert (await other.ask("a/ack", {"lease_id": ids[0]}))[0] == 409, "of another key"
        async with pulling(office, table("a")) as again:
            assert (await again.ask("a/ack", {"lease_id": ids[0]}))[0] == 204
    async with running_mailbox(tmp_path, clock=SystemClock()) as office, pulling(office, table("a")) as pull:
        status, _, document = await pull.ask("a/ack", {"lease_ids": ids[1:]})
        assert (status, {one["reason"] for one in document["conflicts"]}) == (409, {"lease_expired"})
        assert len(await pull.dequeue(batch=10)) == 2, "nothing acknowledged is lost or comes back"


async def test_while_the_mailbox_is_away_workers_are_told_to_come_again(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office, pulling(office, table("a")) as pull:
        await pull.send(b"1")
        (item,) = await pull.dequeue()
        assert office.app is not None
        await office.app.drain()
        office.app = None
        for operation, body in (("dequeue", {}), ("ack", {"lease_id": item["lease_id"]})):
            status, headers, document = await pull.ask(f"a/{operation}", body)
            assert (status, document["code"]) == (503, "store_unavailable") and "Retry-After" in headers


class EventReader:
    """Reads a stream event by event."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def next(self) -> dict[str, str]:
        """The next event or comment; empty at the end."""
        found: dict[str, str] = {}
        async with asyncio.timeout(SECONDS):
            while line := (await self.answer.content.readline()).decode():
                if line == "\n":
                    return found
                name, _, value = line.rstrip("\n").partition(": ")
                found[name or "comment"] = value
        return {}


def stream(pull: PullFixture, query: str = "") -> Any:
    return pull.session.get(
        f"http://127.0.0.1:{pull.port}/pull/a/stream{query}", headers={"Authorization": "Bearer t"}
    )


async def test_a_stream_gives_messages_as_they_come_under_the_same_leases(pull: PullFixture) -> None:
    await pull.send(b"0")
    async with stream(pull, "?batch=5") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        reader = EventReader(answer)
        for number in range(3):
            event = await reader.next()
            item = json.loads(event["data"])
            assert (event["event"], event["id"]) == ("message", item["lease_id"])
            assert bodies([item]) == [b"%d" % number]
            assert (await pull.ask("a/ack", {"lease_id": event["id"]}))[0] == 204
            if number < 2:
                await pull.send(b"%d" % (number + 1))
    await until(pull, (0, 0, 0))


async def test_a_stream_that_is_left_keeps_no_lease(pull: PullFixture) -> None:
    async with stream(pull) as answer:
        await pull.send(b"0")
        await EventReader(answer).next()
        assert pull.app.streams == 1
    async with asyncio.timeout(SECONDS):
        while pull.app.streams:
            await asyncio.sleep(0.01)
    await pull.send(b"1")
    assert bodies(await pull.dequeue(max_wait="20s")) == [b"1"]
    assert pull.app.waiting.used == 0


async def test_a_worker_that_does_not_read_gets_no_more_than_its_connection_holds(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.gateway.pull import app

    monkeypatch.setattr(app, "WRITE_SECONDS", 0.3)
    async with pulling(office, table("a")) as pull:
        await pull.send(*(bytes(200_000) for _ in range(60)))
        reading, writing = await asyncio.open_connection("127.0.0.1", pull.port, limit=1024)
        writing.write(b"GET /pull/a/stream?batch=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n")
        await writing.drain()
        async with asyncio.timeout(SECONDS):
            while pull.app.streams != 1:
                await asyncio.sleep(0.01)
            while pull.app.streams:
                await asyncio.sleep(0.05)
        ready, inflight, _ = await counts(pull)
        assert ready > 0 and ready + inflight == 60, "what was not written is another worker's"
        writing.close()
        del reading


async def test_a_stream_ends_after_its_time_and_is_kept_alive_before(office: MailboxFixture) -> None:
    limits = PullLimits(keepalive_ns=50_000_000, max_connection_ns=2_000_000_000)
    async with pulling(office, table("a", limits=limits)) as pull, stream(pull) as answer:
        reader = EventReader(answer)
        assert await reader.next() == {"comment": "keepalive"}
        moved(pull, 3)
        async with asyncio.timeout(SECONDS):
            while await reader.next():
                pass


async def test_workers_of_http_and_grpc_settle_by_the_same_rules(pull: PullFixture) -> None:
    await pull.send(b"1", b"2")
    topic = route_topic("acme", "/hooks/a").topic
    (item,) = await pull.dequeue(batch=1)
    same = pull.office.consumer(name="edge")
    got = await same.receive(topic)
    assert [message.attempt for message in got.messages] == [1]
    assert set(await same.ack(got.receipts(), topic=topic)) == {1}
    receipts = got.receipts()
    receipts.msg_id[0] = parse_event_id(item["id"])[1]  # type: ignore[index]
    assert set(await same.ack(receipts, topic=topic)) == {1}, "the lease that HTTP has given"
    status, _, document = await pull.ask("a/ack", {"lease_id": item["lease_id"]})
    assert (status, document["conflicts"][0]["reason"]) == (409, "lease_not_found")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("ack", rb'{"lease_id": "\ud800"}'),
        ("ack", rb'{"lease_ids": ["lease_x", "lease_\udfff"]}'),
        ("extend", rb'{"lease_id": "\ud800", "extend_by": "1s"}'),
        ("nack", rb'{"lease_id": "lease_x", "reason": "\ud800"}'),
        ("dequeue", rb'{"max_wait": "\ud800"}'),
    ],
)
async def test_half_a_character_is_a_mistake_of_the_request(
    pull: PullFixture, operation: str, body: bytes
) -> None:
    status, _, document = await pull.ask(f"a/{operation}", raw=body)
    assert (status, document["code"]) == (400, "invalid_body")


async def swell(pull: PullFixture, size: int, *, times: int = 1) -> bytes:
    """Store requests whose body is small only as long as it is deflated."""
    bomb: bytes = HttpEnvelope(
        method="POST", route="/hooks/a", body=zlib.compress(bytes(size), 9), body_size=size
    ).SerializeToString()
    mailer = Mailer.over(pull.office.consumer(name="edge").channel, route_topic("acme", "/hooks/a").topic)
    for _ in range(times):
        await mailer.send(Message(bomb, content_type=HTTP_CONTENT_TYPE))
    return bomb


async def test_a_stored_body_that_would_swell_beyond_bounds_is_given_as_it_is_stored(
    pull: PullFixture,
) -> None:
    bomb = await swell(pull, 128 << 20)
    (item,) = await pull.dequeue()
    assert bodies([item]) == [bomb]


async def test_an_answer_ends_where_its_bodies_would_swell_it(pull: PullFixture) -> None:
    await swell(pull, 25 << 20, times=3)
    assert [len(body) for body in bodies(await pull.dequeue(batch=10))] == [25 << 20]
    await until(pull, (2, 1, 0))
    (second,) = await pull.dequeue(batch=10)
    assert second["attempt"] == 1, "it was never shown to anybody"
