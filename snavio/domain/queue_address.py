"""The address of a topic's queue, by kind of queue.

Never free text: an address that a tenant could choose would be a way into another tenant's queue.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from snavio.domain.directory.route import QueueKind

RESERVED_PREFIX: Final = "snavio."
"""No target may begin so: the topics of such names are the mesh's own."""
TELEMETRY_NAME: Final = "snavio.telemetry"


def telemetry_topic(tenant: str) -> str:
    """The topic to which Relay sends a tenant's envelopes."""
    return f"{tenant}/{TELEMETRY_NAME}"


def stream_key(topic: str) -> str:
    """The Redis stream of a topic. Braces keep a topic's keys in one slot of a cluster."""
    return f"snavio:queue:{{{topic}}}"


def dead_stream_key(topic: str) -> str:
    """The Redis stream of a topic's dead letters, in the slot of its stream."""
    return f"{stream_key(topic)}:dead"


def queue_name(topic: str) -> str:
    """The SQS queue of a topic. Ends with a digest: `a-b/c` and `a/b-c` must not share a queue."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", topic)[:56]
    return f"snavio-{readable}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def address(kind: QueueKind, topic: str) -> str:
    """The address as an operator would look it up."""
    match kind:
        case QueueKind.MAILBOX:
            return topic
        case QueueKind.REDIS:
            return stream_key(topic)
        case QueueKind.SQS:
            return queue_name(topic)
