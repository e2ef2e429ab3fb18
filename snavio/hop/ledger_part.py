"""The part of one batch that travels to one next hop, tied to the batch's ledger.

Never decides: it translates the hop's answers, and turns silence into the verdict that silence allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from snavio.domain.verdict import Verdict
from snavio.host.background import background
from snavio.native import Ledger, PartBuffer, Reply
from snavio.v1.batch_pb2 import Refusal, Verdicts
from snavio.v1.batch_pb2 import Verdict as WireVerdict

RETRY_AFTER_MS = 250


class LedgerPart:
    """A `BatchPart`. `answer` gets serialised Verdicts for the batch's sender.

    `broken` gets the last of them when the ledger fails, which never says any more that it is done; without it
    `answer` does.
    """

    __slots__ = ("_answer", "_broken", "_ledger", "_part", "buffer", "count", "deadline_mono_ns", "source")

    def __init__(
        self,
        ledger: Ledger,
        part: int,
        *,
        count: int,
        body: bytes | PartBuffer,
        deadline_mono_ns: int,
        answer: Callable[[bytes], None],
        broken: Callable[[bytes], None] | None = None,
        source: str = "",
    ) -> None:
        self._ledger = ledger
        self._part = part
        self._answer = answer
        self._broken = broken or answer
        self.count = count
        self.buffer = body
        self.deadline_mono_ns = deadline_mono_ns
        self.source = source

    @property
    def body(self) -> bytes:
        """The buffer as bytes."""
        return bytes(self.buffer)

    def settle(self, offset: int, reply: Reply) -> None:
        """Pass the hop's answer on, in the batch's own numbering."""
        frame = self._ledger.merge(self._part, offset, reply)
        if frame:
            self._answer(frame)
        if reply.final and not self._ledger.done:
            # A hop that says "final" and leaves commands open would leave their producer waiting for ever.
            # Without any codes it refused the frame as a whole, so nothing of it was delivered.
            refused = not reply.codes
            self.refuse(
                Verdict.DELIVERY_FAILURE if refused else Verdict.OUTCOME_UNKNOWN,
                "The next hop refused the batch." if refused else "The next hop did not decide.",
            )

    def lost(self, *, written: bool, cause: str) -> None:
        """Refuse what was never written as not delivered; the outcome of what was written is unknown."""
        verdict = Verdict.OUTCOME_UNKNOWN if written else Verdict.DELIVERY_FAILURE
        self.refuse(verdict, cause)

    def refuse(self, verdict: Verdict, cause: str, *, retry_after_ms: int = RETRY_AFTER_MS) -> None:
        """Close every command that is still open with `verdict`."""
        try:
            frame = self._ledger.close_part(self._part, 0, self.count, verdict, retry_after_ms, cause)
        except Exception as error:
            # Without an answer the sender would wait for ever, and its place in the window would never be free again.
            background().failed("ledger", error)
            self._broken(rest_unknown(self._ledger, cause))
            return
        if frame:
            self._answer(frame)


def rest_unknown(ledger: Ledger, cause: str) -> bytes:
    """A last answer about all that `ledger` has left open, made without it: it has just failed."""
    try:
        told = ledger.codes
    except Exception:
        told = bytes(ledger.count)
    codes = bytes(0 if code else Verdict.OUTCOME_UNKNOWN for code in told)
    index = max(codes.find(Verdict.OUTCOME_UNKNOWN), 0)
    refusal = Refusal(index=index, reason=WireVerdict.ValueType(Verdict.OUTCOME_UNKNOWN), detail=cause)
    frame: bytes = Verdicts(
        batch_seq=ledger.batch_seq, codes=codes, refusal=[refusal], final=True
    ).SerializeToString()
    return frame


def nothing_delivered(kind: Any, batch: bytes) -> bytes:
    """The last answer to a batch of which nothing went on: without codes, it stands for all of its commands.

    Empty for what is no message of `kind`: a batch without a number has no answer.
    """
    try:
        batch_seq = kind.FromString(batch).header.batch_seq
    except DecodeError:
        return b""
    frame: bytes = Verdicts(batch_seq=batch_seq, final=True).SerializeToString()
    return frame
