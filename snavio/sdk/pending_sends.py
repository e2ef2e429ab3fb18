"""Commands on their way to Shield, and the answers that come back for them, one by one.

Never answers a command twice and never leaves one without an answer: what a final reply leaves out is
unknown.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from snavio.domain.verdict import Verdict
from snavio.native import PartBuffer, Reply
from snavio.sdk.outcome import FairnessShares

_FIELD_COMMAND = 0x1A
_DELIVERED = int(Verdict.DELIVERED)

FULL_COMMANDS = 1000
# A bundle goes once it has this much, so that the link's idea of how full it is lags by no more.
FULL_BYTES = 256 << 10
DEADLINE_SLACK_NS = 50_000_000


class AttemptAnswer(NamedTuple):
    """Shield's answer to one command in one attempt."""

    code: int
    retry_after_ms: int = 0
    throttle_until_unix_ns: int = 0
    detail: str = ""
    shares: FairnessShares | None = None


DELIVERED = AttemptAnswer(_DELIVERED)


def submission_field(command: bytes) -> bytes:
    """Tag and length that stand before `command` in a Submission."""
    length = len(command)
    if length < 1 << 7:
        return bytes((_FIELD_COMMAND, length))
    if length < 1 << 14:
        return bytes((_FIELD_COMMAND, length & 0x7F | 0x80, length >> 7))
    return bytes((_FIELD_COMMAND, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14))


class PendingSends:
    """Commands that were sent one at a time in the same turn of the loop; each has a future of its own.

    One consignment for all of them: the link's work, and a reply's, is then per bundle and not per command.
    """

    __slots__ = (
        "_full_bytes",
        "_full_commands",
        "_open",
        "_pieces",
        "_size",
        "body",
        "count",
        "deadline_mono_ns",
        "earliest",
        "latest",
        "waiters",
    )

    source = ""

    def __init__(
        self, deadline_mono_ns: int, *, full_bytes: int = FULL_BYTES, full_commands: int = FULL_COMMANDS
    ) -> None:
        self._full_bytes = full_bytes
        self._full_commands = full_commands
        self.deadline_mono_ns = deadline_mono_ns
        # Deadlines that may come along: the connection keeps one per part, so a send with a much shorter one must not
        # share it. One that takes no more has no such deadlines, which saves `send` a second check.
        self.earliest = deadline_mono_ns - DEADLINE_SLACK_NS
        self.latest = deadline_mono_ns + DEADLINE_SLACK_NS
        self.waiters: list[asyncio.Future[AttemptAnswer]] = []
        self.count = 0
        self.body = b""
        self._size = 0
        self._pieces: list[bytes] = []
        self._open = 0

    def add(self, command: bytes, waiter: asyncio.Future[AttemptAnswer]) -> None:
        """Take one more command along."""
        pieces, waiters = self._pieces, self.waiters
        pieces.append(submission_field(command))
        pieces.append(command)
        waiters.append(waiter)
        self._size += len(command)
        if self._size >= self._full_bytes or len(waiters) >= self._full_commands:
            self.latest = -1

    def seal(self) -> bool:
        """Make it ready to be sent, without further commands; False if that was done before."""
        if self.count or not self.waiters:
            return False
        self.latest = -1
        self.body = b"".join(self._pieces)
        self._pieces = []
        self.count = self._open = len(self.waiters)
        return True

    @property
    def buffer(self) -> bytes:
        """The body: it has been written already."""
        return self.body

    def settle(self, offset: int, reply: Reply) -> None:
        """Answer what `reply` decides."""
        part = part_of(reply, offset, self.count)
        if part is not None:
            begin, decided = part
            waiters = self.waiters[begin : begin + len(decided)]
            self._open -= len(decided) - decided.count(0)
            if decided.count(_DELIVERED) == len(decided):
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(DELIVERED)
            else:
                answers = explain(reply, offset + begin, decided)
                for waiter, answer in zip(waiters, answers, strict=True):
                    if answer.code and not waiter.done():
                        waiter.set_result(answer)
        if self._open > 0 and reply.final:
            self.close(left_out(reply, whole=self._open == self.count))

    def lost(self, *, written: bool, cause: str) -> None:
        """Commands that were never written are not delivered; of those that were written the outcome is unknown."""
        self.close(silence(written=written, cause=cause))

    def close(self, answer: AttemptAnswer) -> None:
        """Give everything that is still open the same answer."""
        self._open = 0
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(answer)


class BulkSend:
    """Commands that were handed over together; their sender waits for all of them at once."""

    __slots__ = ("_open", "buffer", "codes", "count", "deadline_mono_ns", "done", "explained")
    source = ""

    def __init__(
        self, count: int, buffer: bytes | PartBuffer, *, deadline_mono_ns: int, done: asyncio.Future[None]
    ) -> None:
        self.count = self._open = count
        self.buffer = buffer
        self.deadline_mono_ns = deadline_mono_ns
        self.done = done
        # One byte per command; what there is to say beyond it, for refused commands only.
        self.codes = bytearray(count)
        self.explained: dict[int, AttemptAnswer] = {}

    @property
    def body(self) -> bytes:
        """The buffer, written."""
        return bytes(self.buffer)

    def settle(self, offset: int, reply: Reply) -> None:
        """Note what `reply` decides."""
        part = part_of(reply, offset, self.count)
        if part is not None:
            begin, decided = part
            if len(decided) == self._open and decided.count(_DELIVERED) == len(decided):
                self.codes[begin : begin + len(decided)] = decided
                self._open = 0
            else:
                for position, answer in enumerate(explain(reply, offset + begin, decided), begin):
                    self._note(position, answer)
        if self._open == 0:
            self._finish()
        elif reply.final:
            self.close(left_out(reply, whole=self._open == self.count))

    def _note(self, position: int, answer: AttemptAnswer) -> None:
        if answer.code and not self.codes[position]:
            self.codes[position] = answer.code
            self._open -= 1
            if answer is not DELIVERED:
                self.explained[position] = answer

    def lost(self, *, written: bool, cause: str) -> None:
        """Commands that were never written are not delivered; of those that were written the outcome is unknown."""
        self.close(silence(written=written, cause=cause))

    def close(self, answer: AttemptAnswer) -> None:
        """Give everything that is still open the same answer."""
        for position, code in enumerate(self.codes):
            if not code:
                self._note(position, answer)
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def silence(*, written: bool, cause: str) -> AttemptAnswer:
    """The answer that no answer amounts to."""
    return AttemptAnswer(Verdict.OUTCOME_UNKNOWN if written else Verdict.DELIVERY_FAILURE, detail=cause)


def left_out(reply: Reply, *, whole: bool) -> AttemptAnswer:
    """The answer for commands that a final reply has no code for; `whole` if no reply came before it."""
    refusals = reply.refusals()
    if whole and refusals and not reply.codes:
        # The frame was refused before it was parsed: nothing of it was delivered, so nothing is in doubt.
        _, reason, retry_after_ms, throttle_until, detail = refusals[0]
        return AttemptAnswer(reason, retry_after_ms, throttle_until, detail)
    return AttemptAnswer(Verdict.OUTCOME_UNKNOWN, detail="the answer left it out")


def part_of(reply: Reply, offset: int, count: int) -> tuple[int, bytes] | None:
    """Index at which the reply meets the `count` commands at `offset`, and its codes from there."""
    first, codes = reply.first, reply.codes
    begin = max(first, offset)
    end = min(first + len(codes), offset + count)
    if begin >= end:
        return None
    return begin - offset, codes[begin - first : end - first]


def explain(reply: Reply, first: int, codes: bytes) -> list[AttemptAnswer]:
    """An Answer per code; `first` is the first one's number in the batch.

    A refusal that closed many commands at once carries its hint only once, for the first of them, so those
    after it with the same reason share it.
    """
    refusals = sorted(reply.refusals())
    shares = {number: FairnessShares(took, others, volume) for number, took, others, volume in reply.shares()}
    shared: dict[int, AttemptAnswer] = {}
    answers: list[AttemptAnswer] = []
    following = 0
    for number, code in enumerate(codes, first):
        while following < len(refusals) and refusals[following][0] <= number:
            of, reason, retry_after_ms, throttle_until, detail = refusals[following]
            shared[reason] = AttemptAnswer(reason, retry_after_ms, throttle_until, detail, shares.get(of))
            following += 1
        answers.append(DELIVERED if code == _DELIVERED else shared.get(code) or AttemptAnswer(code))
    return answers
