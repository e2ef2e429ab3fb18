"""Decides escalated commands with authority, in rounds that take a fair share from every source that waits.

A round asks Registry once and the coordination store once for all of its lanes, whatever batches they came in. Never
allows a command because Registry or the store could not be asked: it is refused with a retry hint. Every wait ends
within the budget of the batch that waits.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from services.slow.arbitration_job import ArbitrationJob, Lane
from services.slow.deficit_round_robin import DeficitRoundRobin
from services.slow.lane_rules import LaneRules, is_strict, rule_of, source_rule_of
from services.slow.limits import TOO_LATE, LimitEnforcer
from services.slow.strict import RECOGNISING, Strict, needs_claim, place_of
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.forward import send_parts
from snavio.hop.ledger_part import nothing_delivered
from snavio.host.background import background
from snavio.native import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS, Arbitration
from snavio.observe.tracer import Tracer
from snavio.ports.queue import TargetQueue
from snavio.telemetry.journal import Journal
from snavio.v1.registry_pb2 import Resolution
from snavio.v1.slow_pb2 import ESCALATION_REASON_WARM_BANNED, ArbitrationBatch

RETRY_AFTER_MS = 500
UNLIMITED, ARBITRATED, SHADOW = 1, 3, 4
LATE = "The budget ran out while the command waited for Slow."


@dataclass(frozen=True, slots=True)
class Rounds:
    """Sizes of rounds and bounds of what waits for them."""

    at_once: int
    commands: int
    quantum: int
    max_waiting: int
    max_waiting_per_source: int


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """The lanes of one source in one job, the banned apart from the others; it waits for a round as a whole."""

    job: ArbitrationJob
    lanes: tuple[Lane, ...]


class Arbiter:
    """Decides and sends."""

    def __init__(
        self,
        *,
        lane_rules: LaneRules,
        limits: LimitEnforcer,
        strict: Strict,
        queues: Sequence[TargetQueue],
        journal: Journal,
        clock: Clock,
        budget_ms: int,
        rounds: Rounds,
        tracer: Tracer | None = None,
    ) -> None:
        self._lane_rules = lane_rules
        self._limits = limits
        self._strict = strict
        self._queues = queues
        self._journal = journal
        self._tracer = tracer
        self._clock = clock
        self._budget_ms = budget_ms
        self._rounds = rounds
        self._waiting: DeficitRoundRobin[SourceSlice] = DeficitRoundRobin(
            quantum=rounds.quantum,
            max_cost=rounds.max_waiting,
            max_queue_cost=rounds.max_waiting_per_source,
        )
        self._numbers = itertools.count(1)
        self._workers: list[asyncio.Task[None]] = []
        self._settling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to decide."""
        self._limits.start()
        self._workers = [
            background().keep("arbitration worker", self._work) for _ in range(self._rounds.at_once)
        ]

    async def stop(self) -> None:
        """Finish recording what was answered, and end. Waiting commands are not decided any more."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await asyncio.gather(*self._settling, return_exceptions=True)
        await self._limits.stop()

    def gauges(self) -> dict[str, float]:
        """Commands that wait, and the queues that they wait in."""
        return {"commands": self._waiting.cost, "queues": self._waiting.queues}

    def waiting_of(self, source: str) -> int:
        """Commands of a source that wait, banned ones included."""
        return self._waiting.cost_of(source) + self._waiting.cost_of(f"{source} banned")

    async def decide(self, frame: bytes, answer: Callable[[bytes, bool], None]) -> None:
        """Decide a serialised ArbitrationBatch; `answer(verdicts, final)` is called until final, at least once."""
        try:
            job, opening = self._open(frame, answer)
            done = job.native.ledger.done
        except Exception as error:
            background().failed("arbitration", error)
            answer(nothing_delivered(ArbitrationBatch, frame), True)
            return
        job.answers.open(opening)
        if done:
            return
        self._enqueue(job)
        await job.ruled.wait()

    def _open(self, frame: bytes, answer: Callable[[bytes, bool], None]) -> tuple[ArbitrationJob, bytes]:
        now = self._clock.mono_ns()
        native = Arbitration.open(frame, MESH_BATCH_BYTES, MESH_BATCH_COMMANDS)
        budget_ms = min(native.budget_ms or self._budget_ms, self._budget_ms)
        job = ArbitrationJob(
            native,
            number=next(self._numbers),
            opened_mono_ns=now,
            deadline_mono_ns=now + budget_ms * 1_000_000,
            answer=answer,
            closed=self._closed,
        )
        job.lanes = [
            Lane(job, number, key.source, key.target, key.name, key.reason, count=count)
            for number, (key, count) in enumerate(zip(native.keys(), native.undecided(), strict=True))
        ]
        return job, native.ledger.opening()

    def _enqueue(self, job: ArbitrationJob) -> None:
        by_queue: dict[tuple[str, bool], list[Lane]] = {}
        for lane in job.lanes:
            banned = lane.reason == ESCALATION_REASON_WARM_BANNED
            by_queue.setdefault((lane.source, banned), []).append(lane)
        job.unruled = len(by_queue)
        for (source, banned), lanes in by_queue.items():
            source_slice = SourceSlice(job, tuple(lanes))
            # A banned flood waits apart from what its source sends elsewhere, and is held back.
            name, cost = f"{source} banned" if banned else source, sum(lane.count for lane in lanes)
            try:
                self._waiting.put(name, source_slice, cost=cost, held=banned)
            except Saturated as full:
                for lane in lanes:
                    lane.refuse(Verdict.SATURATED, full.retry_after_ms, str(full))
                self._ruled(source_slice)

    async def _work(self) -> None:
        """Decide round after round, for as long as Slow runs."""
        while True:
            taken = await self._waiting.take(self._rounds.commands)
            lanes = [lane for source_slice in taken.items for lane in source_slice.lanes]
            try:
                await self._round(lanes)
            except Exception as error:
                # One round must not end the others.
                background().failed("arbitration round", error)
                self._fail(lanes)
            finally:
                for source_slice in taken.items:
                    self._ruled(source_slice)
                self._waiting.finish(taken)

    def _fail(self, lanes: Sequence[Lane]) -> None:
        """Refuse those that were not sent: they were definitely not delivered."""
        for lane in lanes:
            if not lane.sent:
                lane.refuse(Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Slow failed.")
                self._limits.give_up(lane)

    async def _round(self, lanes: list[Lane]) -> None:
        lanes = self._in_time(lanes)
        if not lanes:
            return
        lanes = await self._lane_rules.rule(lanes, timeout_ms=self._left_ms(lanes))
        lanes = [lane for lane in lanes if self._has_queue(lane)]
        self._strict.known(lanes)
        _recount(lanes)
        lanes = await self._strict.claim(
            [lane for lane in lanes if lane.count], timeout_ms=self._left_ms(lanes)
        )
        claimed = [lane for lane in lanes if lane.claims]
        lanes = await self._limits.debit(lanes, timeout_ms=self._left_ms(lanes))
        # At once: what is waited for here would take permits into the next interval.
        self._send(self._in_time(lanes))
        await self._strict.abandon(claimed)

    def _in_time(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Without those whose time, or whose permits' time, is over; what is left of their permits goes back."""
        now = self._clock.mono_ns()
        left = []
        for lane in lanes:
            ends = lane.permits_end_mono_ns
            if lane.job.deadline_mono_ns > now and (ends is None or ends > now):
                left.append(lane)
            else:
                self._limits.give_up(lane)
                late = lane.job.deadline_mono_ns <= now
                lane.refuse(Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, LATE if late else TOO_LATE)
        return left

    def _left_ms(self, lanes: Sequence[Lane]) -> int:
        """The longest time that any of them may wait; those with less are refused afterwards."""
        latest = max((lane.job.deadline_mono_ns for lane in lanes), default=0)
        return max(1, (latest - self._clock.mono_ns()) // 1_000_000)

    def _has_queue(self, lane: Lane) -> bool:
        if place_of(lane) < len(self._queues):
            return True
        lane.refuse(Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Slow does not know this kind of queue.")
        return False

    def _send(self, lanes: Sequence[Lane]) -> None:
        by_job: dict[int, list[Lane]] = {}
        for lane in lanes:
            if needs_claim(lane):
                # Apart from the others: its answers wait until the claims are settled.
                self._dispatch_apart(lane.job, [lane], partial(self._settle_claims, lane))
            else:
                by_job.setdefault(lane.job.number, []).append(lane)
        for together in by_job.values():
            self._dispatch_apart(together[0].job, together, together[0].job.answers.settled)

    def _dispatch_apart(
        self, job: ArbitrationJob, lanes: Sequence[Lane], answer: Callable[[bytes], None]
    ) -> None:
        try:
            self._dispatch(job, lanes, answer)
        except Exception as error:
            background().failed("arbitration round", error)
            self._fail(lanes)

    def _dispatch(self, job: ArbitrationJob, lanes: Sequence[Lane], answer: Callable[[bytes], None]) -> None:
        approved = []
        grants = bytearray()
        versions = []
        for lane in lanes:
            assert lane.resolution is not None
            place = place_of(lane)
            # For how long is told to the queue: a window of its own that is shorter would let a duplicate through.
            once_ms = self._strict.keep_ms if is_strict(lane.resolution) and place in RECOGNISING else 0
            approved.append((lane.key, place, lane.resolution.route.topic, once_ms))
            grants.append(_grant(lane.resolution))
            versions.append(lane.resolution.acl_version)
        sends = job.native.dispatch(approved, bytes(grants), versions)
        for lane in lanes:
            lane.sent = True
        first = job.parts
        job.parts += len(sends)
        send_parts(
            job.native.ledger,
            [(self._queues[send.queue], send.count, send.body, "") for send in sends],
            "Slow",
            job.deadline_mono_ns,
            answer=answer,
            broken=job.answers.break_off,
            first_part=first,
        )

    def _settle_claims(self, lane: Lane, frame: bytes) -> None:
        try:
            task = self._strict.answering(lane, frame)
        except Exception as error:
            # Its claims stay until their lease is over, which is safe; the answer does not wait for that.
            background().failed("claims", error)
            lane.job.answers.settled(frame)
            return
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _ruled(self, source_slice: SourceSlice) -> None:
        source_slice.job.unruled -= 1
        if source_slice.job.unruled <= 0:
            source_slice.job.ruled.set()

    def _closed(self, job: ArbitrationJob) -> None:
        """Keep the books of a job whose last answer went out."""
        for lane in job.lanes:
            self._limits.settled(lane)
        self._strict.settled(job)
        if self._tracer is not None and (sampled := job.native.sampled()):
            codes = job.native.ledger.codes
            self._tracer.batch(sampled, began_mono_ns=job.opened_mono_ns, codes=codes, parent="fast")
        if self._journal.on:
            self._journal.append(job.native.telemetry(self._clock.unix_ns()))


def _grant(resolution: Resolution) -> int:
    """The permit that its commands go by, as telemetry names it."""
    rules = [rule_of(resolution.route), source_rule_of(resolution)]
    limits = [rule for rule in rules if rule is not None]
    if not limits:
        return UNLIMITED
    return SHADOW if all(rule.shadow for rule in limits) else ARBITRATED


def _recount(lanes: Sequence[Lane]) -> None:
    """Count the undecided commands of each anew, after some were answered from memory."""
    counts: dict[int, list[int]] = {}
    for lane in lanes:
        if lane.job.number not in counts:
            counts[lane.job.number] = lane.job.native.undecided()
        lane.count = counts[lane.job.number][lane.key]
