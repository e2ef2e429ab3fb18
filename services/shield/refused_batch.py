"""Answers a batch of which no command was judged: every command of it gets the same verdict.

Never lets a producer guess: one that only loses its stream cannot know whether its commands were delivered.
"""

from __future__ import annotations

from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, FrameTooLarge
from snavio.native import measure_submission
from snavio.rpc.limits import PUBLIC_FRAME_BYTES
from snavio.v1.batch_pb2 import Refusal, Verdicts
from snavio.v1.batch_pb2 import Verdict as WireVerdict

MAX_BATCH_COMMANDS = 1000


def read_batch(frame: bytes) -> tuple[int, int]:
    """The count of commands of a serialised Submission, and its number; BadRequest for bytes that are none.

    FrameTooLarge for more than is judged: half a million empty commands must not be parsed one by one to be refused.
    """
    code, batch_seq, count = measure_submission(
        frame, max_batch_bytes=PUBLIC_FRAME_BYTES, max_batch_commands=MAX_BATCH_COMMANDS
    )
    if code == Verdict.OVERSIZED:
        raise FrameTooLarge(
            f"A batch has at most {PUBLIC_FRAME_BYTES} bytes and {MAX_BATCH_COMMANDS} commands."
        )
    if code:
        raise BadRequest("The frame is not a Submission.", reason="malformed")
    return count, batch_seq


def refused(
    count: int, verdict: Verdict, *, batch_seq: int = 0, retry_after_ms: int = 0, detail: str = ""
) -> bytes:
    """The same answer for `count` commands: a retry hint for each, the detail for the first."""
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
    frame: bytes = answer.SerializeToString()
    return frame
