"""A journal uploader under load: one page a second however many blocks come, none later, and at once when a page is
full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import pytest

from snavio.clock import ManualClock
from snavio.rpc.channel import MeshChannel
from snavio.telemetry.journal import Journal
from snavio.telemetry.journal_uploader import FLUSH_SECONDS, PAGE_BYTES, PAGES_IN_FLIGHT, JournalUploader
from snavio.v1.relay_pb2 import JournalPage, JournalReceipt
from tests.support.telemetry import block

# Enough for everything that one step makes possible to happen.
TURNS = 20


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is moved by hand."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    async def move(self, seconds: float) -> None:
        self.now_s += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)


@dataclass
class Line:
    """The connection to a Relay that records the time of each page; a page is durable as soon as `answers` says so."""

    loop: MovedLoop
    pages: list[tuple[float, JournalPage]] = field(default_factory=list)
    answers: bool = True
    _receipts: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    _durable_seq: int = 0

    # As a channel.

    def generation(self) -> int:
        return 1

    def stream(self, _method: str) -> Line:
        return self

    # As a stream.

    async def write(self, message: bytes) -> None:
        page = JournalPage.FromString(message)
        opening = not page.block
        if not opening:
            self.pages.append((self.loop.time(), page))
            self._durable_seq = page.first_seq + sum(len(each.verdict) for each in page.block) - 1
        if opening or self.answers:
            self.receive()

    async def read(self) -> bytes:
        return await self._receipts.get()

    def cancel(self) -> None:
        pass

    def receive(self) -> None:
        """Acknowledge everything as durable."""
        receipt = JournalReceipt(epoch=7, durable_seq=self._durable_seq)
        self._receipts.put_nowait(receipt.SerializeToString())


@dataclass
class Scene:
    """A journal with its uploader."""

    loop: MovedLoop
    line: Line
    journal: Journal


def on_a_moved_clock(act: Callable[[Scene], Awaitable[None]]) -> None:
    """Run `act` on an uploader that has just connected."""

    async def play() -> None:
        loop = cast(MovedLoop, asyncio.get_running_loop())
        line, journal = Line(loop), Journal(service="fast")
        uploader = JournalUploader(
            journal, relay=cast(MeshChannel, line), instance="fast-0", epoch=7, clock=ManualClock()
        )
        uploader.start()
        await loop.move(0)
        assert uploader.connected.is_set()
        await act(Scene(loop, line, journal))
        await uploader.stop()
        assert uploader.counters() == {"pages": len(line.pages), "reconnects": 0}

    with asyncio.Runner(loop_factory=MovedLoop) as runner:
        runner.run(play())


def rows(count: int) -> bytes:
    written: bytes = block([1] * count).SerializeToString()
    return written


@pytest.mark.parametrize("blocks_per_second", [1, 10, 100])
def test_however_many_blocks_come_one_page_goes_in_a_second(blocks_per_second: int) -> None:
    seconds, appended = 10, list[float]()

    async def load(scene: Scene) -> None:
        for _ in range(seconds * blocks_per_second):
            scene.journal.append(rows(3))
            appended.append(scene.loop.time())
            await scene.loop.move(1 / blocks_per_second)
        assert len(scene.line.pages) == pytest.approx(seconds, abs=1)
        times = [at for at, _ in scene.line.pages]
        assert all(later - sooner >= FLUSH_SECONDS - 1e-6 for sooner, later in pairwise(times))
        # And nothing waits for longer than that, but for the step in which the clock is moved.
        for at, page in scene.line.pages:
            oldest = appended[(page.first_seq - 1) // 3]
            assert at - oldest <= FLUSH_SECONDS + 1 / blocks_per_second + 1e-6

    on_a_moved_clock(load)


def test_without_events_there_are_no_pages() -> None:
    async def idle(scene: Scene) -> None:
        for _ in range(10):
            await scene.loop.move(FLUSH_SECONDS)
        assert scene.line.pages == []

    on_a_moved_clock(idle)


def test_what_fills_a_page_goes_at_once_and_the_rest_when_its_second_ends() -> None:
    async def burst(scene: Scene) -> None:
        full, size = rows(1000), len(rows(1000))
        for _ in range(3 * PAGE_BYTES // size):
            scene.journal.append(full)
        await scene.loop.move(0)
        sizes = [page.ByteSize() for _, page in scene.line.pages]
        assert all(PAGE_BYTES - size <= each <= PAGE_BYTES + size for each in sizes)
        assert scene.journal.ready_bytes < PAGE_BYTES
        sent = len(sizes)
        await scene.loop.move(FLUSH_SECONDS / 2)
        assert len(scene.line.pages) == sent
        await scene.loop.move(FLUSH_SECONDS / 2)
        assert scene.journal.ready_bytes == 0

    on_a_moved_clock(burst)


def test_pages_that_relay_does_not_answer_hold_back_the_next() -> None:
    async def silence(scene: Scene) -> None:
        scene.line.answers = False
        for _ in range(3 * PAGES_IN_FLIGHT):
            scene.journal.append(rows(1))
            await scene.loop.move(FLUSH_SECONDS)
        assert len(scene.line.pages) == PAGES_IN_FLIGHT
        scene.line.answers = True
        scene.line.receive()
        await scene.loop.move(0)
        # All that waited goes as one.
        assert len(scene.line.pages) == PAGES_IN_FLIGHT + 1
        assert scene.journal.ready_bytes == 0

    on_a_moved_clock(silence)
