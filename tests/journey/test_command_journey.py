"""A command from `send` to `ack`, through the real processes over mTLS. Read this first.

The way it goes, file by file:

    snavio/sdk/producer.py          signs the command and sends it on a stream to Shield
    services/shield/servicer.py     takes the stream; services/shield/admission.py judges the batch
    services/fast/servicer.py       takes the admitted runs; services/fast/dispatch.py plans them
    services/slow/arbitration.py    decides escalated commands (not cached yet, `sync` commands)
    services/mailbox/wire/servicer.py    stores the batch, and answers after the fsync
    snavio/sdk/consumer.py          receives under a lease, and acknowledges
"""

from __future__ import annotations

import asyncio

import pytest

from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.capability_request import ask_signer
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import Producer
from snavio.v1.mailbox_pb2 import StatsRequest, StatsResponse
from snavio.v1.registry_pb2 import PROFILE_SYNC
from tests.support.mesh import NAME, SOURCE, TARGET, TOPIC, DemoMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_command_arrives_as_it_was_sent_and_is_gone_after_its_ack(mesh: DemoMesh) -> None:
    payload = b'{"user": 42, "text": "hello"}'
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        outcome = await producer.send(TARGET, NAME, payload, content_type="application/json")
        assert outcome.verdict is Verdict.DELIVERED

        command = await anext(aiter(consumer))
        assert (command.source, command.target, command.name) == (SOURCE, TARGET, NAME)
        assert (command.command_id, command.payload) == (outcome.command_id, payload)
        assert command.content_type == "application/json"
        assert command.attempt == 1
        await command.ack(durable=True)
    assert await _depth(mesh) == 0


async def test_a_thousand_sends_at_once_all_arrive_once(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, b"%d" % n) for n in range(1000)))
        assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}
        received: list[bytes] = []
        async for command in consumer:
            received.append(command.payload)
            await command.ack()
            if len(received) == 1000:
                break
        await consumer.flush()
        assert sorted(received, key=int) == [b"%d" % n for n in range(1000)]
    assert await _depth(mesh) == 0


async def test_a_nacked_command_comes_again_with_the_next_attempt(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        await producer.send(TARGET, NAME, b"try twice")
        commands = aiter(consumer)
        first = await anext(commands)
        await first.nack(reason="not now")
        second = await anext(commands)
        assert (second.command_id, second.attempt) == (first.command_id, 2)
        await second.ack(durable=True)


async def test_a_command_that_nobody_allowed_is_denied(mesh: DemoMesh) -> None:
    async with mesh.producer("bot") as producer:
        outcome = await producer.send(TARGET, NAME, b"let me in")
    assert outcome.verdict is Verdict.ACL_DENY
    assert outcome.reason == "acl-deny"


async def test_a_command_without_a_route_is_refused(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        outcome = await producer.send("nobody-home", NAME, b"?")
    assert outcome.verdict is Verdict.ROUTE_MISSING


async def test_a_sync_command_is_decided_by_slow_with_the_rules_of_that_moment(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator, mesh.producer() as producer, mesh.consumer() as consumer:
        await operator.put_route(TARGET, "delete-user", profile=PROFILE_SYNC)
        await operator.grant(SOURCE, TARGET, "delete-user")
        # No pause: Slow reads Registry at the moment of the dispatch, not a cache.
        assert (await producer.send(TARGET, "delete-user", b"7")).verdict is Verdict.DELIVERED
        command = await anext(aiter(consumer))
        assert command.name == "delete-user"
        await command.ack(durable=True)

        await operator.revoke(SOURCE, TARGET, "delete-user")
        assert (await producer.send(TARGET, "delete-user", b"8")).verdict is Verdict.ACL_DENY


async def test_keys_rotate_under_traffic_and_nobody_notices(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator, mesh.producer() as producer, mesh.consumer() as consumer:
        assert (await producer.send(TARGET, NAME, b"before")).delivered
        await operator.revoke_key(SOURCE, "hmac-v1")
        await asyncio.sleep(0.3)
        outcome = await producer.send(TARGET, NAME, b"after")
        assert outcome.delivered
        received = []
        async for command in consumer:
            received.append(command.payload)
            await command.ack()
            if len(received) == 2:
                break
        await consumer.flush()
        assert received == [b"before", b"after"]


async def test_a_suspended_source_is_refused_until_its_suspension_ends(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await mesh.register_service(operator, "noisy")
        await operator.grant("acme/noisy", TARGET, NAME)
        await operator.set_suspended("acme/noisy", True, reason="abuse")
        async with mesh.producer("noisy") as producer:
            assert await _eventually(producer, Verdict.SUSPENDED)
            await operator.set_suspended("acme/noisy", False)
            assert await _eventually(producer, Verdict.DELIVERED)
    async with mesh.consumer() as consumer:
        # Commands sent before Shield's pull are delivered too; the next test must not receive them.
        while await _depth(mesh):
            command = await anext(aiter(consumer))
            assert command.source == "acme/noisy"
            await command.ack(durable=True)


async def test_what_the_mailbox_acknowledged_survives_its_kill(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        outcome = await producer.send(TARGET, NAME, b"durable")
        assert outcome.delivered
        mesh.processes.kill("mailbox")
        mesh.processes.restart("mailbox")
        again = await producer.send(TARGET, NAME, b"after the restart")
        assert again.delivered
    async with mesh.consumer() as consumer:
        received = []
        async for command in consumer:
            received.append(command.payload)
            await command.ack(durable=True)
            if len(received) == 2:
                break
    assert received == [b"durable", b"after the restart"]


async def _eventually(producer: Producer, verdict: Verdict) -> bool:
    """Rules reach Shield with its next pull; ask until they have, within bounds."""
    for _ in range(200):
        outcome = await producer.send(TARGET, NAME, b"?")
        if outcome.verdict is verdict:
            return True
        await asyncio.sleep(0.1)
    return False


async def _depth(mesh: DemoMesh) -> int:
    files = CertificateFiles.in_folder(mesh.certificates("acme-bot"))
    capability_provider = CapabilityProvider(
        CapabilityScope("acme/*", ("stats",)),
        ask_signer(mesh.addresses["signer"], files=files),
        clock=SystemClock(),
    )
    channel = MeshChannel(
        mesh.addresses["mailbox"], files=files, service="mailbox", capability_provider=capability_provider
    )
    try:
        stats = await channel.call("/snavio.v1.Mailbox/Stats", StatsRequest(), StatsResponse, timeout_s=5.0)
        # Beside the tenant's queue of events, which nobody reads here.
        return sum(each.ready + each.inflight for each in stats.topic if each.topic == TOPIC)
    finally:
        await channel.close()
