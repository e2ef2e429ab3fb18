"""Takes messages of tenants and mesh services: checks the topic's owner, stores them, and answers with their ids.

Never stores to a topic of a route for anybody but the mesh: that would go around Shield. Never
answers before the fsync.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.mailbox.access.quotas import QuotaTake
from services.mailbox.intake.batch_intake import FIRST, Admits
from services.mailbox.intake.commits import Commits, Committed
from services.mailbox.intake.send_commit import SendCommit
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.receipts import ID_STRIDE
from services.mailbox.state.topics import MILLISECOND
from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import (
    BadRequest,
    Conflict,
    FrameTooLarge,
    IntegrityError,
    NotAllowed,
    Saturated,
    SnavioError,
)
from snavio.native import read_new_messages, request_topic
from snavio.ports.mailbox_store import Keys, MailboxStore, NewBatch, Send
from snavio.v1.mailbox_pb2 import SendResponse

MAX_REQUEST_BYTES = 1 << 20
_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_OWN = re.compile(rf"({_NAME})/own/[a-z0-9][a-z0-9._-]{{0,127}}")
_ROUTE = re.compile(rf"{_NAME}/[a-z0-9][a-z0-9._-]{{0,127}}")
_NEW = Verdict.DELIVERED


def require_sender(topic: str, identity: Identity) -> None:
    """NotAllowed unless `identity` may send to `topic` at all; BadRequest for what is no topic."""
    own = _OWN.fullmatch(topic)
    if own is None and _ROUTE.fullmatch(topic) is None:
        raise BadRequest("A topic is `<tenant>/own/<name>`.", reason="topic")
    if identity.kind is IdentityKind.MESH:
        return
    if own is None:
        raise NotAllowed(
            "Topics of routes take commands through Shield; send to `<tenant>/own/<name>`.",
            reason="route-topic",
        )
    if identity.tenant != own[1]:
        raise NotAllowed("This topic belongs to another tenant.", reason="not-owner")


def topic_of(request: bytes) -> str:
    """Where a serialised SendRequest goes to; BadRequest when it cannot be one."""
    if len(request) > MAX_REQUEST_BYTES:
        raise FrameTooLarge(f"A request has at most {MAX_REQUEST_BYTES} bytes.")
    try:
        return request_topic(request)
    except ValueError as error:
        raise BadRequest(str(error), reason="malformed") from None


class MessageIntake:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        store: MailboxStore,
        commits: Commits,
        delivery: Delivery,
        storing: SendCommit,
        clock: Clock,
    ) -> None:
        self._store = store
        self._commits = commits
        self._delivery = delivery
        self._storing = storing
        self._clock = clock

    async def post(
        self, request: bytes, topic: str, *, identity: Identity, cert_serial: str, admits: Admits
    ) -> SendResponse:
        """Store the messages of a SendRequest for `topic`."""
        await self._commits.room()
        now = self._clock.unix_ns()
        policy = self._delivery.policies.of(topic)
        rows, fault = read_new_messages(
            request,
            topic=topic,
            source=identity.source if identity.kind is IdentityKind.SERVICE else f"mesh/{identity.name}",
            cert_serial=cert_serial,
            scope=identity.tenant or f"mesh/{identity.name}",
            now_unix_ns=now,
            secret=self._store.replay_secret,
            shards=policy.shards,
        )
        if fault is not None:
            raise refused(*fault)
        batches: list[NewBatch] = []
        numbers: list[int] = []
        for shard, delay_ms, replay_ms, runs, keys, indices in rows:
            if delay_ms > self._delivery.limits.max_delay_ms:
                most = self._delivery.limits.max_delay_ms
                raise BadRequest(f"delay_ms is over {most}.", reason="delay")
            not_before = now + delay_ms * MILLISECOND if delay_ms else 0
            named = Keys(keys, replay_ms or policy.replay_ms) if keys else None
            batches.append(
                NewBatch(topic, len(indices), runs, named, len(numbers), shard, not_before_unix_ns=not_before)
            )
            numbers += indices
        await self._storing.prepare(topic, len(numbers))
        taken = admits(topic, len(numbers))
        if not isinstance(taken, QuotaTake):
            raise stopped(*taken)
        send = Send(None, bytes([_NEW]) * len(numbers), tuple(batches))
        committed = await self._storing.store(send, (taken,))
        return _response(send, committed, numbers)


def refused(index: int, reason: str, sentence: str) -> SnavioError:
    """The answer to a request that cannot be taken, because of a message or as a whole."""
    if index >= 0:
        sentence = f"{sentence} (message {index})"
    if reason == FrameTooLarge.reason:
        return FrameTooLarge(sentence)
    if reason == IntegrityError.reason:
        return IntegrityError(sentence)
    return BadRequest(sentence, reason=reason)


def stopped(verdict: Verdict, retry_after_ms: int, sentence: str) -> SnavioError:
    """The reason against more messages of the caller."""
    if verdict is Verdict.SATURATED:
        return Saturated(sentence, retry_after_ms=retry_after_ms)
    return NotAllowed(sentence, reason="capability-scope")


def _response(send: Send, committed: Committed, numbers: Sequence[int]) -> SendResponse:
    recognised = committed.recognised
    assert recognised is not None
    codes = recognised.send.codes
    if len(codes) == 1 and codes[0] == Verdict.CONFLICT:
        raise Conflict("The idem_key was used with another payload.", reason="duplicate")
    if len(codes) == 1 and codes[0] == Verdict.SATURATED:
        raise Saturated(
            "The replay window holds all the keys it may.",
            retry_after_ms=recognised.retry_after_ms,
        )
    told, ordered = [0] * len(numbers), bytearray(len(numbers))
    for position, msg_id in enumerate(ids_of(send, committed)):
        told[numbers[position]], ordered[numbers[position]] = msg_id, codes[position]
    hint = recognised.retry_after_ms if Verdict.SATURATED in codes else 0
    return SendResponse(msg_id=told, codes=bytes(ordered), retry_after_ms=hint)


def ids_of(send: Send, committed: Committed) -> list[int]:
    """The id of every message of the send, as it came: its own, that of the first with its key, or 0."""
    assert committed.recognised is not None
    stored, found = iter(committed.ids), iter(committed.recognised.findings)
    told: list[int] = []
    for batch in send.batches:
        if batch.keys is None:
            first = next(stored) * ID_STRIDE
            told += range(first, first + batch.count)
            continue
        _, codes, firsts = next(found)
        own = iter(range(next(stored) * ID_STRIDE, 1 << 64)) if _NEW in codes else iter(())
        ids = [next(own) if code == _NEW else 0 for code in codes]
        for index, number, at, _ in FIRST.iter_unpack(firsts):
            if codes[index] == Verdict.DUPLICATE:
                ids[index] = at if number < 0 else committed.keyed_ids[number] * ID_STRIDE + at
        told += ids
    return told
