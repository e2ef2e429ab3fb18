"""Reasons why a receive brings nothing although its topic holds messages.

Never on the way of a message: for empty answers and readings alone.
"""

from __future__ import annotations

from enum import IntEnum

from services.mailbox.state.bounds import TENANT_SHARE
from services.mailbox.state.delivery import Delivery


class Standstill(IntEnum):
    """As on the wire: see `Standstill` of mailbox.proto."""

    NONE = 0
    LEASED = 1
    DELAYED = 2
    RETRIES = 3
    TENANT_SHARE = 4
    MEMORY = 5

    @property
    def label(self) -> str:
        """For metrics."""
        return self.name.lower().replace("_", "-")


def standstill(delivery: Delivery, name: str) -> Standstill:
    """Why nothing of the topic can be received now; NONE when it is empty, or something can."""
    topic = delivery.topics.topic(name)
    if topic is None or not topic.messages:
        return Standstill.NONE
    if topic.messages <= topic.inflight + topic.settling:
        return Standstill.LEASED
    on_disk = topic.loaded_through < topic.last_id
    if topic.ready or on_disk:
        held_up = delivery.shares.spans.held_up(topic)
        if held_up is not None:
            return Standstill.TENANT_SHARE if held_up == TENANT_SHARE else Standstill.RETRIES
        full = len(topic.batches) >= delivery.limits.resident_batches
        return Standstill.MEMORY if full and not topic.ready else Standstill.NONE
    delayed = any(len(batch.delayed) for batch in topic.batches.values())
    return Standstill.DELAYED if delayed else Standstill.NONE
