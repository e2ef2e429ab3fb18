"""`snavio demo`: a scripted tour of a mesh of its own; exits 0 only when everything went as it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.options import Json
from snavio.cli.output import count, line, micros
from snavio.cli.render import NUMBER, Block, Table, TableColumn, picked, show

if TYPE_CHECKING:
    from snavio.cli.invalid_commands import Refusal
    from snavio.launch.readings import LatencyReading
    from snavio.launch.temporary import TemporaryMesh

COMMANDS = 1000
KILL_BATCH = 100
BEFORE_KILL_S = 0.7
AFTER_KILL_S = 2.5


@dataclass(slots=True)
class Script:
    """The results of the demo, act by act."""

    delivered: int = 0
    acknowledged: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    times: dict[str, LatencyReading | None] = field(default_factory=dict)
    sent_under_fire: int = 0
    promised: int = 0
    unsure: int = 0
    found: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Everything as it should be."""
        whole = self.delivered == self.acknowledged == COMMANDS
        right = len(self.refusals) == 7 and all(one.answered is one.expected for one in self.refusals)
        return whole and right and self.promised > 0 and self.lost == 0


def demo(json: Json = False) -> None:
    """Show, in about twenty seconds, what a mesh does: deliver, refuse, and lose nothing.

    Starts a mesh of its own on free ports in a folder that goes away: sends 1,000 signed commands, receives and
    acknowledges them all, tries seven kinds of invalid commands, and kills the mailbox in mid-traffic.

    \b
    Examples:
      snavio demo
      snavio demo --json | jq .good
    """
    import snavio.native  # noqa: F401

    def say(sentence: str) -> None:
        if not json:
            line(sentence)

    script = asyncio.run(_play(say))
    show(_document(script), *_blocks(script), json=json)
    if not script.good:
        raise typer.Exit(ExitCode.REFUSED)


async def _play(say: Any) -> Script:
    from snavio.cli.demo_clients import drain
    from snavio.cli.invalid_commands import try_invalid_commands
    from snavio.clock import SystemClock
    from snavio.launch.demo_tenant import TARGET
    from snavio.launch.processes import SERVICES
    from snavio.launch.readings import Readings
    from snavio.launch.temporary import temporary_mesh

    script, clock, began = Script(), SystemClock(), time.monotonic()
    say("starting a mesh of its own ...")
    async with temporary_mesh(
        clock=clock, healthy=lambda _: None, say=lambda text: say(f"  {text}")
    ) as running:
        say(f"all {len(SERVICES)} services serve after {time.monotonic() - began:.1f} s")
        await _deliver(running, script)
        say(f"{count(script.delivered)} signed commands delivered, {count(script.acknowledged)} acknowledged")
        script.refusals = [refusal async for refusal in try_invalid_commands(running.mesh, clock=clock)]
        await drain(running.mesh, TARGET, whole=bool)  # the one that was captured for the replay
        reading = await Readings(running.probes, clock=clock).take()
        script.times = {
            "send to verdict": reading.times("shield", "admit_to_verdict"),
            "disk commit": reading.times("mailbox", "commit"),
        }
        say("killing the mailbox in mid-traffic (kill -9) ...")
        await _kill_under_fire(running, script)
    script.seconds = time.monotonic() - began
    return script


async def _deliver(running: TemporaryMesh, script: Script) -> None:
    """Act one: a thousand single sends at once, all received and acknowledged."""
    from snavio.cli.demo_clients import drain, producer
    from snavio.launch.demo_tenant import NAME, TARGET

    async with producer(running.mesh) as sender:
        outcomes = await asyncio.gather(
            *(sender.send(TARGET, NAME, b"command %d" % number) for number in range(COMMANDS))
        )
    script.delivered = sum(outcome.delivered for outcome in outcomes)
    received = await drain(running.mesh, TARGET, whole=lambda ids: len(ids) >= script.delivered)
    script.acknowledged = len(received)


async def _kill_under_fire(running: TemporaryMesh, script: Script) -> None:
    """Act three: what was acknowledged to the producer is there after the mailbox was killed."""
    from snavio.cli.demo_clients import drain, producer
    from snavio.launch.demo_tenant import NAME, TARGET

    promised: set[str] = set()
    end = asyncio.get_running_loop().time() + BEFORE_KILL_S + AFTER_KILL_S

    async def fire() -> None:
        async with producer(running.mesh) as sender:
            while asyncio.get_running_loop().time() < end:
                outcomes = await sender.send_batch([(TARGET, NAME, b"under fire")] * KILL_BATCH)
                script.sent_under_fire += len(outcomes)
                promised.update(outcome.command_id for outcome in outcomes if outcome.delivered)

    async with asyncio.TaskGroup() as group:
        firing = group.create_task(fire())
        await asyncio.sleep(BEFORE_KILL_S)
        running.processes.crash("mailbox")
        await firing
    script.promised = len(promised)
    script.unsure = script.sent_under_fire - script.promised
    found = await drain(running.mesh, TARGET, whole=lambda ids: promised <= ids)
    script.found = len(promised & found)
    script.lost = len(promised - found)


def _blocks(script: Script) -> Iterator[Block]:
    rows = [
        ("1,000 signed commands", "delivered", script.delivered, script.delivered == COMMANDS),
        ("received", "acknowledged", script.acknowledged, script.acknowledged == COMMANDS),
        *((one.attempt, one.answered.reason, 1, one.answered is one.expected) for one in script.refusals),
        ("sent while the mailbox was killed", "delivered", script.promised, script.promised > 0),
        ("  without an answer in time, or refused", "not promised", script.unsure, True),
        ("  delivered, and found afterwards", "kept", script.found, script.lost == 0),
        ("  delivered, and lost", "lost", script.lost, script.lost == 0),
    ]
    titles = ("attempt", "answer", "count", "good")
    result = TableColumn("result", lambda row: "✓" if row["good"] else "NOT AS EXPECTED")
    yield Table(
        ("attempt", "answer", TableColumn("count", kind=NUMBER), result),
        [dict(zip(titles, row, strict=True)) for row in rows],
        style=lambda row: "" if row["good"] else "red",
    )
    for name, times in script.times.items():
        if times is not None:
            p50, p95, p99 = micros(times.p50_us), micros(times.p95_us), micros(times.p99_us)
            yield f"{name}: p50 {p50}, p95 {p95}, p99 {p99}"
    verdict = "Everything as it should be" if script.good else "Something is not as it should be"
    yield f"{verdict}, after {script.seconds:.1f} s."


def _document(script: Script) -> dict[str, Any]:
    return {
        **picked(script, "good", "delivered", "acknowledged", "times"),
        "seconds": round(script.seconds, 3),
        "refusals": [
            {"attempt": one.attempt, "reason": one.answered.reason, "expected": one.expected.reason}
            for one in script.refusals
        ],
        "killed": {
            "sent": script.sent_under_fire,
            "promised": script.promised,
            "found": script.found,
            "lost": script.lost,
        },
    }
