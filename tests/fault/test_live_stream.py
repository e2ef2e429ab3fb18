"""A verifying reader of a real mesh while services are killed and keys are rotated: it sees every event once and in
order, or a signed statement of what is missing.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import EventStream, FileBookmark, ReceivedEvents, StreamReset
from snavio.sdk.bookmark import Bookmark
from snavio.v1 import signer_pb2 as sig
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
KILLS = 50 if FULL else 5
WITHIN_S = 240.0 * (10 if FULL else 1)
SETTINGS: dict[str, dict[str, object]] = {
    "gateway": {"opens_per_minute": 100_000},
    "signer": {"distribution_delay_s": 0.0},
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300 * (10 if FULL else 1))]


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "acme")
        await operator.certify(identity, mesh.certificates("acme-ci"))


class Reader:
    """Follows the stream until it is left; every event of a command, and every reset."""

    def __init__(self, mesh: DemoMesh, bookmark: Bookmark | None = None) -> None:
        self.stream = EventStream(
            gateway=mesh.processes.mesh.https,
            signer=mesh.addresses["signer"],
            tenant="acme",
            certificates=mesh.certificates("acme-ci"),
            bookmark=bookmark,
        )
        self.seqs: list[int] = []
        self.seen: list[str] = []
        self.told: list[dict[str, object]] = []
        self.resets: list[StreamReset] = []

    async def follow(self) -> None:
        async for item in self.stream:
            if isinstance(item, StreamReset):
                self.resets.append(item)
                continue
            assert isinstance(item, ReceivedEvents)
            self.seqs.append(item.seq)
            self.told += item.events
            self.seen += [
                str(event["command_id"])
                for event in item.events
                if event["event"] == "snavio.command.delivered" and event["source"] == SOURCE
            ]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def reading(mesh: DemoMesh, bookmark: Bookmark | None = None) -> AsyncIterator[Reader]:
    """A reader that is connected: it has seen an event."""
    reader = Reader(mesh, bookmark)
    task = asyncio.create_task(reader.follow())
    try:
        async with asyncio.timeout(WITHIN_S):
            while not reader.seqs and not reader.resets:
                await send(mesh, 1)
                await asyncio.wait({task}, timeout=0.5)
                if task.done():
                    task.result()
        yield reader
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.stream.close()


async def send(mesh: DemoMesh, count: int) -> list[str]:
    async with mesh.producer() as producer:
        outcomes = [await producer.send(TARGET, NAME, b"x", timeout_s=60) for _ in range(count)]
    assert all(outcome.delivered for outcome in outcomes)
    return [outcome.command_id for outcome in outcomes]


async def rotate(mesh: DemoMesh, *, emergency: bool) -> None:
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    channel = MeshChannel(mesh.addresses["signer"], files=files, service="signer")
    try:
        await channel.call(
            "/snavio.v1.Signer/RotateScope",
            sig.RotateScopeRequest(scope="tenant:acme", emergency=emergency),
            sig.PublicKeys,
            timeout_s=30,
        )
    finally:
        await channel.close()


@pytest.mark.parametrize("service", ["gateway", "relay", "signer"])
async def test_a_reader_sees_every_event_once_through_kills_of(
    mesh: DemoMesh, tmp_path: Path, figure: Callable[[str], None], service: str
) -> None:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "live"))
    async with reading(mesh, FileBookmark(tmp_path / "bookmark")) as reader:
        sent: list[str] = []
        kills = KILLS if service != "signer" else max(1, KILLS // 10)
        for _ in range(kills):
            sent += await send(mesh, 2)
            # Between the send and the event, at any moment.
            await asyncio.sleep(dice.uniform(0.0, 1.2))
            await asyncio.to_thread(mesh.processes.kill, service)
            if service != "signer":
                sent += await send(mesh, 1)
            mesh.processes.restart(service)
        sent += await send(mesh, 1)
        await reader.until(lambda: sent[-1] in reader.seen)
        begun = reader.seen.index(sent[0])
        assert reader.seen[begun:] == sent, "each once, in the order in which they were sent"
        assert reader.seqs == list(range(reader.seqs[0], reader.seqs[0] + len(reader.seqs)))
        assert reader.resets == []
        figure(f"{service} killed {kills} times: {len(sent)} events, each once and in order")


async def test_a_reader_goes_on_through_a_rotation_of_its_key(mesh: DemoMesh) -> None:
    async with reading(mesh) as reader:
        before = await send(mesh, 1)
        await rotate(mesh, emergency=False)
        after = await send(mesh, 1)
        await reader.until(lambda: after[0] in reader.seen)
        assert before[0] in reader.seen and reader.resets == []
        await reader.until(lambda: any(event["event"] == "signing_key_rotated" for event in reader.told))
        (rotated,) = [event for event in reader.told if event["event"] == "signing_key_rotated"]
        members = {
            "event_id",
            "occurred_at",
            "domain_id",
            "scope_kind",
            "scope_id",
            "old_key_id",
            "new_key_id",
        }
        members |= {"new_public_key", "valid_from", "opened_at", "closes_at"}
        assert members <= set(rotated) and rotated["scope_id"] == "acme"


async def test_after_an_emergency_rotation_a_reader_is_told_and_goes_on_in_a_new_epoch(
    mesh: DemoMesh,
) -> None:
    async with reading(mesh) as reader:
        await rotate(mesh, emergency=True)
        after: list[str] = []
        async with asyncio.timeout(WITHIN_S):
            while not reader.resets:
                after += await send(mesh, 1)
                await asyncio.sleep(0.5)
        (reset,) = reader.resets
        assert reset.state.position.epoch > reader.seqs[0] >> 40
        later = await send(mesh, 1)
        await reader.until(lambda: later[0] in reader.seen)
        assert reader.seqs[-1] >> 40 == reset.state.position.epoch


async def test_an_old_bookmark_of_a_restored_store_gets_a_statement_and_never_silence(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    store = mesh.processes.mesh.state_dir / "relay" / "streams.db"
    bookmark = FileBookmark(tmp_path / "bookmark")
    async with reading(mesh) as reader:
        first = await send(mesh, 1)
        await reader.until(lambda: first[0] in reader.seen)
    await asyncio.to_thread(mesh.processes.kill, "relay")
    # As a copy of the database alone, from anywhere: the mark beside it stays.
    files = [path for path in store.parent.glob("streams.db*") if not path.name.endswith(("-mark", ".lock"))]
    copies = [shutil.copy2(path, tmp_path) for path in files]
    mesh.processes.restart("relay")
    async with reading(mesh, bookmark) as reader:
        lost = await send(mesh, 2)
        await reader.until(lambda: lost[-1] in reader.seen)
        newest = reader.seqs[-1]
    await asyncio.to_thread(mesh.processes.kill, "relay")
    for path in store.parent.glob("streams.db*"):
        if not path.name.endswith(("-mark", ".lock")):
            path.unlink()
    for copy in copies:
        shutil.copy2(copy, store.parent)
    mesh.processes.restart("relay")
    async with reading(mesh, bookmark) as reader:
        (reset,) = reader.resets
        assert reset.state.position.low > newest
        later = await send(mesh, 1)
        await reader.until(lambda: later[0] in reader.seen)
