"""One command from a Redis stream or an SQS queue, with the facts about its sender.

Never trusts what it finds: an entry that is no message of Snavio's is refused as a whole.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from snavio.domain.queue_address import dead_stream_key, stream_key
from snavio.errors import IntegrityError
from snavio.native import read_single

MAX_REASON: Final = 200


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


async def bury(
    redis: Any, topic: str, group: str, entry_id: Any, fields: Mapping[bytes, bytes], *, reason: str
) -> None:
    """Move an entry of a topic's Redis stream to its dead letters, in one step, with the consumer's reason.

    `redis` is a client of redis.asyncio; `entry_id` and `fields` are what XREADGROUP told.
    """
    key = stream_key(topic)
    was = entry_id.decode() if isinstance(entry_id, bytes) else str(entry_id)
    letter = {
        "run": fields.get(b"run", b""),
        "reason": reason[:MAX_REASON],
        "attempts": 1,
        "died_ms": time.time_ns() // 1_000_000,
        "was": was,
    }
    together = redis.pipeline(transaction=True)
    together.xadd(dead_stream_key(topic), letter)
    together.xack(key, group, entry_id)
    together.xdel(key, entry_id)
    await together.execute()
