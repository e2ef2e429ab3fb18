"""Looks at the queue of a route as it is now: reachable, fit, with room; and at the ids that it remembers.

Never stores anything there, and never takes silence for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from snavio.domain.directory import QueueKind
from snavio.errors import BadRequest, SnavioError
from snavio.host.background import background
from snavio.host.shares import Shares
from snavio.ports.queue import ExaminedQueue, TargetQueue
from snavio.ports.queue_driver import QueueState
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call
from snavio.v1 import slow_pb2 as wire
from snavio.v1.mailbox_pb2 import ProbeRequest, ProbeResponse

TIMEOUT_S: Final = 2.0
MOST_LOOKS: Final = 64
"""Examinations under way at a time: each is several calls of a provider."""
MAX_TOPIC_CHARACTERS: Final = 256


class QueueStates:
    """Asks the mailbox, or the queue's own adapter."""

    def __init__(self, *, mailbox: MeshChannel, queues: Sequence[TargetQueue], shares: Shares) -> None:
        self._mailbox = mailbox
        self._queues = queues
        self._looks: dict[tuple[QueueKind, str], asyncio.Task[QueueState | SnavioError]] = {}
        self._shares = shares

    async def examine(self, request: wire.ExamineQueueRequest, _call: Call) -> wire.QueueForecast:
        """The state of one queue; Unavailable where it cannot be asked."""
        try:
            kind = QueueKind(request.queue_kind)
        except ValueError:
            raise BadRequest("queue_kind: there is no such kind of queue.", reason="bad-field") from None
        if not 0 < len(request.topic) <= MAX_TOPIC_CHARACTERS:
            raise BadRequest("topic: not the name of one.", reason="bad-field")
        state, _ = await self.of(kind, request.topic)
        return state

    async def of(
        self, kind: QueueKind, topic: str, *, source: str = "", command_id: str = ""
    ) -> tuple[wire.QueueForecast, ProbeResponse | None]:
        """The state of one queue, and the mailbox's answer where it is the mailbox's."""
        if kind is QueueKind.MAILBOX:
            probe = await self._mailbox.call(
                "/snavio.v1.Mailbox/Probe",
                ProbeRequest(topic=topic, source=source, command_id=command_id),
                ProbeResponse,
                timeout_s=TIMEOUT_S,
            )
            return wire.QueueForecast(
                reached=True, flaw=probe.full, waiting=probe.waiting, room=probe.room, full=bool(probe.full)
            ), probe
        found = await self._look(kind, topic)
        return wire.QueueForecast(
            reached=True, flaw=found.flaw, waiting=found.waiting, room=found.room, full=found.full
        ), None

    async def _look(self, kind: QueueKind, topic: str) -> QueueState:
        """One look at a queue at a time, whoever asks; and no tenant's questions keep a provider busy for all."""
        under_way = self._looks.get((kind, topic))
        if under_way is None:
            queue, tenant = self._queues[kind - 1], topic.partition("/")[0]
            assert isinstance(queue, ExaminedQueue)
            self._shares.take(tenant)
            under_way = background().once("examination", _told(queue, topic))
            self._looks[kind, topic] = under_way

            def done(_task: object) -> None:
                del self._looks[kind, topic]
                self._shares.give_back(tenant)

            under_way.add_done_callback(done)
        found = await asyncio.shield(under_way)
        if isinstance(found, SnavioError):
            raise found
        return found

    async def or_silence(
        self, kind: QueueKind, topic: str, *, source: str, command_id: str
    ) -> tuple[wire.QueueForecast, ProbeResponse | None]:
        """As `of`; what could not be asked says so."""
        try:
            return await self.of(kind, topic, source=source, command_id=command_id)
        except SnavioError as error:
            return wire.QueueForecast(flaw=str(error)), None


async def _told(queue: ExaminedQueue, topic: str) -> QueueState | SnavioError:
    try:
        return await queue.examine(topic, timeout_s=TIMEOUT_S)
    except SnavioError as error:
        # That a queue is away is no failure of ours, and is told to everybody who asked.
        return error
