"""Revocation drills: capabilities are rotated and revoked while commands flow, and no client gets stuck.

Real processes. SNAVIO_FULL=1 repeats the drills more often.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from snavio.admin.capabilities import CapabilityClient
from snavio.clock import SystemClock
from snavio.domain.capability import read_text
from snavio.errors import NotAllowed
from snavio.launch.probes import Probes
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.capability_request import ask_signer
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.mailbox_pb2 import StatsRequest, StatsResponse
from tests.support.mesh import NAME, TARGET, TOPIC, DemoMesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
# Eight older root keys of a topic may be good at a time.
ROUNDS = 6 if FULL else 1
AT_ONCE = 200 if FULL else 20
WITHIN_S = 30.0
CACHE_S = 5
SLACK_S = 2.0
"""Allowance for the revocation's way to the mailbox, a refused request and our reading of it: usually 0.4 s."""
SETTINGS: dict[str, dict[str, object]] = {
    "signer": {"distribution_delay_s": 4.0, "overlap_s": 3600},
    "mailbox": {"capability_cache_s": CACHE_S},
}
BOT = "spiffe://snavio.local/tenant/acme/service/bot"
FAST = "spiffe://snavio.local/mesh/fast"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def capability_client(mesh: DemoMesh) -> CapabilityClient:
    return CapabilityClient(mesh.addresses["signer"], certificates=mesh.certificates("operator-admin"))


class Flow:
    """Commands that are sent and received without a pause, each counted at both ends."""

    def __init__(self, mesh: DemoMesh) -> None:
        self._mesh = mesh
        self.verdicts: Counter[str] = Counter()
        self.sent: set[bytes] = set()
        self.received: Counter[bytes] = Counter()
        self._ending = asyncio.Event()
        self._number = 0

    async def produce(self) -> None:
        async with self._mesh.producer() as producer:
            while not self._ending.is_set():
                payloads = [b"%d" % (self._number + each) for each in range(AT_ONCE)]
                self._number += AT_ONCE
                outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, each) for each in payloads))
                self.verdicts.update(outcome.verdict.name for outcome in outcomes)
                self.sent.update(payloads)

    async def consume(self) -> None:
        async with self._mesh.consumer() as consumer:
            async for command in consumer:
                self.received[command.payload] += 1
                await command.ack()

    async def moves(self) -> None:
        """Wait until commands that are newer than this call were sent and received."""
        sent, received = len(self.sent) + 3 * AT_ONCE, len(self.received) + 3 * AT_ONCE
        async with asyncio.timeout(WITHIN_S):
            while len(self.sent) < sent or len(self.received) < received:
                await asyncio.sleep(0.02)

    async def end(self, producing: asyncio.Task[None], consuming: asyncio.Task[None]) -> None:
        """Stop sending, and receive to the end."""
        self._ending.set()
        await producing
        async with asyncio.timeout(WITHIN_S):
            while not self.received.keys() >= self.sent:
                await asyncio.sleep(0.02)
        # Brings the acks home: closing the consumer flushes.
        consuming.cancel()


@asynccontextmanager
async def flowing(mesh: DemoMesh) -> AsyncIterator[Flow]:
    flow = Flow(mesh)
    async with asyncio.timeout(4 * WITHIN_S), asyncio.TaskGroup() as group:
        consuming = group.create_task(flow.consume())
        producing = group.create_task(flow.produce())
        await flow.moves()
        yield flow
        await flow.end(producing, consuming)
    assert set(flow.verdicts) == {"DELIVERED"}
    assert await depth(mesh) == 0


async def depth(mesh: DemoMesh) -> int:
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    capability_provider = CapabilityProvider(
        CapabilityScope(TOPIC, ("stats",)), ask_signer(None, files=files), clock=SystemClock()
    )
    channel = MeshChannel(
        mesh.addresses["mailbox"], files=files, service="mailbox", capability_provider=capability_provider
    )
    try:
        request = StatsRequest(topic=TOPIC)
        stats = await channel.call("/snavio.v1.Mailbox/Stats", request, StatsResponse, timeout_s=5.0)
        return sum(topic.ready + topic.inflight for topic in stats.topic)
    finally:
        await channel.close()


async def root_in_use(signer: CapabilityClient) -> str:
    return read_text((await signer.issue(TOPIC, ["stats"], ttl_s=60)).capability).identifier.root


async def denials(mesh: DemoMesh, reason: str) -> int:
    async with Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin")) as probes:
        status = await probes.status("mailbox")
    assert status is not None
    counts = {counter.name: counter.value for counter in status.counter}
    return int(counts.get(f"capability.denied.{reason}", 0))


async def felt(mesh: DemoMesh, before: int) -> float:
    """Wait until the mailbox has refused a call for a revocation; the seconds that took, at most the cache time."""
    began = time.perf_counter()
    async with asyncio.timeout(WITHIN_S):
        while await denials(mesh, "cap-revoked") <= before:
            await asyncio.sleep(0.05)
    took_s = time.perf_counter() - began
    # The one bound in seconds that is the promise itself: a revoked holder gets nothing after it.
    assert took_s <= CACHE_S + SLACK_S
    return took_s


async def test_G_10_root_keys_rotate_under_live_traffic_and_nothing_is_refused(mesh: DemoMesh) -> None:
    async with capability_client(mesh) as signer, flowing(mesh) as flow:
        before = await denials(mesh, "cap-revoked")
        for number in range(ROUNDS):
            # For the consumer's topic, for Fast, and for all.
            assert (await signer.rotate(TOPIC)).version == 2 + number
            assert (await signer.rotate("*")).version == 2 + number
            before_root = await root_in_use(signer)
            await signer.rotate()
            await flow.moves()
            # After the distribution delay Signer uses the new secret; the mailbox has it by then.
            async with asyncio.timeout(WITHIN_S):
                while await root_in_use(signer) == before_root:
                    await asyncio.sleep(0.1)
            assert await depth(mesh) >= 0
            await flow.moves()
    assert await denials(mesh, "cap-revoked") == before
    assert await denials(mesh, "cap-unknown-root") == 0


async def test_G_10_a_revoked_consumer_and_a_revoked_sender_go_on_with_new_capabilities(
    mesh: DemoMesh, figure: Callable[[str], None]
) -> None:
    took_s: list[float] = []
    async with capability_client(mesh) as signer, flowing(mesh) as flow:
        for _ in range(ROUNDS):
            for holder in (BOT, FAST):
                before = await denials(mesh, "cap-revoked")
                await signer.revoke_holder(holder, reason="drill")
                took_s.append(await felt(mesh, before))
                await flow.moves()
    figure(
        f"{len(took_s)} capabilities revoked under traffic: felt after at most {max(took_s):.1f} s (cached for "
        f"{CACHE_S} s), {len(flow.sent)} commands delivered, none stranded or twice"
    )
    # Delivered, all of it, and nothing twice: acks in flight were honoured, and resent batches recognised.
    assert max(flow.received.values()) == 1


async def test_G_10_a_revoked_root_key_ends_all_that_was_made_under_it_and_work_goes_on(
    mesh: DemoMesh,
) -> None:
    ended = {}
    async with capability_client(mesh) as signer, flowing(mesh) as flow:
        for realm in (TOPIC, "*"):
            before = await denials(mesh, "cap-revoked")
            ended[realm] = (await signer.rotate(realm)).version
            await signer.revoke_root(realm, ended[realm], reason="drill")
            await felt(mesh, before)
            await flow.moves()
        records = [record async for record in signer.living() if record.realm in ended]
    assert all(record.revoked for record in records if record.root_version <= ended[record.realm])
    assert {record.realm for record in records if not record.revoked} == set(ended)


async def test_G_10_a_barred_consumer_gets_nothing_more_and_nothing_of_its_is_lost(mesh: DemoMesh) -> None:
    async with capability_client(mesh) as signer, mesh.producer() as producer:
        assert (await producer.send(TARGET, NAME, b"for whoever may")).verdict.name == "DELIVERED"
        async with mesh.consumer(visibility_s=600) as consumer:
            command = await anext(consumer)
            await signer.revoke_holder(BOT, bar=True, reason="drill")
            with pytest.raises(NotAllowed) as refused:
                async with asyncio.timeout(WITHIN_S):
                    await anext(consumer)
            assert refused.value.reason == "holder-barred"
            # Messages leased before may still be settled.
            assert (await command.nack(durable=True)).name == "DONE"
        await signer.restore_holder(BOT)
        async with mesh.consumer() as consumer:
            command = await anext(consumer)
            assert command.payload == b"for whoever may"
            await command.ack(durable=True)
    assert await depth(mesh) == 0


async def test_G_10_commands_flow_while_signer_is_away(mesh: DemoMesh) -> None:
    async with flowing(mesh) as flow:
        mesh.processes.kill("signer")
        try:
            await flow.moves()
            await flow.moves()
        finally:
            mesh.processes.restart("signer")
        await flow.moves()
