"""Stored runs without the messages that nobody needs any more, each of the others under its old number.

Never changes a byte of a message that is kept.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from snavio.errors import IntegrityError
from snavio.v1.mailbox_pb2 import LeasedBatch


def rewrite_batch(runs: bytes, keep: int) -> bytes:
    """The runs with an empty command in place of each whose bit in `keep` is not set."""
    batch: Any = LeasedBatch()
    try:
        batch.ParseFromString(runs)
    except DecodeError:
        raise IntegrityError("These are not stored runs.") from None
    index = 0
    for run in batch.run:
        for place in range(len(run.command)):
            if not keep >> index & 1:
                run.command[place] = b""
            index += 1
    serialised: bytes = batch.SerializeToString()
    return serialised
