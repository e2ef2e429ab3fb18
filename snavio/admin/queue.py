"""Looks after topics: what waits, what is dead and why, and puts it right. For operators and a tenant's principals.

Never changes by filter what was not shown before: `Preview.apply` is the only way, and it changes no more than that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.message import Attempt, AttemptOutcome, MessageState
from snavio.rpc.capability import CapabilityScope
from snavio.rpc.channel import MeshChannel
from snavio.rpc.proto_message import ProtoMessage
from snavio.sdk.lifetime import Closable
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.v1 import mailbox_pb2 as wire

SERVICE = "/snavio.v1.Mailbox/"
CALL_SECONDS = 30.0
PAGE = 200
MOST_IDS = 10_000
OPERATIONS = ("stats", "peek", "list", "manage")

M = TypeVar("M", bound=ProtoMessage)
V = TypeVar("V", "TopicStats", "TopicMessage")


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic in numbers."""

    topic: str
    ready: int
    inflight: int
    delivered: int
    dead: int
    canceled: int
    capacity: int
    oldest_age_ms: int
    dlq_profile: str
    """`durable`, or `ephemeral` when a restart empties the DLQ."""
    died: Mapping[str, int] = field(default_factory=dict)
    """Since the mailbox started, by reason."""
    stored_total: int = 0
    """Messages that were taken in since the mailbox started."""
    acked_total: int = 0
    """Messages that were acknowledged since then."""
    oldest_ready_unix_ns: int = 0
    """When the oldest that may be received now was stored; 0 when there is none."""
    earliest_run_unix_ns: int = 0
    """Since when, or from when on, the message that waits longest may be received; 0 when none waits."""
    when_full: str = ""
    """`refuse`, or `bury-oldest`."""

    @property
    def saturation(self) -> float:
        """From 0 (empty) to 1 (refuses senders)."""
        return min(1.0, (self.ready + self.inflight) / self.capacity) if self.capacity else 0.0


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """One message as it is now."""

    msg_id: int
    state: MessageState
    attempt: int
    stored_unix_ns: int
    next_run_at_unix_ns: int
    source: str
    command_id: str
    target: str
    name: str
    content_type: str
    payload_bytes: int
    payload: bytes
    """Empty unless it was asked for."""
    reason: str
    """Why it is dead or canceled."""
    last_error: str
    ended_unix_ns: int
    attempts: tuple[Attempt, ...]
    """The last ones that failed, oldest first."""
    unreadable: bool
    """Its bytes are not what was stored."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    idem_key: str = ""
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a change: nothing has happened yet."""

    matched: int
    samples: tuple[TopicMessage, ...]
    _queue: QueueClient = field(repr=False)
    _request: Any = field(repr=False)

    async def apply(self) -> int:
        """Do it, to no more messages than were matched; how many were changed.

        Conflict when more match by now, or when the preview is older than ten minutes: look again.
        """
        return (await self._queue.change(self._request)).changed  # type: ignore[no-any-return]


class QueueClient(Closable):
    """A client of the mailbox for those who look after it, under the certificate in `certificates`.

    `realm` is what the capability is asked for: a topic, `<tenant>/*`, or `*` for an operator; `operations` what it
    allows: Signer makes none that allows more than its holder may do, so services ask for `stats` and `peek`.
    """

    def __init__(
        self,
        mailbox: str,
        *,
        certificates: Path,
        realm: str = "*",
        operations: tuple[str, ...] = OPERATIONS,
        signer: str | None = None,
        capability: str | None = None,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        self._channel = mailbox_channel(
            mailbox,
            CapabilityScope(realm, operations),
            certificates=certificates,
            signer=signer,
            capability=capability,
            trust_domain=trust_domain,
        )

    @classmethod
    def over(cls, channel: MeshChannel) -> QueueClient:
        """A client over a channel that there is already."""
        queue = cls.__new__(cls)
        queue._channel = channel
        return queue

    async def close(self) -> None:
        """Let go of the connection."""
        await self._channel.close()

    # -- looking -------------------------------------------------------------------------------------

    async def stats(self, topic: str = "") -> list[TopicStats]:
        """One topic in numbers, or all that the caller may see."""
        answer = await self._call("Stats", wire.StatsRequest(topic=topic), wire.StatsResponse)
        return [_same_fields(TopicStats, one, died=dict(one.died)) for one in answer.topic]

    async def peek(self, topic: str, *, limit: int = 10) -> list[TopicMessage]:
        """The oldest ready messages with their payloads; leases are untouched."""
        request = wire.PeekRequest(topic=topic, limit=limit)
        answer = await self._call("Peek", request, wire.ListResponse)
        return [_message(one) for one in answer.message]

    async def page(
        self,
        topic: str,
        *states: MessageState,
        after: int = 0,
        limit: int = PAGE,
        payload: bool = False,
        newest_first: bool = False,
        **only: Any,
    ) -> tuple[list[TopicMessage], int]:
        """A page of messages, and where the next one begins; 0 at the end. `only` is as for `messages`."""
        request = wire.ListRequest(
            topic=topic,
            filter=_filter(states, only),
            limit=limit,
            after=after,
            payload=payload,
            newest_first=newest_first,
        )
        answer = await self._call("List", request, wire.ListResponse)
        return [_message(one) for one in answer.message], answer.next

    async def messages(
        self,
        topic: str,
        *states: MessageState,
        payload: bool = False,
        newest_first: bool = False,
        **only: Any,
    ) -> AsyncIterator[TopicMessage]:
        """Every message in one of `states`, or in any, in order of id, or the newest first.

        `only` narrows: source, name, command_id, dead_reason, min_attempts, attribute (a mapping), idem_key,
        stored_from_unix_ns, stored_before_unix_ns.
        """
        after = 0
        while True:
            found, after = await self.page(
                topic, *states, after=after, payload=payload, newest_first=newest_first, **only
            )
            for one in found:
                yield one
            if not after:
                return

    def dlq(self, topic: str, *, payload: bool = False, **only: Any) -> AsyncIterator[TopicMessage]:
        """Every dead message."""
        return self.messages(topic, MessageState.DEAD, payload=payload, **only)

    # -- changing, by id -----------------------------------------------------------------------------

    async def cancel(self, topic: str, msg_ids: Iterable[int], *, reason: str = "") -> int:
        """Take messages out, dead ones too; how many. They can be resumed."""
        return await self._by_ids(wire.OPERATION_CANCEL, topic, msg_ids, reason)

    async def resume(self, topic: str, msg_ids: Iterable[int], *, reason: str = "") -> int:
        """Put canceled messages back, at the attempt that they had reached; how many."""
        return await self._by_ids(wire.OPERATION_RESUME, topic, msg_ids, reason)

    async def requeue(self, topic: str, msg_ids: Iterable[int], *, reason: str = "") -> int:
        """Make dead, canceled, delivered or delayed messages ready now, with all attempts before them; how many."""
        return await self._by_ids(wire.OPERATION_REQUEUE, topic, msg_ids, reason)

    async def purge(self, topic: str, msg_ids: Iterable[int], *, reason: str = "") -> int:
        """Delete messages; how many. There is no way back."""
        return await self._by_ids(wire.OPERATION_PURGE, topic, msg_ids, reason)

    # -- changing, by filter -------------------------------------------------------------------------

    async def preview_cancel(
        self, topic: str, *states: MessageState, reason: str = "", **only: Any
    ) -> Preview:
        """Preview of `cancel`."""
        return await self._preview(wire.OPERATION_CANCEL, topic, states, reason, only)

    async def preview_resume(self, topic: str, *, reason: str = "", **only: Any) -> Preview:
        """Preview of `resume`."""
        return await self._preview(wire.OPERATION_RESUME, topic, (MessageState.CANCELED,), reason, only)

    async def preview_requeue(
        self, topic: str, *states: MessageState, reason: str = "", **only: Any
    ) -> Preview:
        """Preview of `requeue`."""
        return await self._preview(wire.OPERATION_REQUEUE, topic, states, reason, only)

    async def preview_purge(
        self, topic: str, *states: MessageState, reason: str = "", **only: Any
    ) -> Preview:
        """Preview of `purge`; the states have to be named."""
        return await self._preview(wire.OPERATION_PURGE, topic, states, reason, only)

    async def preview_reprocess(self, topic: str, *, reason: str = "", **only: Any) -> Preview:
        """Preview of the DLQ messages that would be ready again."""
        return await self.preview_requeue(topic, MessageState.DEAD, reason=reason, **only)

    async def preview_delete_dead(self, topic: str, *, reason: str = "", **only: Any) -> Preview:
        """Preview of the DLQ messages that would be deleted."""
        return await self.preview_purge(topic, MessageState.DEAD, reason=reason, **only)

    # -- the wire ------------------------------------------------------------------------------------

    async def change(self, request: wire.ChangeRequest) -> Any:
        """As the request says."""
        return await self._call("Change", request, wire.ChangeResponse)

    async def _call(self, method: str, request: ProtoMessage, response: type[M]) -> M:
        return await self._channel.call(SERVICE + method, request, response, timeout_s=CALL_SECONDS)

    async def _by_ids(self, operation: Any, topic: str, msg_ids: Iterable[int], reason: str) -> int:
        ids, changed = list(msg_ids), 0
        for first in range(0, len(ids), MOST_IDS):
            part = ids[first : first + MOST_IDS]
            request = wire.ChangeRequest(topic=topic, operation=operation, msg_id=part, reason=reason)
            changed += (await self.change(request)).changed
        return changed

    async def _preview(
        self,
        operation: Any,
        topic: str,
        states: tuple[MessageState, ...],
        reason: str,
        only: Mapping[str, Any],
    ) -> Preview:
        wanted = _filter(states, only)
        request = wire.ChangeRequest(topic=topic, operation=operation, filter=wanted, reason=reason)
        asked = wire.ChangeRequest()
        asked.CopyFrom(request)
        asked.preview = True
        seen = await self.change(asked)
        request.token = seen.token
        return Preview(seen.matched, tuple(_message(one) for one in seen.sample), self, request)


def _filter(states: tuple[MessageState, ...], only: Mapping[str, Any]) -> wire.Filter:
    wanted: Any = wire.Filter(**only)
    wanted.state.extend(int(state) for state in states)
    return wanted  # type: ignore[no-any-return]


def _message(view: Any) -> TopicMessage:
    return _same_fields(
        TopicMessage,
        view,
        state=MessageState(view.state),
        attempts=tuple(
            Attempt(one.attempt, one.at_unix_ns, AttemptOutcome(one.outcome), one.reason)
            for one in view.attempt_record
        ),
        attributes=dict(view.attribute),
    )


def _same_fields(kind: type[V], view: Any, **other: Any) -> V:
    """A value with the fields of the message that have the same name, and with `other`."""
    same = (each.name for each in fields(kind) if each.name not in other)
    return kind(**{name: getattr(view, name) for name in same}, **other)
