"""One tenant fills its share of topics, bytes and waiting receives over the wire; its neighbour does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.access.capabilities import Grant
from services.mailbox.settings import MailboxSettings
from snavio.domain.caveat import Operation
from snavio.errors import Saturated
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from snavio.v1.mailbox_pb2 import NewMessage, SendRequest, SendResponse
from tests.support.mailbox import SECONDS, SERVICE, MailboxFixture, ReceivingPeer, running_mailbox


async def send(peer: ReceivingPeer, topic: str, payload: bytes = b"x") -> Any:
    request = SendRequest(topic=topic, message=[NewMessage(payload=payload)])
    return await peer.channel.call(SERVICE + "Send", request, SendResponse, timeout_s=SECONDS)


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(Saturated) as caught:
        await call
    assert caught.value.reason == "tenant-share" and caught.value.retry_after_ms > 0


async def held(office: MailboxFixture, bound: str) -> dict[str, int]:
    """Each tenant's share of a bound, as Introspection shows it to operators."""
    status = await office.operator().channel.call(
        "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
    )
    return {who.tenant: who.used for one in status.share if one.bound == bound for who in one.holder}


async def test_A6_topics(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topics=8)) as office:
        acme, globex = office.consumer(), office.consumer("globex")
        for number in range(2):
            await send(acme, f"acme/own/t{number}")
        await refused(send(acme, "acme/own/more"))
        await send(globex, "globex/own/t0")
        assert await held(office, "topics") == {"acme": 2, "globex": 1}
        await office.stop()
        await office.start()
        await refused(send(office.consumer(), "acme/own/more"))
        await send(office.consumer("globex"), "globex/own/t1")


async def test_A9_stored_bytes(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_store_bytes=4 << 20)) as office:
        acme, globex = office.consumer(), office.consumer("globex")
        with pytest.raises(Saturated):
            for number in range(10):
                await send(acme, f"acme/own/t{number % 2}", bytes(200_000))
        await refused(send(acme, "acme/own/t0", bytes(200_000)))
        await send(globex, "globex/own/t0", bytes(200_000))
        await office.stop()
        await office.start()
        acme = office.consumer()
        await refused(send(acme, "acme/own/t0", bytes(200_000)))
        got = await acme.receive("acme/own/t0")
        await acme.ack(got.receipts(), "acme/own/t0")
        await send(acme, "acme/own/t0", bytes(200_000))


async def test_A8_waiting_receives(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_waiters=8)) as office:
        acme, globex = office.consumer(), office.consumer("globex")
        waiting = [asyncio.create_task(acme.receive(f"acme/own/t{n}", wait_ms=8000)) for n in range(2)]
        async with asyncio.timeout(SECONDS):
            while await held(office, "waiters") != {"acme": 2}:
                await asyncio.sleep(0.01)
        await refused(acme.receive("acme/own/t5", wait_ms=8000))
        other = asyncio.create_task(globex.receive("globex/own/t0", wait_ms=8000))
        async with asyncio.timeout(SECONDS):
            while await held(office, "waiters") != {"acme": 2, "globex": 1}:
                await asyncio.sleep(0.01)
        await send(globex, "globex/own/t0")
        assert len((await other).messages) == 1
        for number, task in enumerate(waiting):
            await send(acme, f"acme/own/t{number}")
            assert len((await task).messages) == 1
        assert await held(office, "waiters") == {}


async def test_stats_of_a_tenant_ask_its_capability_about_no_topic_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    covers = Grant.covers

    def counted(grant: Grant, operation: Operation, topic: str) -> bool:
        asked.append(topic)
        return covers(grant, operation, topic)

    async with running_mailbox(tmp_path) as office:
        for number in range(20):
            await send(office.consumer("globex"), f"globex/own/t{number}")
        await send(office.consumer(), "acme/own/t0")
        monkeypatch.setattr(Grant, "covers", counted)
        assert set(await office.consumer().stats()) == {"acme/own/t0"}
        assert asked == ["acme/own/t0"]
