"""Acknowledgements and messages given back: decided in memory, answered after the fsync.

Never undone by a caller that goes away: once decided, it reaches the disk whether or not anybody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.intake.commits import Commits, Committed, Outcome
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery, NackTerms
from services.mailbox.state.receipts import LATE, receipts
from services.mailbox.state.settling import Settling
from snavio.clock import Clock, SystemClock
from snavio.errors import SnavioError, Unavailable
from snavio.ports.mailbox_store import Progress
from snavio.telemetry.latency import LatencyWindow

COMMIT_SECONDS = 10.0


class Settlements:
    """Lives on one event loop."""

    def __init__(
        self, *, delivery: Delivery, commits: Commits, rows: BatchReader, clock: Clock | None = None
    ) -> None:
        self._delivery = self.delivery = delivery
        self._commits = commits
        self._rows = rows
        # Bounded by what the commits take.
        self._underway: dict[Settling, asyncio.Future[Outcome]] = {}
        self._clock = clock or SystemClock()
        self.latency = LatencyWindow(clock=self._clock)
        """Of acknowledgements, from the call to the fsync."""

    async def settle(
        self,
        topic: str,
        boot_epoch: int,
        msg_ids: Sequence[int],
        attempts: Sequence[int],
        *,
        holder: str,
        final: bool = True,
        nack: NackTerms | None = None,
    ) -> bytes:
        """A Settlement per receipt. Saturated or Unavailable when the disk did not take it: ask again."""
        if boot_epoch != self._delivery.boot_epoch:
            # Attempts are counted anew after a restart: an old receipt would settle another consumer's lease.
            return LATE * len(msg_ids)
        settling = self._delivery.settle(
            topic, receipts(msg_ids, attempts), holder=holder, final=final, nack=nack
        )
        began = self._clock.mono_ns()
        await self.stored(settling)
        if final and settling.moved:
            self.latency.add(self._clock.mono_ns() - began)
        return b"".join(settling.codes)

    async def stored(self, settling: Settling) -> None:
        """Commit what was decided, and wait for it and for what it relies on."""
        awaited = [self._underway[earlier] for earlier in settling.after if earlier in self._underway]
        if settling.moved:
            awaited.append(self.commit(settling))
        if awaited:
            await _all_stored(awaited)

    async def over(self, batches: Iterable[Batch]) -> None:
        """Wait until what is being decided about these is on disk, or refused."""
        moving = {settling for batch in batches for _, _, settling in batch.settling}
        awaited = [self._underway[one] for one in moving if one in self._underway]
        if awaited:
            _, late = await asyncio.wait(awaited, timeout=COMMIT_SECONDS)
            if late:
                raise Unavailable("The disk did not answer in time; it may have been done.")

    def commit(self, settling: Settling) -> asyncio.Future[Outcome]:
        """Bring a decision to disk; then it is confirmed, or everything stands as it did."""
        stored = self.accompany(settling)

        def heard(outcome: Outcome) -> None:
            self.heard(settling, outcome)

        try:
            self._commits.submit(progress=settling.progress, done=heard)
        except SnavioError as error:
            heard(error)
        return stored

    def accompany(self, settling: Settling) -> asyncio.Future[Outcome]:
        """A decision that somebody else brings to disk, and tells of with `heard`."""
        stored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._underway[settling] = stored
        return stored

    def heard(self, settling: Settling, outcome: Outcome) -> None:
        """The disk has it, or has refused it."""
        stored = self._underway.pop(settling)
        if isinstance(outcome, SnavioError):
            self._delivery.transitions.revert(settling)
        else:
            for batch_id in self._delivery.transitions.confirm(settling):
                self._rows.forget(batch_id)
        stored.set_result(outcome)


class Burials:
    """Messages that are buried to make room for one send; their burial reaches the disk with it or not at all."""

    def __init__(self, settlements: Settlements) -> None:
        self._settlements = settlements
        self._settlings: list[Settling] = []

    @property
    def progress(self) -> list[Progress]:
        """To be committed with the send."""
        return [progress for settling in self._settlings for progress in settling.progress]

    def add(self, settling: Settling | None) -> None:
        """Something was buried, or nothing."""
        if settling is not None:
            self._settlements.accompany(settling)
            self._settlings.append(settling)

    def heard(self, outcome: Outcome) -> None:
        """The result of the send."""
        if isinstance(outcome, Committed) and not outcome.with_progress:
            outcome = Unavailable("Nothing of the send was new.")
        for settling in reversed(self._settlings):
            self._settlements.heard(settling, outcome)
            self._settlements.delivery.overflow.decided(settling)


async def _all_stored(awaited: Sequence[asyncio.Future[Outcome]]) -> None:
    _, late = await asyncio.wait(awaited, timeout=COMMIT_SECONDS)
    if late:
        raise Unavailable("The disk did not answer in time; it may have been done.")
    for future in awaited:
        outcome = future.result()
        if isinstance(outcome, SnavioError):
            raise outcome
