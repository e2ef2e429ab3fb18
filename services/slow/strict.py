"""Strict delivery: each id of a source once within the dedupe time.

Where the queue recognises ids itself, as the mailbox does, the send is the claim, and only duplicates of commands that
this Slow has seen delivered are answered here. Everywhere else an id is claimed in the coordination store, dispatched,
then committed; a claim ends only when the queue has definitely not taken the command. Never releases on silence: what
may have been delivered stays claimed until its lease is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import structlog

from services.slow.arbitration_job import ArbitrationJob, Lane
from services.slow.lane_rules import is_strict
from snavio.clock import Clock
from snavio.domain.claim import Claimed
from snavio.domain.first_outcome import delivered_at
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, SnavioError, Unavailable
from snavio.host.background import background
from snavio.native import Committed
from snavio.ports.coordination import MAX_BATCH, ClaimAnswer, ClaimAsk, Coordination
from snavio.telemetry.latency import LatencyWindow
from snavio.v1.slow_pb2 import ESCALATION_REASON_DEDUPE_REQUIRED

RETRY_AFTER_MS = 500
# Queues that recognise an id themselves, by their place among the target queues: the mailbox.
RECOGNISING = frozenset({0})

_ANSWERS: dict[Claimed, tuple[Verdict, str]] = {
    Claimed.CONFLICT: (Verdict.CONFLICT, "This id was used for another command."),
    Claimed.PENDING: (Verdict.OUTCOME_UNKNOWN, "Another attempt with this id is under way."),
    Claimed.UNKNOWN: (Verdict.DELIVERY_FAILURE, "The coordination store has lost its memory and waits."),
}


def told_of(answer: ClaimAnswer) -> tuple[Verdict, str]:
    """The answer to the sender of a command with this claim."""
    if answer.claimed is Claimed.DUPLICATE:
        return Verdict.DUPLICATE, delivered_at(answer.delivered_unix_ms * 1_000_000)
    return _ANSWERS.get(answer.claimed, (Verdict.DELIVERED, ""))


class Tell(Protocol):
    """`commit` or `release`."""

    async def __call__(self, asks: Sequence[ClaimAsk], *, owner: str) -> None: ...


_OURS = (Claimed.NEW, Claimed.TAKEN_OVER)


class Strict:
    """See the module. `instance` and `epoch` make owner names unique."""

    def __init__(
        self,
        *,
        store: Coordination,
        clock: Clock,
        instance: str,
        epoch: int,
        keep_ms: int,
        remembered: int,
        timeout_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = f"{instance}-{epoch}"
        self.keep_ms = keep_ms
        self._timeout_ms = timeout_ms
        self._known = Committed(remembered)
        self._counts: Counter[str] = Counter(
            dict.fromkeys(("StrictModeUsage", "DuplicatesPrevented", "Escalations"), 0)
        )
        self._times = LatencyWindow(clock=clock)
        self.latency = self._times.read
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Counters under the names of the catalogue, without their common prefix."""
        return dict(self._counts)

    def known(self, lanes: Sequence[Lane]) -> None:
        """Answer duplicates of commands that this Slow has seen delivered, before they cost a permit."""
        now = self._clock.mono_ns()
        for lane in lanes:
            if lane.resolution is not None and is_strict(lane.resolution):
                lane.job.answers.settled(lane.job.native.settle_known(lane.key, self._known, now))

    async def claim(self, lanes: Sequence[Lane], *, timeout_ms: int) -> list[Lane]:
        """Claim the ids of strict lanes whose queue cannot recognise them; lanes without a claim are answered."""
        left, away = [], False
        ends_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        for lane in lanes:
            if not needs_claim(lane):
                left.append(lane)
                continue
            try:
                if not away and await self._claimed(lane, ends_s):
                    left.append(lane)
                failed = away
            except (SnavioError, TimeoutError) as error:
                # After one silence the others are not made to wait for the same, one after the other.
                failed, away = True, _is_away(error)
            if failed:
                # Nothing was sent. Claims that were had end with their lease, or are taken over by the next attempt.
                lane.refuse(
                    Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "The coordination store could not be asked."
                )
        return left

    async def _claimed(self, lane: Lane, ends_s: float) -> bool:
        native = lane.job.native
        asked = [(one.index, ClaimAsk(lane.source, one.id, one.contents)) for one in native.claims(lane.key)]
        answered: list[tuple[int, ClaimAsk, Claimed, int]] = []
        duplicates: list[tuple[int, str]] = []
        try:
            within_s = asyncio.get_running_loop().time() + self._timeout_ms / 1000
            async with asyncio.timeout_at(min(ends_s, within_s)):
                for start in range(0, len(asked), MAX_BATCH):
                    part = asked[start : start + MAX_BATCH]
                    answers = await self._store.claim([ask for _, ask in part], owner=self._owner_of(lane))
                    for (index, ask), answer in zip(part, answers, strict=True):
                        answered.append((index, ask, answer.claimed, answer.retry_after_ms))
                        if answer.claimed is Claimed.DUPLICATE:
                            duplicates.append((index, delivered_at(answer.delivered_unix_ms * 1_000_000)))
        except Saturated as full:
            lane.refuse(Verdict.SATURATED, full.retry_after_ms, "Too many strict commands are remembered.")
            return False
        lane.claims = [(index, ask, claimed) for index, ask, claimed, _ in answered if claimed in _OURS]
        if duplicates:
            lane.job.answers.settled(native.settle_duplicates(duplicates))
        for outcome, (verdict, detail) in _ANSWERS.items():
            told = [(index, retry) for index, _, claimed, retry in answered if claimed is outcome]
            if told:
                retry_after_ms = min(max(retry for _, retry in told), 2**32 - 1)
                indices = [index for index, _ in told]
                lane.job.answers.settled(native.decide(indices, verdict, retry_after_ms, detail))
        lane.count = len(lane.claims)
        return bool(lane.claims)

    async def abandon(self, lanes: Sequence[Lane]) -> None:
        """Release claims of commands that were refused afterwards: they were not sent."""
        away = False
        for lane in lanes:
            codes = lane.job.native.ledger.codes if lane.claims else b""
            refused = [claim for claim in lane.claims if codes[claim[0]] or not lane.count]
            if refused:
                lane.claims = [claim for claim in lane.claims if claim not in refused]
                asks = [ask for _, ask, _ in refused]
                # As in `claim`: one silence is waited for, and not one for each lane.
                if away:
                    self._counts["claims_left"] += len(asks)
                else:
                    away = not await self._tell(self._store.release, lane, asks)

    def answering(self, lane: Lane, frame: bytes) -> asyncio.Task[None]:
        """Commit or release the claims that an answer of the queue decides, then pass the answer on."""
        codes = lane.job.native.ledger.codes
        delivered = [ask for index, ask, _ in lane.claims if codes[index] == Verdict.DELIVERED]
        # An unknown outcome is neither: its claim stays until the lease is over.
        failed = [
            ask
            for index, ask, _ in lane.claims
            if codes[index] not in (Verdict.UNDECIDED, Verdict.DELIVERED, Verdict.OUTCOME_UNKNOWN)
        ]
        lane.claims = [claim for claim in lane.claims if codes[claim[0]] == Verdict.UNDECIDED]

        # At once, so that no later answer overtakes this one.
        pass_on = lane.job.answers.hold(frame)

        async def record() -> None:
            try:
                if delivered:
                    await self._tell(self._store.commit, lane, delivered)
                if failed:
                    await self._tell(self._store.release, lane, failed)
            finally:
                pass_on()

        return background().once("claims", record())

    async def _tell(self, tell: Tell, lane: Lane, asks: Sequence[ClaimAsk]) -> bool:
        """True if the store has taken it."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                for start in range(0, len(asks), MAX_BATCH):
                    await tell(asks[start : start + MAX_BATCH], owner=self._owner_of(lane))
        except (SnavioError, TimeoutError):
            # The claims stay pending: the next attempt waits for the lease and then takes over.
            self._counts["claims_left"] += len(asks)
            self._log.warning("claims could not be settled", claims=len(asks))
            return False
        return True

    def settled(self, job: ArbitrationJob) -> None:
        """Count a job that is over, and remember what it delivered."""
        strict = [lane for lane in job.lanes if lane.resolution is not None and is_strict(lane.resolution)]
        if not strict:
            return
        now = self._clock.mono_ns()
        # From before it was sent: the queue's own memory of it cannot have begun earlier.
        job.native.remember(self._known, job.opened_mono_ns + self.keep_ms * 1_000_000, now)
        counts = [job.native.duplicates(lane.key) for lane in strict]
        self._counts["StrictModeUsage"] += sum(total for total, _ in counts)
        self._counts["DuplicatesPrevented"] += sum(duplicates for _, duplicates in counts)
        self._counts["Escalations"] += sum(
            total
            for lane, (total, _) in zip(strict, counts, strict=True)
            if lane.reason == ESCALATION_REASON_DEDUPE_REQUIRED
        )
        self._times.add(now - job.opened_mono_ns, count=sum(total for total, _ in counts))

    def _owner_of(self, lane: Lane) -> str:
        return f"{self._owner}-{lane.job.number}-{lane.key}"


def _is_away(error: Exception) -> bool:
    """True if the store as a whole is away; a record that is damaged or contended is one record."""
    return not isinstance(error, SnavioError) or (
        isinstance(error, Unavailable) and error.reason != "contended"
    )


def place_of(lane: Lane) -> int:
    """The place of the lane's queue among the target queues."""
    assert lane.resolution is not None
    return max(0, lane.resolution.route.queue_kind - 1)


def needs_claim(lane: Lane) -> bool:
    """True if its ids must be claimed in the coordination store."""
    return lane.resolution is not None and is_strict(lane.resolution) and place_of(lane) not in RECOGNISING
