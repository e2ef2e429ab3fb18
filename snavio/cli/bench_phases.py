"""The measurements of `snavio bench`: single sends, batches, latency and receiving, against a target of its own.

Never leaves anything in a queue: what it sends it receives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from snavio.cli.demo_clients import RECEIVE_SECONDS, drain
from snavio.cli.demo_clients import producer as producer_of
from snavio.config import MeshSettings
from snavio.errors import Unavailable
from snavio.sdk import Producer

TARGET: Final = "bench"
NAME: Final = "measure"
PAYLOAD: Final = bytes(200)
LANES: Final = 256
BATCH: Final = 1000
BATCHES_AT_ONCE: Final = 8
ALONE: Final = 300
PHASE_S: Final = 2.5
QUIET_SECONDS: Final = 2.0
"""Without a further message, a queue is taken for empty."""

Progress = Callable[[str, float], None]
"""Which phase, and how much of it is done, from 0 to 1."""


@dataclass(slots=True)
class Figures:
    """The measured figures; times in microseconds."""

    single_sends_per_s: float = 0.0
    batch_commands_per_s: float = 0.0
    received_per_s: float = 0.0
    alone_p50_us: int = 0
    alone_p99_us: int = 0
    refused: int = 0
    sent: int = field(default=0, repr=False)


async def measure(mesh: MeshSettings, *, progress: Progress) -> Figures:
    """Run every phase against a running mesh where the target is registered."""
    figures = Figures()
    try:
        async with producer_of(mesh) as producer:
            await _warm(producer, figures)
            await _alone(producer, figures, progress)
            await _singles(producer, figures, progress)
            await _receive(mesh, figures, lambda _phase, _share: None)
            await _batches(producer, figures, progress)
        figures.received_per_s = await _receive(mesh, figures, progress)
    except asyncio.CancelledError:
        # Ctrl-C: a mesh that is in use keeps none of it.
        await drain(mesh, TARGET, whole=lambda _received: False, quiet_s=QUIET_SECONDS)
        raise
    return figures


async def _warm(producer: Producer, figures: Figures) -> None:
    outcomes = await asyncio.gather(*(producer.send(TARGET, NAME, PAYLOAD) for _ in range(LANES)))
    _count(figures, outcomes_delivered=sum(outcome.delivered for outcome in outcomes), sent=len(outcomes))


async def _alone(producer: Producer, figures: Figures, progress: Progress) -> None:
    """One at a time: what a lone `send` waits."""
    took: list[int] = []
    for number in range(ALONE):
        began = time.perf_counter_ns()
        outcome = await producer.send(TARGET, NAME, PAYLOAD)
        took.append((time.perf_counter_ns() - began) // 1000)
        _count(figures, outcomes_delivered=int(outcome.delivered), sent=1)
        progress("one send at a time", (number + 1) / ALONE)
    took.sort()
    figures.alone_p50_us = took[len(took) // 2]
    figures.alone_p99_us = took[len(took) * 99 // 100]


async def _singles(producer: Producer, figures: Figures, progress: Progress) -> None:
    began = time.perf_counter()
    delivered = 0

    async def lane() -> None:
        nonlocal delivered
        while (elapsed := time.perf_counter() - began) < PHASE_S:
            outcome = await producer.send(TARGET, NAME, PAYLOAD)
            delivered += outcome.delivered
            _count(figures, outcomes_delivered=int(outcome.delivered), sent=1)
            progress(f"{LANES} senders at once", elapsed / PHASE_S)

    await asyncio.gather(*(lane() for _ in range(LANES)))
    figures.single_sends_per_s = delivered / (time.perf_counter() - began)


async def _batches(producer: Producer, figures: Figures, progress: Progress) -> None:
    began = time.perf_counter()
    delivered = 0
    commands = [(TARGET, NAME, PAYLOAD)] * BATCH

    async def lane() -> None:
        nonlocal delivered
        while (elapsed := time.perf_counter() - began) < PHASE_S:
            outcomes = await producer.send_batch(commands)
            good = sum(outcome.delivered for outcome in outcomes)
            delivered += good
            _count(figures, outcomes_delivered=good, sent=len(commands))
            progress("batches of 1,000", elapsed / PHASE_S)

    await asyncio.gather(*(lane() for _ in range(BATCHES_AT_ONCE)))
    figures.batch_commands_per_s = delivered / (time.perf_counter() - began)


async def _receive(mesh: MeshSettings, counted: Figures, progress: Progress) -> float:
    """Receive and acknowledge all that was delivered so far; how many per second."""
    wanted, began = counted.sent, time.perf_counter()

    def whole(received: set[str]) -> bool:
        progress("receiving and acknowledging", len(received) / max(1, wanted))
        return len(received) >= wanted

    received = len(await drain(mesh, TARGET, whole=whole))
    if received < wanted:
        raise Unavailable(f"Only {received} of {wanted} commands came back within {RECEIVE_SECONDS:.0f} s.")
    counted.sent -= received
    return received / (time.perf_counter() - began)


def _count(figures: Figures, *, outcomes_delivered: int, sent: int) -> None:
    figures.sent += outcomes_delivered
    figures.refused += sent - outcomes_delivered
