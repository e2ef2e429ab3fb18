"""Has the queue of a new route proved before the route is written: whose it is, its dead-letter queue, its encryption.

Never writes a route to a queue that could not be asked. Routes to the mailbox need no proof: the topic is the mesh's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from snavio.domain.directory import Difference, QueueKind, Route, Value
from snavio.domain.queue_address import address
from snavio.errors import BadRequest, SnavioError, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.v1 import slow_pb2 as wire

CALL_SECONDS: Final = 4.0
AT_ONCE: Final = 4
MOST: Final = 50
"""Queues of one request: each is a question to a provider, which one tenant must not keep busy for all."""


class QueueProofs:
    """Asks Slow, which sends to the queues and so sees what a command would see."""

    def __init__(self, slow: MeshChannel) -> None:
        self._slow = slow
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def require(self, routes: Iterable[Route]) -> None:
        """BadRequest `queue-unfit` with all that is wrong; Unavailable where a queue could not be asked."""
        queues = sorted({(route.queue_kind, route.topic) for route in routes})
        if len(queues) > MOST:
            raise BadRequest(
                f"The routes go to {len(queues)} queues that are not the mailbox's; at most {MOST} are proved at once.",
                reason="too-many-queues",
            )
        flaws = [flaw for flaw in await asyncio.gather(*(self._flaw(*queue) for queue in queues)) if flaw]
        if flaws:
            raise BadRequest(" ".join(flaws), reason="queue-unfit")

    async def _flaw(self, kind: QueueKind, topic: str) -> str:
        named = f"The {kind.name.lower()} queue {address(kind, topic)}"
        try:
            async with self._turns:
                state = await self._slow.call(
                    "/snavio.v1.Slow/ExamineQueue",
                    wire.ExamineQueueRequest(queue_kind=kind, topic=topic),
                    wire.QueueForecast,
                    timeout_s=CALL_SECONDS,
                )
        except SnavioError as error:
            raise Unavailable(
                f"{named} could not be examined, and no route is written to it before: {error}",
                reason="queue-unproven",
            ) from None
        # A full queue is fit: its consumers make room.
        return f"{named} is not fit for a route. {state.flaw}" if state.flaw and not state.full else ""


def newly_sent_to(differences: Iterable[Difference]) -> Sequence[Route]:
    """Routes that lead to another queue than before, but for those to the mailbox."""
    return [
        difference.after
        for difference in differences
        if isinstance(difference.after, Route) and is_new(difference.before, difference.after)
    ]


def is_new(before: Value | None, after: Route) -> bool:
    """True if the route leads to a foreign queue, and did not do so before."""
    if after.queue_kind is QueueKind.MAILBOX:
        return False
    same = isinstance(before, Route) and (before.queue_kind, before.topic) == (after.queue_kind, after.topic)
    return not same
