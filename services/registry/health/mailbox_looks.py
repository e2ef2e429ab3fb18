"""Looks at the mailbox's topics: a thousand of them in one call, under Registry's right to their counts alone.

A topic that the mailbox does not have is empty: it is made by its first command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from snavio.clock import Clock
from snavio.domain.route_health import QueueLook
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.v1.mailbox_pb2 import StatsRequest, StatsResponse, TopicStats

TOGETHER: Final = 1000
CALL_SECONDS: Final = 5.0
METHOD: Final = "/snavio.v1.Mailbox/Stats"


class MailboxLooks:
    """A `QueueLooks`."""

    def __init__(self, mailbox: MeshChannel, *, clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock

    async def look(self, topics: Sequence[str]) -> Mapping[str, QueueLook]:
        found: dict[str, QueueLook] = {}
        for start in range(0, len(topics), TOGETHER):
            part = topics[start : start + TOGETHER]
            try:
                answer = await self._mailbox.call(
                    METHOD, StatsRequest(topics=part), StatsResponse, timeout_s=CALL_SECONDS
                )
            except SnavioError as error:
                failure = f"the mailbox does not answer: {error.reason}"
                now = self._clock.unix_ns()
                found |= {topic: QueueLook(now, failure=failure) for topic in part}
                continue
            now = self._clock.unix_ns()
            empty = QueueLook(now, dead=0, settled_total=0)
            found |= dict.fromkeys(part, empty)
            found |= {told.topic: _look(told, now) for told in answer.topic}
        return found

    async def close(self) -> None:
        """The channel is the host's."""


def _look(told: TopicStats, now: int) -> QueueLook:
    return QueueLook(
        now,
        depth=told.ready + told.inflight,
        inflight=told.inflight,
        oldest_s=told.oldest_age_ms / 1e3 if told.ready + told.inflight else None,
        dead=told.dead,
        # What went to the DLQ by its age was settled by nobody.
        settled_total=told.acked_total + sum(n for why, n in told.died.items() if why != "expired"),
        last_received_unix_ns=told.last_received_unix_ns,
        last_receiver=told.last_receiver,
    )
