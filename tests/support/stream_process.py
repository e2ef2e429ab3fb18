"""A process that stores, cuts and seals pages, and kills itself at a chosen step: `<folder> <step, 0 for none>`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

from services.relay.cutting import Cutting
from services.relay.sealing import Sealing
from snavio.clock import ManualClock
from snavio.ports.outbox import JournalLife, NewPage
from snavio.v1.relay_pb2 import JournalPage
from snavio.wiring import open_outbox, open_tenant_streams
from tests.support.sealing import TenantSigner
from tests.support.telemetry import NOW, block

TENANT = "acme"
PAGES, EVENTS = 4, 3
ROUNDS = 3


class Steps:
    """Counts the steps of every object that it stands before, one before and one after each call."""

    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self.taken = 0

    def before(self, inner: Any) -> Any:
        steps = self

        class Counted:
            def __getattr__(self, name: str) -> Any:
                method = getattr(inner, name)

                async def stepped(*args: Any, **named: Any) -> Any:
                    steps.step()
                    result = await method(*args, **named)
                    steps.step()
                    return result

                return stepped

        return Counted()

    def step(self) -> None:
        self.taken += 1
        if self.taken == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def signer() -> TenantSigner:
    """The same keys in every process."""
    signing = TenantSigner(ManualClock(NOW))
    signing.make(TENANT)
    return signing


def numbered(first: int) -> bytes:
    """A page whose commands are numbered."""
    rows = block([1] * EVENTS)
    rows.command_id = b"".join(uuid.UUID(int=first + row).bytes for row in range(EVENTS))
    return JournalPage(block=[rows]).SerializeToString()


async def run(folder: Path, kill_at: int) -> int:
    clock, steps = ManualClock(NOW), Steps(kill_at)
    outbox = await open_outbox(folder / "outbox.db", max_bytes=1 << 30)
    streams = await open_tenant_streams(folder / "streams.db", clock=clock)
    watched_outbox, watched_streams = steps.before(outbox), steps.before(streams)
    sealing = Sealing(
        streams=watched_streams,
        signing=steps.before(signer()),
        knows=lambda _tenant: True,
        clock=clock,
        fence=NOW,
    )
    cutting = Cutting(
        outbox=watched_outbox,
        streams=watched_streams,
        owner=lambda _target: "",
        clock=clock,
        told_per_s=10_000,
    )
    await cutting.load()
    for _ in range(ROUNDS):
        lives = await outbox.lives()
        last = lives[0].durable_seq if lives else 0
        for _ in range(PAGES):
            first, last = last + 1, last + EVENTS
            new = NewPage("fast-0", 7, first, last, NOW, numbered(first))
            await watched_outbox.store([new], [JournalLife("fast-0", 7, "fast", last)])
        # The other reader of the outbox, sometimes before the cut and sometimes after it.
        pages = [page.page_id for page in await outbox.pages()]
        export = await outbox.plan(NOW, "f", pages[::2])
        await cutting.cut_once()
        await outbox.finish(export.number, newest_unix_ns=NOW, pages=[], lives=[])
        await sealing.seal()
    await outbox.close()
    await streams.close()
    return steps.taken


if __name__ == "__main__":
    print(asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]))))
