"""Room and commit of one send that somebody waits for: reserved, stored together with what makes room, brought in.

Never undone by a caller that goes away: once handed to the disk, what becomes of it is heard and counted all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.mailbox.access.quotas import QuotaTake
from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.intake.batch_intake import BatchIntake, give_back
from services.mailbox.intake.commits import Commits, Committed, Outcome
from services.mailbox.settle.settlements import Burials, Settlements
from services.mailbox.state.delivery import Delivery
from snavio.errors import Saturated, SnavioError, Unavailable
from snavio.ports.mailbox_store import NewBatch, Send

COMMIT_SECONDS = 10.0


class SendCommit:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        commits: Commits,
        delivery: Delivery,
        intake: BatchIntake,
        settlements: Settlements,
        rows: BatchReader,
    ) -> None:
        self._commits = commits
        self._delivery = delivery
        self._intake = intake
        self._settlements = settlements
        self._rows = rows

    async def prepare(self, topic: str, messages: int) -> None:
        """Read the oldest messages of a topic that is full and buries them, if none are in memory."""
        while self._delivery.overflow.unread(topic, messages):
            asked = self._delivery.window.shortage(topic)
            if asked is None:
                return
            await self._rows.refill(self._delivery, asked)

    async def store(self, send: Send, taken: Sequence[QuotaTake]) -> Committed:
        """Store it; Saturated when there is no room, Unavailable when the disk failed and it may have been stored."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Outcome] = loop.create_future()
        try:
            burials = self.reserve(send.batches)
        except Saturated:
            give_back(taken, sum(one.messages for one in taken))
            raise

        def heard(outcome: Outcome) -> None:
            if not stored.done():
                stored.set_result(outcome)
            burials.heard(outcome)
            # Also when the caller no longer waits: the message is stored all the same, and is to be delivered.
            self._intake.decided(send.batches)
            if isinstance(outcome, Committed):
                self._intake.bring_in(outcome, taken)
            else:
                self.release(send.batches)
                give_back(taken, sum(one.messages for one in taken))

        try:
            self._commits.submit(send=send, progress=burials.progress, done=heard)
        except SnavioError as error:
            heard(error)
            raise
        done, _ = await asyncio.wait((stored,), timeout=COMMIT_SECONDS)
        if not done:
            raise Unavailable("The disk did not answer in time; it may have been stored.")
        outcome = stored.result()
        if isinstance(outcome, Saturated):
            raise Saturated(str(outcome), retry_after_ms=outcome.retry_after_ms)
        if isinstance(outcome, SnavioError):
            raise Unavailable("The mailbox's disk failed; it may have been stored.")
        return outcome

    def reserve(self, batches: Sequence[NewBatch]) -> Burials:
        """Take up room for all of them, or for none; Saturated then."""
        burials = Burials(self._settlements)
        for number, batch in enumerate(batches):
            try:
                burials.add(
                    self._delivery.overflow.reserve(
                        batch.topic, batch.count, batch.shard, size=len(batch.runs)
                    )
                )
            except Saturated as full:
                burials.heard(full)
                self._intake.decided(batches[:number])
                self.release(batches[:number])
                raise
        return burials

    def release(self, batches: Sequence[NewBatch]) -> None:
        """Free the room of what is not stored."""
        for batch in batches:
            self._delivery.topics.release(batch.topic, batch.count, batch.shard)
