"""Services are killed in mid-traffic, one after the other, and the answers are compared with the consumer's messages.

One real mesh of real processes. A producer without retries sees every outcome as it is: a command reported delivered
must be there once, one reported refused must not be there, and only `outcome-unknown` may be either. A second producer,
with the SDK's own retries, shows that traffic recovers by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from snavio.domain.verdict import Verdict
from snavio.launch.processes import SERVICES
from snavio.sdk import Producer
from snavio.sdk.outcome import Outcome
from snavio.v1.registry_pb2 import PROFILE_SYNC
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

FULL = bool(os.environ.get("SNAVIO_FULL"))
SYNC_NAME = "delete-user"
SENDERS = 16 if FULL else 2
# Before the fault, while it lasts (where traffic goes on), and after it.
SOME = 500 if FULL else 20
# More than a busy machine keeps a warm command waiting: `once` has but one attempt.
BUDGET_MS = 3000
WITHIN_S = 60.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


SETTINGS: dict[str, dict[str, object]] = {"mesh": {"pull_interval_ms": 100, "budget_ms": BUDGET_MS}}


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, SYNC_NAME, profile=PROFILE_SYNC)
        await operator.grant(SOURCE, TARGET, SYNC_NAME)


@dataclass
class Books:
    """The outcomes of producers, and the messages of the consumer."""

    told: dict[bytes, Outcome] = field(default_factory=dict)
    got: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    delivered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def note(self, lane: str, payload: bytes, outcome: Outcome) -> None:
        self.told[payload] = outcome
        if outcome.delivered:
            self.delivered[lane] += 1
        else:
            self.refused[lane] += 1

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not true():
                await asyncio.sleep(0.005)

    async def grows(self, *lanes: str, by: int = SOME) -> None:
        """Wait until that many more commands of each lane are delivered, all sent from now on."""
        # Those under way may have been sent before.
        goal = {lane: self.delivered[lane] + by + SENDERS for lane in lanes}
        await self.until(lambda: all(self.delivered[lane] >= goal[lane] for lane in lanes))

    def refusals(self, *lanes: str) -> list[tuple[bytes, str, str]]:
        """Refused commands of some lanes, by reason."""
        return [
            (payload, outcome.reason, outcome.detail)
            for payload, outcome in self.told.items()
            if not outcome.delivered and payload.split()[-2].decode() in lanes
        ]

    def missing(self) -> set[bytes]:
        return {payload for payload, outcome in self.told.items() if outcome.delivered} - self.got.keys()


# Each lane is a producer and a command: `once` reports every attempt as it is, `sdk` retries by itself.
LANES = {"once": NAME, "once-sync": SYNC_NAME, "sdk": NAME, "sdk-sync": SYNC_NAME}
WARM = ("once", "sdk")


@asynccontextmanager
async def traffic(mesh: DemoMesh, mark: str) -> AsyncIterator[Books]:
    """All lanes at work; at the end every outcome is in, and the consumer has everything there is."""
    books, stop = Books(), asyncio.Event()
    numbers = itertools.count()

    async def send(lane: str, producer: Producer) -> None:
        while not stop.is_set():
            payload = f"{mark} {lane} {next(numbers)}".encode()
            outcome = await producer.send(TARGET, LANES[lane], payload, timeout_s=8.0)
            books.note(lane, payload, outcome)
            await asyncio.sleep(0.002 if outcome.delivered else 0.02)

    async with (
        _producer(mesh, max_attempts=1) as once,
        _producer(mesh, max_attempts=50) as sdk,
        mesh.consumer() as consumer,
    ):

        async def receive() -> None:
            async for command in consumer:
                books.got[command.payload].add(command.msg_id)
                await command.ack()

        receiving = asyncio.create_task(receive())
        sending = [
            asyncio.create_task(send(lane, once if lane.startswith("once") else sdk))
            for lane in LANES
            for _ in range(SENDERS)
        ]
        try:
            yield books
        finally:
            stop.set()
            await asyncio.gather(*sending)
            with suppress(TimeoutError):
                await books.until(lambda: not books.missing())
            # An abandoned command would come before these: they are stored after it.
            last = [f"{mark} last {number}".encode() for number in range(3)]
            for payload in last:
                assert (await sdk.send(TARGET, NAME, payload)).delivered
            await books.until(lambda: all(payload in books.got for payload in last))
            receiving.cancel()
            await asyncio.wait({receiving})


def _producer(mesh: DemoMesh, *, max_attempts: int) -> Producer:
    return Producer(
        shield=mesh.addresses["shield"],
        signer=mesh.addresses["signer"],
        certificates=mesh.certificates("acme-billing"),
        max_attempts=max_attempts,
    )


def compare(books: Books) -> None:
    """Check the promises, command by command."""
    hopeless = {
        outcome.reason
        for outcome in books.told.values()
        if not (outcome.delivered or outcome.verdict.retryable)
    }
    assert hopeless == set()
    lost = books.missing()
    assert not lost, f"{len(lost)} acknowledged commands are lost, such as {min(lost)!r}"
    for payload, outcome in books.told.items():
        copies = len(books.got.get(payload, ()))
        if outcome.attempts > 1:
            # The SDK does not report earlier attempts; each may have arrived.
            assert copies <= outcome.attempts, payload
        elif outcome.delivered:
            assert copies == 1, f"{payload!r} was acknowledged once and came {copies} times"
        elif outcome.verdict is Verdict.OUTCOME_UNKNOWN:
            assert copies <= 1, payload
        else:
            assert copies == 0, f"{payload!r} was {outcome.reason} and came all the same"


async def restart(mesh: DemoMesh, service: str) -> None:
    mesh.processes.spawn(service)
    await asyncio.to_thread(mesh.processes.wait_ready, service)


@pytest.mark.parametrize("victim", ["slow", "registry", "signer", "fast", "shield", "mailbox"])
async def test_a_service_that_is_killed_in_mid_traffic_costs_nothing_that_was_acknowledged(
    mesh: DemoMesh, victim: str
) -> None:
    others = {name: mesh.processes.pid(name) for name in SERVICES if name != victim}
    async with traffic(mesh, victim) as books:
        await books.grows(*LANES)
        # A producer may have had its key before Shield did, and these have but one attempt.
        before, once = books.refusals(*LANES), books.refused["once"]
        mesh.processes.kill(victim)
        try:
            if victim in ("slow", "registry", "signer"):
                # Commands that need none of them go on undisturbed.
                await books.grows(*WARM)
                assert [one for one in books.refusals(*WARM) if one not in before] == []
            else:
                await books.until(lambda: books.refused["once"] > once)
        finally:
            await restart(mesh, victim)
        await books.grows(*LANES)
    compare(books)
    assert {name: mesh.processes.pid(name) for name in SERVICES if name != victim} == others
    assert all(mesh.processes.ended(name) is None for name in SERVICES)
    if victim == "signer":
        # No command needs it.
        assert books.refusals(*LANES) == before


@pytest.mark.parametrize("victim", ["fast", "mailbox", "slow"] if FULL else ["fast"])
async def test_a_service_that_hangs_and_comes_back_costs_nothing_that_was_acknowledged(
    mesh: DemoMesh, victim: str
) -> None:
    lane = "once-sync" if victim == "slow" else "once"
    async with traffic(mesh, f"hung {victim}") as books:
        await books.grows(*LANES)
        os.kill(mesh.processes.pid(victim), signal.SIGSTOP)
        try:
            await books.until(lambda: books.refused[lane] >= SENDERS)
        finally:
            os.kill(mesh.processes.pid(victim), signal.SIGCONT)
        await books.grows(*LANES)
    compare(books)


async def test_shield_and_fast_killed_together_come_back_together(mesh: DemoMesh) -> None:
    async with traffic(mesh, "both") as books:
        await books.grows(*LANES)
        for victim in ("shield", "fast"):
            mesh.processes.kill(victim)
        await books.until(lambda: books.refused["once"] > 0)
        await asyncio.gather(restart(mesh, "shield"), restart(mesh, "fast"))
        await books.grows(*LANES)
    compare(books)
