"""Tenants' event streams: memory and time for a thousand readers, delay from a verdict to its verified event, catch-up.

Readers, producers, and the mesh share this machine. Run: `python -m pytest bench/test_streams.py -q -s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.meters import percentile, record, resident_mb
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.sdk import EventStream, Producer, ReceivedEvents
from tests.support.https import SERVER_NAME, context
from tests.support.mesh import NAME, TARGET, DemoMesh, demo_mesh

READERS = 1000
OPENING = 50
"""Handshakes at a time, when readers are opened for the first time."""
EVENTS = 10
BACK_WITHIN_S = 15.0
REVOCATIONS = 5
RATE, LOAD_SECONDS, REFUSED = 10_000, 30, 100
CATCH_UP = 200_000
SETTINGS: dict[str, dict[str, object]] = {
    "gateway": {"streams_per_tenant": 2 * READERS, "streams": 2 * READERS, "opens_per_minute": 100_000},
    "mailbox": {"max_topic_messages": 1_000_000_000},
}


def load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f}"


async def principal(mesh: DemoMesh, tenant: str, name: str = "ci") -> tuple[Path, str]:
    async with mesh.operator() as operator:
        if tenant != "acme":
            await operator.create_tenant(tenant)
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, name, tenant)
        folder = mesh.certificates(f"{tenant}-{name}")
        return folder, await operator.certify(identity, folder)


class Reader:
    """Keeps the times at which numbers came; comes back by itself, as every reader does."""

    def __init__(self, mesh: DemoMesh, trust: ssl.SSLContext, tenant: str = "acme") -> None:
        self._host, _, self._port = mesh.processes.mesh.https.rpartition(":")
        self._trust = trust
        self._path = f"/v1/tenants/{tenant}/events"
        self.came: dict[int, int] = {}
        self.opened = 0
        self.ended = 0

    async def follow(self, turn: asyncio.Semaphore | None = None) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError):
                await self._one(turn)
            self.ended += 1
            await asyncio.sleep(0.2)

    async def _one(self, turn: asyncio.Semaphore | None) -> None:
        async with turn or contextlib.nullcontext():
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(
                    self._host, int(self._port), ssl=self._trust, server_hostname=SERVER_NAME
                ),
                60,
            )
            last = f"last-event-id: {max(self.came)}\r\n" if self.came else ""
            writer.write(f"GET {self._path} HTTP/1.1\r\nhost: x\r\n{last}\r\n".encode())
            status = await reader.readline()
        try:
            if b" 200 " not in status:
                return
            self.opened += 1
            # The last chunk ends the stream; the connection may stay for another request.
            while (line := await reader.readline()) and line != b"0\r\n":
                if line.startswith(b"id: "):
                    self.came[int(line[4:])] = time.time_ns()
        finally:
            writer.close()


@asynccontextmanager
async def readers(mesh: DemoMesh, count: int) -> AsyncIterator[list[Reader]]:
    folder, _ = await principal(mesh, "acme")
    trust = context(folder / "ca.pem", folder)
    turn = asyncio.Semaphore(OPENING)
    made = [Reader(mesh, trust) for _ in range(count)]
    tasks = [asyncio.create_task(reader.follow(turn)) for reader in made]
    try:
        await until(lambda: all(reader.opened for reader in made), 300)
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: object, within_s: float) -> None:
    assert callable(condition)
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


def events_of(mesh: DemoMesh, folder: Path, tenant: str = "acme") -> EventStream:
    return EventStream(
        gateway=mesh.processes.mesh.https,
        signer=mesh.addresses["signer"],
        tenant=tenant,
        certificates=folder,
    )


async def with_many_readers(folder: Path) -> tuple[float, float, list[float], float]:
    async with demo_mesh(folder, settings=SETTINGS) as mesh:
        await asyncio.sleep(2.0)
        alone = resident_mb(mesh.processes.pid("gateway"))
        async with readers(mesh, READERS) as found, mesh.producer() as producer:
            await asyncio.sleep(3.0)
            full = resident_mb(mesh.processes.pid("gateway"))
            delays: list[float] = []
            for number in range(EVENTS):
                before = max((max(reader.came, default=0) for reader in found), default=0)
                sent = time.time_ns()
                await producer.send(TARGET, NAME, b"x")
                await until(
                    lambda before=before: all(max(reader.came, default=0) > before for reader in found), 60
                )
                times = [min(at for seq, at in reader.came.items() if seq > before) for reader in found]
                # From the first of them: what is before is one path, whoever reads, and has its own figure.
                first = min(times)
                assert first > sent
                if number:
                    delays += [(at - first) / 1e9 for at in times]
                await asyncio.sleep(1.2)
            back = await reconnected(mesh, found)
        return alone, full, delays, back


async def reconnected(mesh: DemoMesh, found: list[Reader]) -> float:
    """Seconds from the gateway's return until every reader has its stream again."""
    await asyncio.to_thread(mesh.processes.kill, "gateway")
    opened = {id(reader): reader.opened for reader in found}
    mesh.processes.restart("gateway")
    begun = time.perf_counter()
    await until(lambda: all(reader.opened > opened[id(reader)] for reader in found), 120)
    return time.perf_counter() - begun


def test_a_thousand_readers(runner: asyncio.Runner, tmp_path: Path) -> None:
    alone, full, delays, back = runner.run(with_many_readers(tmp_path))
    memory = record(
        "gateway: memory with 1,000 idle SSE readers over mTLS",
        values=[full],
        unit="MB",
        target="< 200",
        note=f"{alone:.0f} MB without readers",
    )
    slow = record(
        "one event to 1,000 readers of a tenant: p95",
        values=[percentile(delays, 0.95)],
        unit="s",
        target="≤ 0.5",
        note=f"after the first of them; the readers share the two cores; {load()}",
    )
    away = record(
        "1,000 readers that reconnect at once: all back",
        values=[back],
        unit="s",
        target=f"≤ {BACK_WITHIN_S:.0f}",
        note=f"from the gateway's return, handshakes of both sides on two cores; {load()}",
    )
    assert memory < 200
    assert slow <= 0.5
    assert away <= BACK_WITHIN_S


async def revoked(folder: Path) -> list[float]:
    found: list[float] = []
    async with demo_mesh(folder, settings=SETTINGS) as mesh:
        for number in range(REVOCATIONS):
            place, serial = await principal(mesh, f"quiet{number}", "thief")
            reader = Reader(mesh, context(place / "ca.pem", place), f"quiet{number}")
            task = asyncio.create_task(reader.follow())
            await until(lambda reader=reader: reader.opened, 60)
            await asyncio.sleep(0.3 * number)
            # Earlier ones, while the gateway did not know the tenant yet, do not count.
            before = reader.ended
            async with mesh.operator() as operator:
                begun = time.perf_counter()
                await operator.revoke_certificate(serial, reason="bench")
            await until(lambda reader=reader, before=before: reader.ended > before, 60)
            found.append(time.perf_counter() - begun)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return found


def test_a_revoked_certificate_loses_its_quiet_stream(runner: asyncio.Runner, tmp_path: Path) -> None:
    taken = runner.run(revoked(tmp_path))
    record(
        "certificate revoked in mid-stream: the quiet stream is gone",
        values=taken,
        unit="s",
        target="≤ 5",
        note=load(),
    )
    assert max(taken) <= 5


class Watched:
    """When each command of a stream was verified, by its id."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.counted = 0

    async def follow(self, stream: EventStream) -> None:
        async for item in stream:
            assert isinstance(item, ReceivedEvents)
            now = time.perf_counter()
            for event in item.events:
                self.at.setdefault(str(event.get("command_id")), now)


async def pour(producer: Producer, refused: dict[str, float]) -> int:
    """The load, with refusals in it; when each refusal was answered."""
    delivered = 0
    step = 0.1
    commands = [(TARGET, NAME, b"x" * 100)] * (int(RATE * step) - REFUSED // 10)
    begun = time.perf_counter()
    running: set[asyncio.Task[None]] = set()

    async def one() -> None:
        nonlocal delivered
        outcomes = await producer.send_batch([*commands, *[(TARGET, "nothing-such", b"x")] * (REFUSED // 10)])
        now = time.perf_counter()
        delivered += outcomes.delivered
        refused.update({outcome.command_id: now for outcome in outcomes.refused})

    for number in range(int(LOAD_SECONDS / step)):
        running.add(task := asyncio.create_task(one()))
        task.add_done_callback(running.discard)
        await asyncio.sleep(max(0.0, begun + (number + 1) * step - time.perf_counter()))
    await asyncio.gather(*running)
    return delivered


async def under_load(folder: Path) -> tuple[list[float], list[float], float]:
    async with demo_mesh(folder, settings=SETTINGS) as mesh:
        loud_folder, _ = await principal(mesh, "acme")
        quiet_folder, _ = await principal(mesh, "globex")
        async with mesh.operator() as operator:
            await operator.register_service("globex", "shop")
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "shop", "globex")
            await operator.certify(identity, mesh.certificates("globex-shop"))
            await operator.grant("globex/shop", TARGET, NAME)
        loud, quiet = Watched(), Watched()
        async with (
            events_of(mesh, loud_folder) as first,
            events_of(mesh, quiet_folder, "globex") as second,
            mesh.producer() as producer,
            Producer(
                shield=mesh.addresses["shield"],
                signer=mesh.addresses["signer"],
                certificates=mesh.certificates("globex-shop"),
            ) as other,
        ):
            tasks = [asyncio.create_task(loud.follow(first)), asyncio.create_task(quiet.follow(second))]
            # Both are connected once they have seen something; the route is warm then as well.
            async with asyncio.timeout(60):
                while not loud.at or not quiet.at:
                    await producer.send(TARGET, NAME, b"x")
                    await other.send(TARGET, NAME, b"x")
                    await asyncio.sleep(0.5)
            refused: dict[str, float] = {}
            sent: dict[str, float] = {}

            async def now_and_then() -> None:
                while True:
                    await asyncio.sleep(1.0)
                    outcome = await other.send(TARGET, NAME, b"x")
                    sent[outcome.command_id] = time.perf_counter()

            beside = asyncio.create_task(now_and_then())
            begun = time.perf_counter()
            delivered = await pour(producer, refused)
            rate = delivered / (time.perf_counter() - begun)
            beside.cancel()
            await until(lambda: sent.keys() <= quiet.at.keys() and refused.keys() <= loud.at.keys(), 60)
            for task in [*tasks, beside]:
                task.cancel()
            await asyncio.gather(*tasks, beside, return_exceptions=True)
        return (
            [loud.at[each] - at for each, at in refused.items()],
            [quiet.at[each] - at for each, at in sent.items()],
            rate,
        )


def test_from_the_verdict_to_the_verified_event(runner: asyncio.Runner, tmp_path: Path) -> None:
    refusals, beside, rate = runner.run(under_load(tmp_path))
    note = f"at {rate:,.0f} delivered commands/s; client and reader on the same two cores; {load()}"
    for name, delays in (("a refusal", refusals), ("a tenant with one event a second", beside)):
        figure = record(
            f"verdict to verified event, {name}: p95",
            values=[percentile(delays, 0.95)],
            unit="s",
            target="≤ 2.5",
            note=f"{len(delays)} events, median {percentile(delays, 0.5):.2f} s; {note}",
        )
        assert figure <= 2.5


async def caught_up(folder: Path) -> tuple[int, list[float]]:
    settings: dict[str, dict[str, object]] = {**SETTINGS, "relay": {"stream_events_per_s": 1_000_000}}
    async with demo_mesh(folder, settings=settings) as mesh:
        place, _ = await principal(mesh, "acme")
        async with mesh.producer() as producer:
            for _ in range(CATCH_UP // 5000):
                await producer.send_batch([(TARGET, NAME, b"x")] * 5000)
        # All of it is sealed.
        async with asyncio.timeout(120):
            while (await mesh.counters("relay"))["sealing.events"] < CATCH_UP:
                await asyncio.sleep(0.5)
        rates = []
        for _ in range(3):
            async with events_of(mesh, place) as stream:
                await stream.rewind()
                seen, begun = 0, time.perf_counter()
                async for item in stream:
                    assert isinstance(item, ReceivedEvents)
                    seen += len(item.events)
                    if seen >= CATCH_UP:
                        break
                rates.append(seen / (time.perf_counter() - begun))
        return seen, rates


def test_catch_up(runner: asyncio.Runner, tmp_path: Path) -> None:
    seen, rates = runner.run(caught_up(tmp_path))
    figure = record(
        "EventStream catches up: verified events",
        values=rates,
        unit="/s",
        target="≥ 50,000",
        note=f"{seen:,} events over HTTPS, verified at the gateway and again by the reader; {load()}",
    )
    assert figure >= 50_000
