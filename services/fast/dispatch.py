"""Plans a batch from memory and follows each part of it to its queue, or to Slow, until all is answered.

Never waits for one part before answering another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.fast.directory import CachedDirectory
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.native import Dispatch
from snavio.ports.queue import TargetQueue
from snavio.telemetry.journal import Journal
from snavio.transport.consignment import LedgerConsignment


class Dispatcher:
    """Plans and sends."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        directory: CachedDirectory,
        queues: Sequence[TargetQueue],
        slow: TargetQueue,
        journal: Journal,
        clock: Clock,
        budget_ms: int,
    ) -> None:
        self._dispatch = dispatch
        self._directory = directory
        self._queues = queues
        self._slow = slow
        self._journal = journal
        self._clock = clock
        self._budget_ms = budget_ms

    def take(self, batch: bytes, answer: Callable[[bytes, bool], None]) -> None:
        """Plan a serialised Batch; `answer(verdicts, final)` is called until final, at least once."""
        now = self._clock.mono_ns()
        plan = self._dispatch.plan(batch, now_mono_ns=now)
        ledger = plan.ledger
        if plan.stale_used:
            self._directory.refresh_soon()

        def settled(frame: bytes) -> None:
            done = ledger.done
            answer(frame, done)
            if done:
                self._journal.append(
                    plan.telemetry(self._clock.unix_ns()), rows=ledger.count - plan.escalated
                )

        opening = ledger.opening()
        if opening or ledger.done:
            settled(opening)
        deadline = now + min(plan.budget_ms or self._budget_ms, self._budget_ms) * 1_000_000
        sends = plan.sends
        for part, (queue, count, body) in enumerate(sends):
            consignment = LedgerConsignment(
                ledger, part, count=count, body=body, deadline_mono_ns=deadline, answer=settled
            )
            self._send(self._queues[queue], consignment)
        if plan.escalated:
            escalation = LedgerConsignment(
                ledger,
                len(sends),
                count=plan.escalated,
                body=plan.escalations,
                deadline_mono_ns=deadline,
                answer=settled,
            )
            self._send(self._slow, escalation)

    @staticmethod
    def _send(queue: TargetQueue, consignment: LedgerConsignment) -> None:
        try:
            queue.put(consignment)
        except Saturated as full:
            consignment.refuse(Verdict.SATURATED, "The queue is full.", retry_after_ms=full.retry_after_ms)
