"""Batch parts that a test hands to a target queue, and what it learns of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from snavio.domain.verdict import Verdict
from snavio.native import Reply
from snavio.v1 import mailbox_pb2 as mail
from snavio.v1.batch_pb2 import Run
from tests.support.mailbox import commands

# Generous, because nothing is measured by it: a queue that comes back may have to start first.
SECONDS = 90.0
Topics = tuple[tuple[str, list[bytes]], ...]


@dataclass
class RecordedPart:
    """A `BatchPart`; keeps every verdict, and notices a second one."""

    body: bytes
    count: int
    deadline_mono_ns: int
    source: str = ""
    codes: bytearray = field(init=False)
    details: list[str] = field(default_factory=list)
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.codes = bytearray(self.count)

    @property
    def buffer(self) -> bytes:
        return self.body

    def settle(self, offset: int, reply: Reply) -> None:
        for at, code in enumerate(reply.codes, reply.first - offset):
            if code and 0 <= at < self.count:
                assert not self.codes[at], "decided twice"
                self.codes[at] = code
        self.details += [refusal[4] for refusal in reply.refusals()]
        if reply.final and not reply.codes:
            # As LedgerPart has it: the frame was refused as a whole, and nothing of it was delivered.
            self.codes = bytearray(code or Verdict.DELIVERY_FAILURE for code in self.codes)
        self._look()

    def lost(self, *, written: bool, cause: str) -> None:
        verdict = Verdict.OUTCOME_UNKNOWN if written else Verdict.DELIVERY_FAILURE
        self.codes = bytearray(code or verdict for code in self.codes)
        self.details.append(cause)
        self._look()

    def _look(self) -> None:
        if all(self.codes):
            self.decided.set()

    async def verdicts(self) -> list[Verdict]:
        """Once all are in."""
        async with asyncio.timeout(SECONDS):
            await self.decided.wait()
        return [Verdict(code) for code in self.codes]


def part_of(*topics: tuple[str, list[bytes]], budget_s: float = 10.0, once: bool = False) -> RecordedPart:
    """Commands for some topics, as Fast or Slow would send them; every topic's are of one source."""
    batch = mail.SendBatch()
    for topic, some in topics:
        run = Run(
            source="acme/shop", key_version="hmac-v1", cert_serial="ab", admitted_unix_ns=5, command=some
        )
        batch.topic.append(mail.TopicRuns(topic=topic, run=[run], once=once))
    total = sum(len(some) for _, some in topics)
    deadline = time.monotonic_ns() + round(budget_s * 1e9)
    return RecordedPart(batch.SerializeToString(), total, deadline)


__all__ = ["RecordedPart", "Topics", "commands", "part_of"]
