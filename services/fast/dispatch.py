"""Plans a batch from memory and forwards each part of it to its queue, or to Slow, until all is answered.

Never waits for one part before answering another, and never handles a single command: the plan is native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from services.fast.bans import WarmBans
from services.fast.directory import CachedDirectory
from services.fast.grants import GrantKeeper
from snavio.clock import Clock
from snavio.hop.forward import BatchAnswers, OutgoingPart, forward
from snavio.hop.ledger_part import nothing_delivered
from snavio.host.background import background
from snavio.native import Dispatch, Plan
from snavio.observe.tracer import Tracer
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
        tracer: Tracer | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._directory = directory
        self._grants = grants
        self._bans = bans
        self._queues = queues
        self._slow = slow
        self._journal = journal
        self._tracer = tracer
        self._clock = clock
        self._budget_ms = budget_ms

    def take(self, batch: bytes, answer: Callable[[bytes, bool], None]) -> None:
        """Plan a serialised Batch; `answer(verdicts, final)` is called until final, at least once."""
        now = self._clock.mono_ns()
        try:
            plan = self._dispatch.plan(batch, now_mono_ns=now)
            ledger, opening = plan.ledger, plan.ledger.opening()
            parts: list[OutgoingPart] = [
                (self._queues[send.queue], send.count, send.body, "") for send in plan.sends
            ]
            if plan.escalated:
                parts += [(self._slow, each.count, each.body, each.source) for each in plan.escalations]
            budget_ms = min(plan.budget_ms or self._budget_ms, self._budget_ms)
        except Exception as error:
            background().failed("plan", error)
            answer(nothing_delivered(Batch, batch), True)
            return
        forward(
            BatchAnswers(
                ledger, answer, answered=partial(self._record, plan, now), books="books of dispatch"
            ),
            opening,
            parts,
            service="Fast",
            deadline_mono_ns=now + budget_ms * 1_000_000,
            recorded=partial(self._follow_up, plan),
        )

    def _follow_up(self, plan: Plan) -> None:
        """Start what a plan asks of others; no answer depends on it."""
        if plan.stale_used:
            self._directory.nudge()
        if plan.thirsty:
            self._grants.thirsty()
        if plan.warm_bans:
            self._bans.imposed(plan.warm_bans)

    def _record(self, plan: Plan, began_mono_ns: int, final: bool) -> None:
        if final and self._tracer is not None and (sampled := plan.sampled()):
            self._tracer.batch(sampled, began_mono_ns=began_mono_ns, codes=plan.ledger.codes, parent="shield")
        if final and plan.teaches:
            self._dispatch.learn(plan, now_mono_ns=self._clock.mono_ns())
        if self._journal.on:
            self._journal.append(plan.telemetry(self._clock.unix_ns()))
