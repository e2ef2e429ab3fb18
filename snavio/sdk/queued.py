"""One command from a Redis stream or an SQS queue, with the facts about its sender.

Never trusts what it finds: an entry that is no message of Snavio's is refused as a whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from snavio.errors import IntegrityError
from snavio.native import read_single


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """One command. Its source was authenticated, and its signature checked, before it came here."""

    source: str
    command_id: str
    timestamp: str
    target: str
    name: str
    content_type: str
    payload: bytes
    traceparent: str
    admitted_unix_ns: int

    @classmethod
    def from_redis(cls, fields: Mapping[bytes, bytes]) -> Self:
        """From the fields of a stream's entry, as a client without `decode_responses` tells them."""
        return cls._opened(fields.get(b"run", b""))

    @classmethod
    def from_sqs(cls, message: Mapping[str, Any]) -> Self:
        """From a message of `receive_message`."""
        try:
            run = base64.b64decode(message.get("Body", ""), validate=True)
        except (binascii.Error, ValueError):
            run = b""
        return cls._opened(run)

    @classmethod
    def _opened(cls, run: bytes) -> Self:
        try:
            return cls(*read_single(run))
        except ValueError:
            raise IntegrityError("This entry is no command of Snavio's.", reason="not-a-command") from None
