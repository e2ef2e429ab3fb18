"""kill -9 of Relay and of Fast under load, and a forger at full speed: no event is archived twice, gaps have their
size.

The page cache survives a killed process, so this tests the order of commit and answer, not the fsync.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import struct
import time
from collections import defaultdict
from collections.abc import Callable

import pytest

from snavio.domain.verdict import Verdict
from snavio.launch.probes import Probes
from snavio.native import batch_header, read_verdicts
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry import schema
from snavio.telemetry.archive_inspection import check, hours, overlaps
from snavio.telemetry.archive_query import ask
from snavio.v1.shield_pb2 import Submission
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
RELAY_KILLS = 50 if FULL else 2
FAST_KILLS = 20 if FULL else 2
FORGED_BATCHES = 500 if FULL else 60
PATIENCE_S = 90.0
SETTINGS: dict[str, dict[str, object]] = {
    "mesh": {"pull_interval_ms": 200},
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900 if FULL else 240)]


async def asked(mesh: DemoMesh, question: str) -> tuple[tuple[object, ...], ...]:
    return (await asyncio.to_thread(ask, mesh.processes.mesh.archive(), question)).rows


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for an awaitable condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # type: ignore[misc]
            await asyncio.sleep(0.2)


class Load:
    """Sends batches until it is stopped; counts deliveries."""

    def __init__(self, mesh: DemoMesh) -> None:
        self._mesh = mesh
        self._stop = asyncio.Event()
        self.delivered = 0

    async def run(self) -> None:
        async with self._mesh.producer() as producer:
            while not self._stop.is_set():
                outcomes = await producer.send_batch([(TARGET, NAME, b"x")] * 200, timeout_s=20)
                self.delivered += sum(outcome.verdict is Verdict.DELIVERED for outcome in outcomes)

    def stop(self) -> None:
        self._stop.set()


async def delivered_in_archive(mesh: DemoMesh) -> int:
    ((count,),) = await asked(
        mesh, f"SELECT coalesce(sum(count), 0) FROM events WHERE event = '{schema.DELIVERED}'"
    )
    return int(str(count))


async def assert_nothing_twice(mesh: DemoMesh) -> None:
    ((rows, distinct),) = await asked(
        mesh, "SELECT count(*), count(DISTINCT (instance, epoch, seq)) FROM events"
    )
    assert rows == distinct
    signer = MeshChannel(
        mesh.addresses["signer"],
        files=CertificateFiles.in_folder(mesh.certificates("operator-admin")),
        service="signer",
    )
    keys = await PlatformKeys(signer).verifying()
    await signer.close()
    archive = mesh.processes.mesh.archive()
    found = list(hours(archive))
    assert overlaps(found) == []
    # A killed Relay may leave a file that it had not finished; nothing else.
    problems = {finding.problem for hour in found for finding in check(archive, hour, keys)}
    assert problems <= {"half-written", "unsigned"}


async def test_relay_killed_under_load_loses_nothing_and_doubles_nothing(mesh: DemoMesh) -> None:
    before = await delivered_in_archive(mesh)
    load = Load(mesh)
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        chance = random.Random(11)
        for _ in range(RELAY_KILLS):
            await asyncio.sleep(chance.uniform(0.1, 1.2))
            mesh.processes.kill("relay")
            await asyncio.to_thread(mesh.processes.restart, "relay")
        load.stop()

    async def all_there() -> bool:
        return await delivered_in_archive(mesh) - before >= load.delivered

    await eventually(all_there)
    assert load.delivered > 0
    assert await delivered_in_archive(mesh) - before == load.delivered
    assert await asked(mesh, f"SELECT detail FROM events WHERE event = '{schema.JOURNAL_GAP}'") == ()
    await assert_nothing_twice(mesh)


async def test_fast_killed_under_load_leaves_gaps_with_their_size(mesh: DemoMesh) -> None:
    load = Load(mesh)
    reached: dict[int, int] = {}
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        chance = random.Random(12)
        for _ in range(FAST_KILLS):
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            mesh.processes.kill("fast")
            # What the killed process had written down, as it left it.
            mark = (mesh.processes.state_dir / "fast" / "fast-0.journal").read_bytes()
            _, epoch, last_seq = struct.unpack_from("<8sQQ", mark)
            reached[epoch] = last_seq
            await asyncio.to_thread(mesh.processes.restart, "fast")
        load.stop()
    assert sum(reached.values()) > 0

    async def told_in_whole() -> bool:
        covered = await numbers(mesh)
        return all(_reach(covered[epoch]) == last for epoch, last in reached.items())

    await eventually(told_in_whole)
    await assert_nothing_twice(mesh)


async def numbers(mesh: DemoMesh) -> dict[int, list[tuple[int, int]]]:
    """First and last numbers of archived and of missing events, per life of Fast."""
    covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for hour in hours(mesh.processes.mesh.archive()):
        for file in hour.files:
            if file.stretch.instance == "fast-0":
                covered[file.stretch.epoch].append((file.stretch.first_seq, file.stretch.last_seq))
    gaps = await asked(
        mesh, f"SELECT reason, dropped_events, detail FROM events WHERE event = '{schema.JOURNAL_GAP}'"
    )
    for reason, count, detail in gaps:
        parts = re.fullmatch(r"fast-0 epoch (\d+): (\d+) to (\d+)", str(detail))
        assert parts is not None and reason == "crash"
        epoch, first, last = map(int, parts.groups())
        assert count == last - first + 1
        covered[epoch].append((first, last))
    return covered


def _reach(ranges: list[tuple[int, int]]) -> int:
    """The last number, if all from 1 on are covered, each once; -1 while some are not."""
    expected = 1
    for first, last in sorted(ranges):
        assert first >= expected, "a number is covered twice"
        if first != expected:
            return -1
        expected = last + 1
    return expected - 1


async def test_a_forger_at_full_speed_buys_bounded_events_and_no_commit_per_command(mesh: DemoMesh) -> None:
    shield = MeshChannel(
        mesh.addresses["shield"],
        files=CertificateFiles.in_folder(mesh.certificates("acme-billing")),
        service="shield",
    )
    probes = Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin"))
    garbage = Submission(command=[b"\xff\xff"] * 1000).SerializeToString()

    async def commits() -> int:
        status = await probes.status("relay")
        assert status is not None
        return next(each.value for each in status.counter if each.name == "intake.commits")

    before, began = await commits(), time.monotonic()
    for number in range(FORGED_BATCHES):
        frame = batch_header(number + 1, 5000) + garbage
        answer = await shield.call_raw("/snavio.v1.Shield/SubmitBatch", frame, timeout_s=20)
        assert read_verdicts(answer).codes == bytes([Verdict.MALFORMED]) * 1000
    await shield.close()
    forged = FORGED_BATCHES * 1000

    async def all_counted() -> bool:
        told = await asked(mesh, "SELECT coalesce(sum(count), 0) FROM events WHERE reason = 'malformed'")
        return int(str(told[0][0])) >= forged

    await eventually(all_counted)
    seconds = time.monotonic() - began
    ((rows, counted, source),) = await asked(
        mesh, "SELECT count(*), sum(count), any_value(source) FROM events WHERE reason = 'malformed'"
    )
    assert (int(str(counted)), source) == (forged, SOURCE)
    # 110 rows of their own and one that counts the rest, per second.
    assert int(str(rows)) <= 111 * (seconds + 2)
    # Every journal's page is a commit at the most, and there is one a second of each.
    assert await commits() - before <= 8 * (seconds + 2)
    await probes.close()
