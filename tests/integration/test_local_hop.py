"""Shield and Fast in one process give the answers that they give over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.fast.dispatch import Dispatcher
from services.shield.admission import AdmissionControl
from snavio.clock import ManualClock, SystemClock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.client import ClientLimits
from snavio.hop.local_hop import LocalHop
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.native import Admission, Dispatch, read_verdicts
from snavio.ports.queue import BatchPart, TargetQueue
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer
from snavio.rpc.server import Call
from snavio.telemetry.journal import Journal
from snavio.v1.batch_pb2 import Verdicts
from tests.support import twin
from tests.support.batch_clients import link_to, server, until
from tests.support.frames import NAME, SOURCE, TARGET, TOPIC
from tests.support.pki import Authority

AUDIENCE, SECRET = "here", bytes(range(32))
GOOD, FAILED, UNKNOWN = Verdict.DELIVERED, Verdict.DELIVERY_FAILURE, Verdict.OUTCOME_UNKNOWN
HOPS = ["local", "grpc"]
Put = Callable[[BatchPart], None]
Answers = list[tuple[tuple[int, ...], bool]]


def command(number: int, *, name: str = NAME, secret: bytes = SECRET) -> bytes:
    return twin.sign(
        secret,
        {
            "id": f"0190a5b2-7c00-7000-8000-{number + 1:012x}".encode(),
            "timestamp": twin.format_timestamp(ManualClock().unix_ns()).encode(),
            "type": b"snavio.command-sent",
            "key_version": b"hmac-v1",
            "audience": AUDIENCE.encode(),
            "target": TARGET.encode(),
            "name": name.encode(),
            "payload": b"{}",
        },
    )


def deliver(part: BatchPart) -> None:
    """One command at a time, so that every answer but the last is a partial one."""
    for at in range(part.count):
        reply = Verdicts(first=at, codes=bytes([GOOD]), final=at + 1 == part.count)
        part.settle(0, read_verdicts(reply.SerializeToString()))


def refuse(_part: BatchPart) -> None:
    raise Saturated("full", retry_after_ms=70)


def fail(_part: BatchPart) -> None:
    raise RuntimeError("scripted")


def ignore(_part: BatchPart) -> None:
    """Takes it, and answers never."""


def dispatcher(put: Put) -> Dispatcher:
    """A Fast that knows one route; everything else is for Slow, which delivers."""
    dispatch, clock, unused = Dispatch(), SystemClock(), cast(Any, None)
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=3, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    dispatch.renewed(clock.mono_ns())
    return Dispatcher(
        dispatch=dispatch,
        directory=unused,
        grants=unused,
        bans=unused,
        queues=[cast(TargetQueue, SimpleNamespace(put=put))],
        slow=cast(TargetQueue, SimpleNamespace(put=deliver)),
        journal=Journal(service="fast"),
        clock=clock,
        budget_ms=5000,
    )


@asynccontextmanager
async def hop(kind: str, fast: Dispatcher, tmp_path: Path) -> AsyncIterator[TargetQueue]:
    """The way to Fast."""
    if kind == "local":
        local = LocalHop(fast.take, name="fast", clock=SystemClock())
        await local.start()
        yield local
        await local.close()
        return

    async def serve(call: Call) -> None:
        stream = BatchStream(call, gate=CertificateGate(clock=SystemClock()))
        await stream.greet(mesh_hello(SystemClock(), in_flight=16))
        async for frame in stream.batches():
            fast.take(frame, stream.reply)

    authority = Authority(tmp_path)
    async with server(authority, serve) as address, link_to(authority, address) as client:
        yield client


async def answers(
    kind: str, tmp_path: Path, commands: list[bytes], put: Put, *, budget_ms: int = 5000
) -> tuple[Answers, bytes, list[tuple[Any, ...]]]:
    """Every answer of Shield to one batch, the verdicts all in all, and the refusals."""
    admission = Admission(audience=AUDIENCE)
    admission.set_keyset(SOURCE, [("hmac-v1", SECRET, 0, 0, False)])
    told: Answers = []
    codes, refusals = bytearray(len(commands)), list[tuple[Any, ...]]()
    done = asyncio.Event()

    def answer(frame: bytes, final: bool) -> None:
        reply = read_verdicts(frame)
        told.append((tuple(reply.codes), final))
        for at, code in enumerate(reply.codes, reply.first):
            codes[at] |= code
        refusals.extend(reply.refusals())
        if final:
            done.set()

    async with hop(kind, dispatcher(put), tmp_path) as fast:
        await fast.connected.wait()
        shield = AdmissionControl(
            admission=admission,
            freshness=cast(Any, SimpleNamespace(usable=lambda: True, used=lambda _count: None)),
            fast=fast,
            journal=Journal(service="shield"),
            tally=cast(Any, SimpleNamespace(add=lambda _codes: None)),
            latency=cast(Any, SimpleNamespace(add=lambda _ns, count: None)),
            clock=StandingClock(),
            budget_ms=5000,
        )
        peer = cast(Peer, SimpleNamespace(identity=SimpleNamespace(source=SOURCE), cert_serial="a"))
        shield.admit_batch(twin.submission(commands, batch_seq=9, budget_ms=budget_ms), peer, answer)
        async with asyncio.timeout(20):
            await done.wait()
    return told, bytes(codes), refusals


class StandingClock(SystemClock):
    """Monotonic time goes on, for budgets; the wall clock is that of the commands."""

    def unix_ns(self) -> int:
        return ManualClock().unix_ns()


FORGED = b"f" * 32


@pytest.mark.parametrize(
    ("commands", "put", "verdicts"),
    [
        ([command(0), command(1)], deliver, [GOOD, GOOD]),
        # Refused at once by Shield, delivered in parts by the queue and by Slow.
        (
            [command(0, secret=FORGED), command(1), command(2, name="other"), command(3)],
            deliver,
            [Verdict.HMAC_MISMATCH, GOOD, GOOD, GOOD],
        ),
        ([command(0), command(1, name="other")], refuse, [Verdict.SATURATED, GOOD]),
        ([command(0), command(1)], fail, [FAILED, FAILED]),
        ([command(0, secret=FORGED)], deliver, [Verdict.HMAC_MISMATCH]),
    ],
    ids=["delivered", "partial", "saturated", "failed", "refused"],
)
async def test_answers_are_those_of_grpc(
    commands: list[bytes], put: Put, verdicts: list[Verdict], tmp_path: Path
) -> None:
    local, grpc = [await answers(kind, tmp_path, commands, put) for kind in HOPS]
    assert local == grpc
    told, codes, _ = local
    assert list(codes) == verdicts
    assert [final for _, final in told] == [False] * (len(told) - 1) + [True]


async def test_the_hint_of_a_full_queue_comes_back(tmp_path: Path) -> None:
    _, _, refusals = await answers("local", tmp_path, [command(0)], refuse)
    assert [(reason, retry_after_ms) for _, reason, retry_after_ms, _, _ in refusals] == [
        (Verdict.SATURATED, 70)
    ]


@pytest.mark.parametrize("kind", HOPS)
async def test_a_budget_that_ends_leaves_the_outcome_unknown(kind: str, tmp_path: Path) -> None:
    _, codes, _ = await answers(kind, tmp_path, [command(0)], ignore, budget_ms=200)
    assert list(codes) == [UNKNOWN]


class Part:
    """A batch part that keeps its losses."""

    source, count, body, buffer = "", 1, b"", b""
    deadline_mono_ns = 2**62

    def __init__(self) -> None:
        self.losses: list[bool] = []

    def settle(self, offset: int, reply: object) -> None:
        raise AssertionError

    def lost(self, *, written: bool, cause: str) -> None:
        self.losses.append(written)


async def test_a_service_that_raises_costs_its_batch_and_not_the_hop() -> None:
    taken: list[bytes] = []

    def take(frame: bytes, _answer: Callable[[bytes, bool], None]) -> None:
        taken.append(frame)
        if len(taken) == 1:
            raise RuntimeError("scripted")

    local = LocalHop(take, name="test", clock=SystemClock(), limits=ClientLimits(linger_s=0.0))
    await local.start()
    first, second = Part(), Part()
    local.put(first)
    await until(lambda: bool(first.losses))
    # Nothing is known of a batch that was handed over.
    assert first.losses == [True]
    local.put(second)
    await until(lambda: len(taken) == 2)
    assert second.losses == []
    closing = asyncio.create_task(local.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert second.losses == [True]
