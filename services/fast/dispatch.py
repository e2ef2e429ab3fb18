"""Plans a batch from memory and follows each part of it to its queue, or to Slow, until all is answered.

Never waits for one part before answering another, and never looks at a command by itself: the plan is native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.fast.bans import WarmBans
from services.fast.directory import CachedDirectory
from services.fast.grants import GrantKeeper
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.hop.ledger_part import AnswerOnce, LedgerPart, nothing_delivered
from snavio.host.background import background
from snavio.native import Dispatch, Plan
from snavio.ports.queue import TargetQueue
from snavio.telemetry.journal import Journal
from snavio.v1.batch_pb2 import Batch


class Dispatcher:
    """Plans and sends."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        directory: CachedDirectory,
        grants: GrantKeeper,
        bans: WarmBans,
        queues: Sequence[TargetQueue],
        slow: TargetQueue,
        journal: Journal,
        clock: Clock,
        budget_ms: int,
    ) -> None:
        self._dispatch = dispatch
        self._directory = directory
        self._grants = grants
        self._bans = bans
        self._queues = queues
        self._slow = slow
        self._journal = journal
        self._clock = clock
        self._budget_ms = budget_ms

    def take(self, batch: bytes, answer: Callable[[bytes, bool], None]) -> None:
        """Plan a serialised Batch; `answer(verdicts, final)` is called until final, at least once."""
        now = self._clock.mono_ns()
        try:
            plan = self._dispatch.plan(batch, now_mono_ns=now)
            ledger, opening = plan.ledger, plan.ledger.opening()
            sends, escalations = plan.freights, plan.escalations
            deadline = now + min(plan.budget_ms or self._budget_ms, self._budget_ms) * 1_000_000
        except Exception as error:
            background().failed("plan", error)
            answer(nothing_delivered(Batch.FromString(batch).header.batch_seq), True)
            return

        def settled(frame: bytes) -> None:
            done = ledger.done
            answer(frame, done)
            self._note(plan, done=done)

        broken = AnswerOnce(answer)
        if opening or ledger.done:
            settled(opening)
        for part, (queue, count, freight) in enumerate(sends):
            batch_part = LedgerPart(
                ledger,
                part,
                count=count,
                body=freight,
                deadline_mono_ns=deadline,
                answer=settled,
                broken=broken,
            )
            self._send(self._queues[queue], batch_part)
        for part, (source, count, body) in enumerate(escalations, start=len(sends)):
            escalation = LedgerPart(
                ledger,
                part,
                source=source,
                count=count,
                body=body,
                deadline_mono_ns=deadline,
                answer=settled,
                broken=broken,
            )
            self._send(self._slow, escalation)
        self._follow(plan)

    def _follow(self, plan: Plan) -> None:
        """Pass on a plan's questions to others; no answer depends on them."""
        try:
            if plan.stale_used:
                self._directory.refresh_soon()
            if plan.thirsty:
                self._grants.thirsty()
            if plan.warm_bans:
                self._bans.imposed(plan.warm_bans)
        except Exception as error:
            background().failed("plan", error)

    def _note(self, plan: Plan, *, done: bool) -> None:
        try:
            if done and plan.teaches:
                self._dispatch.learn(plan, now_mono_ns=self._clock.mono_ns())
            if self._journal.on:
                self._journal.append(plan.telemetry(self._clock.unix_ns()))
        except Exception as error:
            # What is known of an answer must not cost another its own.
            background().failed("books of dispatch", error)

    @staticmethod
    def _send(queue: TargetQueue, batch_part: LedgerPart) -> None:
        try:
            queue.put(batch_part)
        except Saturated as full:
            batch_part.refuse(Verdict.SATURATED, "The queue is full.", retry_after_ms=full.retry_after_ms)
        except Exception as error:
            background().failed("way to a queue", error)
            batch_part.lost(written=False, cause="Fast failed.")
