"""Cost of telemetry: CPU per command with it and without it, and Relay's archiving rate.

Two meshes run at once, one with telemetry and one without, and are given the same load in turns: what the machine's
other guests do falls on both. The second part needs no mesh: a real outbox and a real folder, a stand-in for Signer.

Run: `python -m pytest bench/test_relay.py -q -s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.meters import Sample, Stopwatch, record
from services.relay.export_plan import ExportSchedule
from services.relay.exporter import Exporter
from services.relay.gaps import Arrival
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.errors import NotFound
from snavio.launch.probes import Probes
from snavio.launch.processes import SERVICES
from snavio.native import (
    Dispatch,
    Tombstones,
    ed25519_public_key,
    ed25519_sign,
    format_timestamp,
    read_journal_page,
    read_verdicts,
    uuid7,
)
from snavio.sdk import EventStream, Producer
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import hours
from snavio.telemetry.journal_uploader import with_blocks
from snavio.v1.relay_pb2 import JournalPage
from snavio.wiring import open_archive, open_outbox
from tests.support.frames import RunOf, batch, command, verdicts
from tests.support.mesh import NAME, TARGET, DemoMesh, demo_mesh

REPEATS = 6
ROUND_SECONDS = 3.0
CONCURRENT_BATCHES = 4
PAYLOAD = b"x" * 210
RATIO = 1.25
EVENTS_PER_S = 200_000
BYTES_PER_EVENT = 32
TOLD_BY = ("shield", "fast", "slow")
FILE_EVENTS = 10_000
"""Of one service: fewer wait for more, and are not unfinished work."""
PAGES, BLOCKS_PER_PAGE, ROWS = 60, 18, 1000
RANDOM_PAGES = 10
SEED = bytes(range(32))


async def pour(producer: Producer, seconds: float) -> int:
    end = time.perf_counter() + seconds
    commands = [(TARGET, NAME, PAYLOAD)] * 1000

    async def lane() -> int:
        delivered = 0
        while time.perf_counter() < end:
            delivered += (await producer.send_batch(commands)).delivered
        return delivered

    return sum(await asyncio.gather(*(lane() for _ in range(CONCURRENT_BATCHES))))


def probes(mesh: DemoMesh) -> Probes:
    return Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin"))


async def reading(asked: Probes, service: str, name: str) -> float:
    """A counter or gauge of a service."""
    status = await asked.status(service)
    assert status is not None
    return next((each.value for each in (*status.counter, *status.gauge) if each.name == name), 0)


async def archived(asked: Probes) -> None:
    """Wait until the sent telemetry is in the archive, except for less than a file of each service."""
    async with asyncio.timeout(60):
        while True:
            told = [await reading(asked, name, "journal.waiting_rows") for name in TOLD_BY]
            waiting = await reading(asked, "relay", "outbox.waiting_events")
            if not any(told) and waiting < FILE_EVENTS * len(TOLD_BY):
                return
            await asyncio.sleep(0.1)


async def measured(mesh: DemoMesh, producer: Producer, asked: Probes) -> Sample:
    """A round, including the work that it leaves behind."""
    watch = Stopwatch({"client": os.getpid(), **{name: mesh.processes.pid(name) for name in SERVICES}})
    watch.start()
    delivered = await pour(producer, ROUND_SECONDS)
    await archived(asked)
    return watch.stop(delivered)


def bytes_per_event(archive: Path, *, by: str) -> float:
    """Bytes per event of one process's telemetry."""
    files = [file for hour in hours(archive) for file in hour.files if file.stretch.instance == by]
    return sum(file.size for file in files) / sum(file.stretch.rows for file in files)


async def follow_quietly(mesh: DemoMesh) -> None:
    """A tenant with nothing to read follows its stream."""
    folder = mesh.certificates("globex-ci")
    async with mesh.operator() as operator:
        await operator.create_tenant("globex")
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "globex")
        await operator.certify(identity, folder)
    while True:
        async with EventStream(
            gateway=mesh.processes.mesh.https,
            signer=mesh.addresses["signer"],
            tenant="globex",
            certificates=folder,
        ) as stream:
            # The gateway hears of the tenant a moment later.
            with contextlib.suppress(NotFound):
                async for _ in stream:
                    pass
        await asyncio.sleep(0.2)


async def both(folder: Path) -> tuple[list[Sample], list[Sample], int, float]:
    settings: dict[str, dict[str, object]] = {"mailbox": {"max_topic_messages": 1_000_000_000}}
    off: dict[str, dict[str, object]] = {**settings, "mesh": {"telemetry": False}}
    on: dict[str, dict[str, object]] = {**settings, "mesh": {"telemetry": True}}
    async with (
        demo_mesh(folder / "on", settings=on) as told,
        demo_mesh(folder / "off", settings=off) as silent,
        told.producer() as first,
        silent.producer() as second,
        probes(told) as loud,
        probes(silent) as quiet,
    ):
        following = asyncio.create_task(follow_quietly(told))
        await pour(first, 1.0)
        await pour(second, 1.0)
        await archived(loud)
        with_it, without_it = [], []
        for _ in range(REPEATS):
            with_it.append(await measured(told, first, loud))
            without_it.append(await measured(silent, second, quiet))
        dropped = sum([await reading(loud, name, "journal.dropped_rows") for name in TOLD_BY])
        missed = await reading(loud, "relay", "intake.missed_events")
        assert not following.done()
        assert await reading(loud, "gateway", "sse_active_streams") == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        size = bytes_per_event(told.processes.mesh.archive(), by="fast-0")
    return with_it, without_it, int(dropped + missed), size


def test_cpu_per_command_with_telemetry(runner: asyncio.Runner, tmp_path: Path) -> None:
    with_it, without_it, dropped, size = runner.run(both(tmp_path))
    ratios = [one.cpu_us / other.cpu_us for one, other in zip(with_it, without_it, strict=True)]
    record(
        "telemetry on ÷ off: CPU per command, all processes",
        values=ratios,
        unit="x",
        target=f"≤ {RATIO}",
        note=f"until all of it is archived, with a quiet tenant that follows its stream; {dropped} dropped; load of"
        f" the machine {os.getloadavg()[0]:.1f}",
    )
    record(
        "telemetry on: CPU per command, relay",
        values=[sample.cpu_us_of("relay") for sample in with_it],
        unit="µs",
        target="-",
    )
    record(
        "archive: bytes per delivered event",
        values=[size],
        unit="bytes",
        target=f"≤ {BYTES_PER_EVENT}",
        note="as the mesh wrote them",
    )
    assert dropped == 0
    assert size <= BYTES_PER_EVENT
    assert statistics.median(ratios) <= RATIO


def journal_pages(new_id: Callable[[], str], pages_wanted: int = PAGES) -> list[bytes]:
    """Pages of delivered commands: 503 sources, 60 routes, batches of 1000, as Fast writes them."""
    dispatch = Dispatch()
    now = SystemClock().unix_ns()
    for route in range(60):
        dispatch.put_route(
            f"target-{route}", f"name-{route % 7}", queue=0, topic=f"acme/t{route}", profile=3, strict=False
        )
        for source in range(503):
            dispatch.allow(f"acme/s{source}", f"target-{route}", f"name-{route % 7}", source + 1)
    dispatch.renewed(0)
    delivered = read_verdicts(verdicts(b"\x01" * ROWS))
    pages, seq = [], 1
    for page in range(pages_wanted):
        blocks = []
        for number in range(BLOCKS_PER_PAGE):
            at = now + (page * BLOCKS_PER_PAGE + number) * 5_000_000
            route = (page * 31 + number) % 60
            told = [
                command(
                    target=f"target-{route}",
                    name=f"name-{route % 7}",
                    command_id=new_id(),
                    timestamp=format_timestamp(at - row * 900),
                    payload=b"",
                )
                for row in range(ROWS)
            ]
            sender = f"acme/s{(page * 17 + number) % 503}"
            frame = batch(RunOf(told, source=sender, admitted_unix_ns=at + 1_000_000))
            plan = dispatch.plan(frame, now_mono_ns=1)
            plan.ledger.merge(0, 0, delivered)
            blocks.append(plan.telemetry(at + 3_000_000))
        pages.append(with_blocks(JournalPage(instance="fast-0", epoch=7, first_seq=seq), blocks))
        seq += BLOCKS_PER_PAGE * ROWS
    return pages


async def archive_all(folder: Path, pages: Sequence[bytes]) -> tuple[float, float]:
    """Wall and CPU seconds from the first page to the last signed manifest."""
    clock = SystemClock()
    outbox = await open_outbox(folder / "outbox.db", max_bytes=4 << 30)
    archive = open_archive(folder / "archive")
    waiting = PendingPages()
    own = RelayEvents(instance="relay-0", epoch=1, clock=clock)

    async def sign(message: bytes) -> tuple[str, bytes]:
        return "bench", ed25519_sign(SEED, message)

    async def keys() -> Sequence[VerifyingKey]:
        return [VerifyingKey("bench", ed25519_public_key(SEED), 0)]

    intake = PageIntake(outbox=outbox, waiting=waiting, own=own, clock=clock)
    exporter = Exporter(
        outbox=outbox,
        archive=archive,
        waiting=waiting,
        own=own,
        signer=ManifestSigner(sign=sign, keys=keys),
        tombstones=Tombstones(),
        turn=asyncio.Lock(),
        clock=clock,
        rhythm=ExportSchedule(10_000, 1, 1),
        revocations_known_unix_ns=clock.unix_ns,
    )
    await intake.start()
    began, cpu = time.perf_counter(), time.process_time()
    await exporter.start()
    for page in pages:
        instance, epoch, first, blocks, _ = read_journal_page(page)
        await intake.take(Arrival("fast", instance, epoch, epoch, first, blocks))
    while waiting.gauges()["waiting_pages"]:
        await asyncio.sleep(0.01)
    spent = time.perf_counter() - began, time.process_time() - cpu
    await exporter.stop()
    await intake.stop()
    await outbox.close()
    await archive.close()
    return spent


def test_relay_sustains_its_rate_into_the_archive(runner: asyncio.Runner, tmp_path: Path) -> None:
    pages = journal_pages(uuid7)
    events = PAGES * BLOCKS_PER_PAGE * ROWS
    spent = [runner.run(archive_all(tmp_path / str(number), pages)) for number in range(3)]
    files = [file for hour in hours(tmp_path / "0" / "archive") for file in hour.files]
    assert sum(file.stretch.rows for file in files) == events
    runner.run(archive_all(tmp_path / "random", journal_pages(lambda: str(uuid.uuid4()), RANDOM_PAGES)))
    size = bytes_per_event(tmp_path / "random" / "archive", by="fast-0")
    rates = [events / wall for wall, _ in spent]
    record("relay, journal page to signed archive", values=rates, unit="events/s", target="≥ 200,000")
    record("relay: CPU per event", values=[cpu / events * 1e6 for _, cpu in spent], unit="µs", target="-")
    record(
        "archive: bytes per delivered event, random ids",
        values=[size],
        unit="bytes",
        target=f"≤ {BYTES_PER_EVENT}",
        note="of a producer that does not make its ids in order, as the SDK does",
    )
    assert statistics.median(rates) >= EVENTS_PER_S
    assert size <= BYTES_PER_EVENT
