"""Admits a producer's batch and follows it to Fast until every command of it is answered.

Never retries: only the producer may, because only it can sign again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from services.shield.cache_freshness import CacheFreshness
from services.shield.refused_batch import read_batch, refused
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.hop.forward import BatchAnswers, forward
from snavio.host.background import background
from snavio.native import Admission, Judgement
from snavio.observe.tracer import PRODUCER, Tracer
from snavio.ports.queue import TargetQueue
from snavio.rpc.peer import Peer
from snavio.telemetry.journal import Journal
from snavio.telemetry.latency import LatencyWindow
from snavio.telemetry.tally import VerdictCounts

OUT_OF_DATE = "Keys or suspensions are out of date; nothing is let in until they can be read."
RETRY_AFTER_MS = 1000
FAILED = "Shield failed; nothing was let in."
# The assumed size of the batch that a stream reads next: few are larger.
READ_BYTES = 256 << 10
# Bytes that wait for Fast. Above the first bound streams are not read: one core passes on so much in a second or less,
# so that admitted commands are also delivered within their budget. The second is that of memory: what was read is not
# refused.
CROWDED_BYTES = 32 << 20
WAITING_BYTES = 320 << 20
_UNKNOWN_KEY = bytes([Verdict.UNKNOWN_KEY_VERSION])


class AdmissionControl:
    """Judges batches and forwards the admitted commands."""

    def __init__(
        self,
        *,
        admission: Admission,
        freshness: CacheFreshness,
        fast: TargetQueue,
        journal: Journal,
        tally: VerdictCounts,
        latency: LatencyWindow,
        clock: Clock,
        budget_ms: int,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._admission = admission
        self._freshness = freshness
        self._fast = fast
        self._journal = journal
        self._tally = tally
        self._latency = latency
        self._clock = clock
        self._budget_ms = budget_ms

    async def room(self, source: str) -> None:
        """Wait while the send queue to Fast is full, of the source's tenant's commands or of all tenants' together."""
        await self._fast.room(source, READ_BYTES)

    def admit_batch(self, submission: bytes, peer: Peer, answer: Callable[[bytes, bool], None]) -> None:
        """Judge a serialised Submission; `answer(verdicts, final)` is called until final, at least once."""
        if not self._freshness.usable():
            count, batch_seq = read_batch(submission)
            self._turn_away(count, answer, batch_seq=batch_seq)
            return
        try:
            judgement = self._admission.judge(
                submission,
                source=peer.identity.source,
                cert_serial=peer.cert_serial,
                now_unix_ns=self._clock.unix_ns(),
            )
            parts = judgement.accepted, judgement.ledger.opening()
        except Exception as error:
            background().failed("admission", error)
            count, batch_seq = read_batch(submission)
            answer(refused(count, Verdict.DELIVERY_FAILURE, batch_seq=batch_seq, detail=FAILED), True)
            return
        self._forward(judgement, *parts, peer, answer)

    def admit_one(
        self, command: bytes, peer: Peer, budget_ms: int, answer: Callable[[bytes, bool], None]
    ) -> None:
        """Judge a single serialised Command."""
        if not self._freshness.usable():
            self._turn_away(1, answer)
            return
        try:
            judgement = self._admission.judge_one(
                command,
                source=peer.identity.source,
                cert_serial=peer.cert_serial,
                now_unix_ns=self._clock.unix_ns(),
                budget_ms=budget_ms,
            )
            parts = judgement.accepted, judgement.ledger.opening()
        except Exception as error:
            background().failed("admission", error)
            answer(refused(1, Verdict.DELIVERY_FAILURE, detail=FAILED), True)
            return
        self._forward(judgement, *parts, peer, answer)

    def _turn_away(self, count: int, answer: Callable[[bytes, bool], None], *, batch_seq: int = 0) -> None:
        # Not "unknown key": the key may be good, and was not looked at. Nothing was let in either, which the producer
        # may rely on and try again.
        self._tally.add(bytes([Verdict.SATURATED]) * count)
        self._freshness.turned_away(count)
        answer(
            refused(
                count,
                Verdict.SATURATED,
                batch_seq=batch_seq,
                retry_after_ms=RETRY_AFTER_MS,
                detail=OUT_OF_DATE,
            ),
            True,
        )

    def _forward(
        self,
        judgement: Judgement,
        accepted: int,
        opening: bytes,
        peer: Peer,
        answer: Callable[[bytes, bool], None],
    ) -> None:
        """Answer the refused commands, send on the accepted ones, and only then keep the books."""
        source, ledger = peer.identity.source, judgement.ledger
        arrived = self._clock.mono_ns()
        budget_ms = min(judgement.budget_ms or self._budget_ms, self._budget_ms)

        def answered(final: bool) -> None:
            if final:
                self._tally.add(ledger.codes)
                if self._tracer is not None and (sampled := judgement.sampled()):
                    self._tracer.batch(
                        sampled, began_mono_ns=arrived, codes=ledger.codes, parent=PRODUCER, source=source
                    )
            if final and accepted:
                self._journal.append(judgement.telemetry_closed(self._clock.unix_ns()))
                self._latency.add(self._clock.mono_ns() - arrived, count=accepted)

        forward(
            BatchAnswers(ledger, answer, answered=answered, books="books of admission"),
            opening,
            ((self._fast, accepted, judgement.buffer, source),) if accepted else (),
            service="Shield",
            deadline_mono_ns=arrived + budget_ms * 1_000_000,
            recorded=partial(self._record, judgement, accepted),
            full="Shield is full.",
        )

    def _record(self, judgement: Judgement, accepted: int) -> None:
        ledger = judgement.ledger
        self._freshness.used(ledger.count)
        if judgement.rows:
            self._journal.append(judgement.telemetry(self._clock.unix_ns()))
        if accepted < ledger.count and _UNKNOWN_KEY in ledger.codes:
            self._freshness.key_may_be_newer()
