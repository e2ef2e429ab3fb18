"""An Arbiter without a wire: a directory and queues that a test scripts, over a coordination store of its choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from services.slow.arbitration import Arbiter, Rounds
from services.slow.dominance import Dominance
from services.slow.lane_rules import Key, LaneRules, Refused
from services.slow.limits import LimitEnforcer
from services.slow.strict import Strict
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.host.shares import ShareLimit, Shares
from snavio.native import read_verdicts
from snavio.ports.coordination import Coordination
from snavio.ports.queue import BatchPart, TargetQueue
from snavio.telemetry.journal import Journal
from snavio.v1 import registry_pb2 as reg
from snavio.v1.batch_pb2 import Verdicts
from snavio.v1.mailbox_pb2 import SendBatch
from tests.support.frames import RunOf, escalated
from tests.support.wire import Answer

STRICT = 4
REDIS, MAILBOX = reg.QUEUE_KIND_REDIS, reg.QUEUE_KIND_MAILBOX


@dataclass
class ScriptedQueue:
    """A target queue that answers every command with `verdict`, or keeps it while `verdict` is None."""

    verdict: Verdict | None = Verdict.DELIVERED
    held: list[BatchPart] = field(default_factory=list)
    bodies: list[SendBatch] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def delivered(self) -> int:
        return sum(len(run.command) for body in self.bodies for topic in body.topic for run in topic.run)

    def put(self, batch_part: BatchPart) -> None:
        self.bodies.append(SendBatch.FromString(batch_part.body))
        if self.verdict is None:
            self.held.append(batch_part)
        else:
            asyncio.get_running_loop().call_soon(answer, batch_part, self.verdict)

    async def room(self, _holder: str = "", _size: int = 0) -> None:
        return


def answer(batch_part: BatchPart, verdict: Verdict) -> None:
    """The queue's answer to all of it."""
    codes = bytes([verdict]) * batch_part.count
    batch_part.settle(0, read_verdicts(Verdicts(codes=codes, final=True).SerializeToString()))


@dataclass
class Directory(LaneRules):
    """The same answer for every key."""

    route: dict[str, Any] = field(default_factory=dict)
    source_quota: reg.SourceQuota | None = None

    def __post_init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()

    async def resolve(self, keys: Sequence[Key], *, timeout_ms: int) -> dict[Key, reg.Resolution | Refused]:
        self.asked += 1
        await self.open.wait()
        fields: dict[str, Any] = {"topic": "acme/bot", "dedupe_mode": reg.DEDUPE_MODE_STRICT, **self.route}
        return {
            key: reg.Resolution(
                route=reg.Route(target=key[1], name=key[2], **fields),
                allowed=True,
                source_quota=self.source_quota,
            )
            for key in keys
        }


@dataclass
class ArbiterStage:
    """A running Arbiter."""

    arbiter: Arbiter
    strict: Strict
    limits: LimitEnforcer
    mailbox: ScriptedQueue
    redis: ScriptedQueue
    directory: Directory
    clock: Clock
    seq: int = 0

    def send(self, *runs: RunOf, reason: int = STRICT) -> asyncio.Task[Answer]:
        """Escalate commands; the task ends with the last answer."""
        self.seq += 1
        return asyncio.create_task(self._decide(escalated((reason, runs), batch_seq=self.seq)))

    async def ask(
        self, *commands: bytes, source: str = "acme/billing", reason: int = STRICT
    ) -> list[Verdict]:
        """The verdicts."""
        async with asyncio.timeout(20):
            return (await self.send(RunOf(commands, source=source), reason=reason)).codes

    async def _decide(self, frame: bytes) -> Answer:
        told, done = Answer(), asyncio.Event()

        def take(verdicts: bytes, final: bool) -> None:
            told.take(Verdicts.FromString(verdicts))
            if final:
                done.set()

        await self.arbiter.decide(frame, take)
        await done.wait()
        return told


@asynccontextmanager
async def arbiter_stage(
    store: Coordination,
    clock: Clock,
    *,
    instance: str = "slow-0",
    remembered: int = 0,
    real: TargetQueue | None = None,
    timeout_ms: int = 5000,
    **route: Any,
) -> AsyncIterator[ArbiterStage]:
    """An Arbiter whose routes are strict and go to Redis unless told otherwise; ends without settling anything.
    `real` takes the place of every queue but the mailbox."""
    limits = LimitEnforcer(store=store, dominance=Dominance(clock=clock), clock=clock, timeout_ms=timeout_ms)
    strict = Strict(
        store=store,
        clock=clock,
        instance=instance,
        epoch=1,
        keep_ms=300_000,
        remembered=remembered,
        timeout_ms=timeout_ms,
    )
    mailbox, redis = ScriptedQueue(), ScriptedQueue()
    directory = Directory(route={"queue_kind": REDIS, **route})
    arbiter = Arbiter(
        lane_rules=directory,
        limits=limits,
        strict=strict,
        queues=[mailbox, real or redis, real or redis],
        journal=Journal(),
        clock=clock,
        budget_ms=5000,
        rounds=Rounds(
            at_once=4,
            commands=1000,
            quantum=100,
            waiting=Shares("waiting_commands", ShareLimit(64_000, 16_000)),
            max_waiting_per_source=8000,
        ),
    )
    arbiter.start()
    try:
        yield ArbiterStage(arbiter, strict, limits, mailbox, redis, directory, clock)
    finally:
        await arbiter.stop()
