"""Decides each escalated command by reading route and ACL from Registry at that moment.

Never allows anything because Registry could not be asked: such commands are refused with a retry hint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, SnavioError
from snavio.native import Arbitration
from snavio.ports.queue import TargetQueue
from snavio.telemetry.journal import Journal
from snavio.transport.channel import MeshChannel
from snavio.transport.consignment import LedgerConsignment
from snavio.transport.stream import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS
from snavio.v1.registry_pb2 import (
    DEDUPE_MODE_STRICT,
    Resolution,
    ResolveKey,
    ResolveRequest,
    ResolveResponse,
)

RETRY_AFTER_MS = 500
MAILBOX_QUEUE = 0
RESOLVE_KEYS = 1000

Refused = tuple[Verdict, int, str]


class Arbiter:
    """Decides and sends."""

    def __init__(
        self,
        *,
        registry: MeshChannel,
        queues: Sequence[TargetQueue],
        journal: Journal,
        clock: Clock,
        budget_ms: int,
        resolve_timeout_ms: int,
    ) -> None:
        self._registry = registry
        self._queues = queues
        self._journal = journal
        self._clock = clock
        self._budget_ms = budget_ms
        self._resolve_timeout_ms = resolve_timeout_ms
        self._log = structlog.get_logger()

    async def decide(self, frame: bytes, answer: Callable[[bytes, bool], None]) -> None:
        """Decide a serialised ArbitrationBatch; `answer(verdicts, final)` is called until final, at least once."""
        now = self._clock.mono_ns()
        case = Arbitration.open(frame, MESH_BATCH_BYTES, MESH_BATCH_COMMANDS)
        ledger = case.ledger
        budget_ms = min(case.budget_ms or self._budget_ms, self._budget_ms)

        def settled(verdicts: bytes) -> None:
            done = ledger.done
            answer(verdicts, done)
            if done:
                self._journal.append(case.telemetry(self._clock.unix_ns()), rows=ledger.count)

        opening = ledger.opening()
        if opening or ledger.done:
            settled(opening)
        if ledger.done:
            return
        try:
            await self._decide(case, budget_ms, now + budget_ms * 1_000_000, settled)
        except Exception:
            # Some of it may be on its way to a queue already; and one case must not end the others.
            self._log.exception("a case failed")
            settled(ledger.close(Verdict.OUTCOME_UNKNOWN, RETRY_AFTER_MS, "Slow failed."))

    async def _decide(
        self, case: Arbitration, budget_ms: int, deadline_mono_ns: int, settled: Callable[[bytes], None]
    ) -> None:
        keys = case.keys()
        rulings = await self._rule(keys, timeout_ms=min(self._resolve_timeout_ms, budget_ms))
        approved: list[tuple[int, int, str]] = []
        for index, ruling in enumerate(rulings):
            if isinstance(ruling, str):
                approved.append((index, MAILBOX_QUEUE, ruling))
            else:
                verdict, retry_after_ms, detail = ruling
                settled(case.refuse(index, verdict, retry_after_ms, detail))
        if not approved:
            return
        for part, (queue, count, body) in enumerate(case.dispatch(approved)):
            consignment = LedgerConsignment(
                case.ledger, part, count=count, body=body, deadline_mono_ns=deadline_mono_ns, answer=settled
            )
            try:
                self._queues[queue].put(consignment)
            except Saturated as full:
                consignment.refuse(
                    Verdict.SATURATED, "The queue is full.", retry_after_ms=full.retry_after_ms
                )

    async def _rule(
        self, keys: Sequence[tuple[str, str, str, int]], *, timeout_ms: int
    ) -> list[str | Refused]:
        """Per key the topic to deliver to, or the refusal."""
        rulings: list[str | Refused] = []
        for start in range(0, len(keys), RESOLVE_KEYS):
            asked = keys[start : start + RESOLVE_KEYS]
            request = ResolveRequest(
                key=[ResolveKey(source=source, target=target, name=name) for source, target, name, _ in asked]
            )
            try:
                answer = await self._registry.call(
                    "/snavio.v1.Registry/Resolve", request, ResolveResponse, timeout_s=timeout_ms / 1000
                )
            except SnavioError:
                closed = (Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Registry could not be asked.")
                rulings += [closed] * len(asked)
                continue
            # An answer of another length speaks of other keys; believing it could allow the wrong one.
            if len(answer.resolution) != len(asked):
                closed = (Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Registry's answer does not fit.")
                rulings += [closed] * len(asked)
                continue
            rulings += [_ruling(resolution) for resolution in answer.resolution]
        return rulings


def _ruling(resolution: Resolution) -> str | Refused:
    if resolution.suspended:
        return (Verdict.SUSPENDED, 0, "The source is suspended.")
    if not resolution.HasField("route"):
        return (Verdict.ROUTE_MISSING, 0, "No route is registered for this target and name.")
    if not resolution.allowed:
        return (Verdict.ACL_DENY, 0, "The target's owner has not allowed this.")
    if resolution.route.dedupe_mode == DEDUPE_MODE_STRICT:
        return (Verdict.DELIVERY_FAILURE, 0, "Strict delivery is not available yet.")
    topic: str = resolution.route.topic
    return topic
