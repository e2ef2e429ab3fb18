"""Turns a request into a signed command of one of the tenant's services.

Never sends under another identity than that of the route's source, and never answers before the mesh has decided.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from services.gateway.edge.answers import DUPLICATE, QUEUED, EdgeAnswer
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.edge.plan import CommandTarget
from snavio.errors import BadRequest, SnavioError, Unavailable
from snavio.host.background import background
from snavio.sdk.outcome import Outcome
from snavio.sdk.producer import Producer

SEND_SECONDS: Final = 5.0
MOST_TAGS: Final = 200_000
MOST_DOUBTS: Final = 50_000
RETRY_SECONDS: Final = 5.0
_log = structlog.get_logger(__name__)

Build = Callable[[str], Producer]
"""A producer of one of the tenant's services, not started."""
_STATUS: Final = {
    Verdict.ACL_DENY: 403,
    Verdict.SUSPENDED: 403,
    Verdict.FROZEN: 403,
    Verdict.ROUTE_MISSING: 404,
    Verdict.RATE_LIMIT_EXCEEDED: 429,
    Verdict.FAIRNESS_VIOLATION: 429,
    Verdict.CONFLICT: 409,
    Verdict.OVERSIZED: 413,
}


class ReplayTags:
    """Verified tags of commands under way and delivered. A command's id is its claim on a strict route; this keeps
    a replay out on the others, as long as this process lives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, int] = OrderedDict()
        self._doubts: OrderedDict[bytes, None] = OrderedDict()

    def claim(self, tag: bytes, window_ns: int) -> bool:
        """False for a tag that is claimed; Unavailable where no more can be remembered."""
        now = self._clock.mono_ns()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        if self._until.get(tag, 0) > now:
            return False
        if len(self._until) >= MOST_TAGS:
            # Forgetting one would let it in again.
            raise Unavailable("Too many signatures are remembered.", reason="replay-table-full")
        self._until[tag] = now + window_ns
        self._until.move_to_end(tag)
        return True

    def doubt(self, tag: bytes) -> None:
        """Nothing is known of what became of its request, which may come again: that is no replay."""
        self._doubts[tag] = None
        while len(self._doubts) > MOST_DOUBTS:
            self._doubts.popitem(last=False)

    def doubted(self, tag: bytes) -> bool:
        """True, once, for a tag in doubt."""
        return self._doubts.pop(tag, self) is None

    def release(self, tag: bytes) -> None:
        """Forget a tag whose request was not delivered."""
        self._until.pop(tag, None)


class Commanding:
    """Producers by source, started when a plan first names them and kept."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._producers: dict[str, Producer] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._why: dict[str, str] = {}

    def want(self, sources: set[str]) -> None:
        """Have a producer for each source, and for no other; each is started in the background."""
        for source in sources - set(self._starting):
            self._starting[source] = background().once(f"producer {source}", self._start(source))
        for source in set(self._starting) - sources:
            self._starting.pop(source).cancel()
            producer = self._producers.pop(source, None)
            if producer is not None:
                background().once(f"close producer {source}", producer.close())

    async def send(
        self,
        command: CommandTarget,
        payload: bytes,
        *,
        content_type: str,
        traceparent: str,
        command_id: str | None,
    ) -> Outcome:
        """Send it; Unavailable while the source's producer is not ready."""
        producer = self._producers.get(command.source)
        if producer is None:
            why = self._why.get(command.source, "it is being started")
            raise Unavailable(
                f"The service {command.source} cannot send yet: {why}.", reason="source-not-ready"
            )
        return await producer.send(
            command.target,
            command.name,
            payload,
            content_type=content_type,
            traceparent=traceparent,
            command_id=command_id,
            timeout_s=SEND_SECONDS,
        )

    async def close(self) -> None:
        """End all of them."""
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._producers.values()), return_exceptions=True)

    async def _start(self, source: str) -> None:
        while True:
            producer = self._build(source)
            try:
                await producer.start()
            except SnavioError as error:
                self._why[source] = str(error).rstrip(".")
                _log.warning(
                    "a source cannot send yet", source=source, reason=error.reason, detail=str(error)
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._why.pop(source, None)
            self._producers[source] = producer
            return


def command_id(route: str, *, delivery_id: str, tag: bytes) -> str | None:
    """The id that the same delivery always has; None where nothing tells one delivery from another."""
    if not delivery_id and not tag:
        return None
    seed = b"id\0" + delivery_id.encode("utf-8") if delivery_id else b"tag\0" + tag
    digest = bytearray(
        hashlib.blake2b(route.encode() + b"\0" + seed, digest_size=16, person=b"snavio-cmd").digest()
    )
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


def answer_of(outcome: Outcome) -> EdgeAnswer:
    """The answer for a verdict of the mesh."""
    verdict = outcome.verdict
    if verdict is Verdict.DUPLICATE:
        return EdgeAnswer(202, DUPLICATE, event_ids=(outcome.command_id,))
    if verdict.delivered:
        return EdgeAnswer(202, QUEUED, event_ids=(outcome.command_id,))
    status = _STATUS.get(verdict, 503)
    return EdgeAnswer(
        status,
        verdict.reason,
        "The command was not delivered."
        if verdict is not Verdict.OUTCOME_UNKNOWN
        else "Nothing is known of it yet.",
        retry_after_ms=outcome.retry_after_ms,
    )


def refused_fields(error: BadRequest) -> EdgeAnswer:
    """The answer when the mesh would refuse the form of a command."""
    return EdgeAnswer(
        413 if error.reason == "oversized" else 400, error.reason, "The mesh does not take this request."
    )
