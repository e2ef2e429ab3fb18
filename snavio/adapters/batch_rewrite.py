"""Stored runs without the messages that nobody needs any more, each of the others under its old number.

Never changes a byte of a message that is kept.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from snavio.errors import IntegrityError
from snavio.v1.mailbox_pb2 import Parcel


def rewrite_batch(runs: bytes, keep: int) -> bytes:
    """The runs with an empty command in place of each whose bit in `keep` is not set."""
    parcel: Any = Parcel()
    try:
        parcel.ParseFromString(runs)
    except DecodeError:
        raise IntegrityError("These are not stored runs.") from None
    index = 0
    for run in parcel.run:
        for place in range(len(run.command)):
            if not keep >> index & 1:
                run.command[place] = b""
            index += 1
    serialised: bytes = parcel.SerializeToString()
    return serialised
