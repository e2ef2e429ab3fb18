"""Answers a batch of which no command was looked at: every command of it gets the same verdict.

Never lets a producer guess: one that only loses its stream cannot know whether what it had written was delivered.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.v1.batch_pb2 import Refusal, Verdicts
from snavio.v1.batch_pb2 import Verdict as WireVerdict
from snavio.v1.shield_pb2 import Submission

MAX_BATCH_COMMANDS = 1000


def read_batch(frame: bytes) -> tuple[int, int]:
    """How many commands a serialised Submission has, and its number; BadRequest for bytes that are none."""
    try:
        submission = Submission.FromString(frame)
    except DecodeError:
        raise BadRequest("The frame is not a Submission.", reason="malformed") from None
    return min(len(submission.command), MAX_BATCH_COMMANDS), submission.header.batch_seq


def refused(
    count: int, verdict: Verdict, *, batch_seq: int = 0, retry_after_ms: int = 0, detail: str = ""
) -> bytes:
    """The same answer for `count` commands: a hint when to try again for each, the words for the first."""
    answer = Verdicts(batch_seq=batch_seq, codes=bytes([verdict]) * count, final=True)
    answer.refusal.extend(
        Refusal(
            index=index,
            reason=WireVerdict.Name(verdict),
            retry_after_ms=retry_after_ms,
            detail=detail if index == 0 else "",
        )
        for index in range(count if retry_after_ms else min(count, 1))
    )
    told: bytes = answer.SerializeToString()
    return told
