"""Sends messages to several topics of one tenant at a time: each group is stored in all of its topics, or in none.

Never sends a group twice by itself: an answer that was lost is Unavailable, and a caller that repeats the group gives
its messages keys. Groups that are sent at the same time go in one call, and cost the mailbox one fsync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.varint import varint
from snavio.domain.verdict import Verdict
from snavio.errors import FrameTooLarge, SnavioError, Unavailable
from snavio.rpc.capability import CapabilityScope
from snavio.rpc.channel import MeshChannel
from snavio.sdk.lifetime import Closable
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.sdk.mailer import CALL_SECONDS, NewMessage, Sent
from snavio.v1.mailbox_pb2 import SendAllResponse, SendGroup, SendPart

METHOD = "/snavio.v1.Mailbox/SendAll"
MAX_REQUEST_BYTES = 1 << 20
CALL_BYTES = 512 << 10
CALL_GROUPS = 500
CALL_COPIES = 4000
COPIED_BYTES = 8 << 20
CALLS_AT_ONCE = 2
"""With fewer under way, what is sent goes at once; behind them it waits for company."""
MOST_CALLS = 8
LINGER_SECONDS = 0.001
_GROUP_TAG = b"\x0a"


@dataclass(frozen=True, slots=True)
class GroupPart:
    """Messages that are each stored in every one of `topics`."""

    topics: tuple[str, ...]
    messages: tuple[NewMessage, ...]


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Messages of which all are stored or none.

    With `refuse_duplicates` a key that is known already refuses the group; without, that message is not stored again,
    and the others are stored.
    """

    parts: tuple[GroupPart, ...]
    refuse_duplicates: bool = False

    @classmethod
    def of(
        cls, topics: Sequence[str], message: NewMessage, *, refuse_duplicates: bool = False
    ) -> MessageGroup:
        """One message for several topics."""
        return cls((GroupPart(tuple(topics), (message,)),), refuse_duplicates)

    @property
    def copies(self) -> int:
        """Number of messages to store."""
        return sum(len(part.topics) * len(part.messages) for part in self.parts)

    def serialise(self) -> bytes:
        """As a request has it."""
        group = SendGroup(
            part=[
                SendPart(topic=part.topics, message=[one.on_the_wire() for one in part.messages])
                for part in self.parts
            ],
            refuse_duplicates=self.refuse_duplicates,
        )
        serialised: bytes = group.SerializeToString()
        return serialised


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The result of a group. `sent` has every copy, by part, topic and message, also when nothing was stored."""

    sent: tuple[Sent, ...]
    reason: str = ""
    """Why nothing was stored: `duplicate`, `conflict`, `saturated` or another stable word; empty when it was."""
    detail: str = ""
    retry_after_ms: int = 0

    @property
    def stored(self) -> bool:
        """All of it is in its topics, some of it perhaps from before."""
        return not self.reason

    @property
    def duplicate(self) -> bool:
        """All of it was there before."""
        return self.stored and all(one.duplicate for one in self.sent)


@dataclass(slots=True)
class _Waiting:
    body: bytes
    copies: int
    done: asyncio.Future[GroupOutcome]


class GroupMailer(Closable):
    """For the topics of one tenant's own, under the certificate of one of its services in `certificates`.

    `realm` is what the capability is asked for, such as `acme/own/*`. Lives on one event loop.
    """

    def __init__(
        self,
        mailbox: str,
        realm: str,
        *,
        certificates: str | Path,
        signer: str | None = None,
        capability: str | None = None,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        channel = mailbox_channel(
            mailbox,
            CapabilityScope(realm, ("send",)),
            certificates=certificates,
            signer=signer,
            capability=capability,
            trust_domain=trust_domain,
        )
        self._begin(channel)

    @classmethod
    def over(cls, channel: MeshChannel) -> GroupMailer:
        """A client over a channel that there is already."""
        mailer = cls.__new__(cls)
        mailer._begin(channel)
        return mailer

    def _begin(self, channel: MeshChannel) -> None:
        self._channel = channel
        self._waiting: list[_Waiting] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def close(self) -> None:
        """Send what waits, hear its answers, and let go of the connection."""
        self._closed = True
        while self._waiting or self._calls:
            self._go(linger=False)
            await asyncio.wait(self._calls)
        await self._channel.close()

    async def send(self, group: MessageGroup) -> GroupOutcome:
        """Store a group; durable when this returns. Raises what refuses the call as a whole."""
        return await self.send_serialised(group.serialise(), group.copies)

    async def send_serialised(self, body: bytes, copies: int) -> GroupOutcome:
        """The same for a serialised SendGroup with so many copies of messages."""
        if self._closed:
            raise Unavailable("The mailer is closed.", reason="stopping")
        if len(body) + 8 > MAX_REQUEST_BYTES:
            raise FrameTooLarge(
                f"A group has at most {MAX_REQUEST_BYTES - 8} bytes; this one has {len(body)}."
            )
        waiting = _Waiting(body, copies, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._go(linger=True)
        return await waiting.done

    def _go(self, *, linger: bool) -> None:
        if self._timer is not None and not linger:
            self._timer.cancel()
            self._timer = None
        while self._waiting and len(self._calls) < MOST_CALLS:
            if linger and len(self._calls) >= CALLS_AT_ONCE:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._lingered)
                return
            # Not here and now: what is sent in this same turn of the loop comes along.
            call = asyncio.get_running_loop().create_task(self._call(), name="send groups")
            self._calls.add(call)
            call.add_done_callback(self._ended)
            if linger:
                return

    def _lingered(self) -> None:
        self._timer = None
        self._go(linger=False)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._go(linger=len(self._calls) >= CALLS_AT_ONCE)

    def _take(self) -> list[_Waiting]:
        """The groups that go into one call, in order."""
        size = copies = copied = 0
        for number, one in enumerate(self._waiting):
            size += len(one.body)
            copies += one.copies
            copied += len(one.body) * one.copies
            full = size > CALL_BYTES or copies > CALL_COPIES or copied > COPIED_BYTES
            if number and (full or number >= CALL_GROUPS):
                break
        else:
            number = len(self._waiting)
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken

    async def _call(self) -> None:
        taken = self._take()
        if not taken:
            return
        try:
            request = b"".join(_GROUP_TAG + varint(len(one.body)) + one.body for one in taken)
            answer = await self._channel.call_raw(METHOD, request, timeout_s=CALL_SECONDS)
            outcomes = read_outcomes(answer, [one.copies for one in taken])
        except SnavioError as error:
            for one in taken:
                if not one.done.done():
                    one.done.set_exception(error)
            return
        except BaseException:
            for one in taken:
                one.done.cancel()
            raise
        for one, outcome in zip(taken, outcomes, strict=True):
            if not one.done.done():
                one.done.set_result(outcome)


def read_outcomes(answer: bytes, copies: Sequence[int]) -> list[GroupOutcome]:
    """The result of each group of a request, by the number of copies that it has."""
    told: Any = SendAllResponse.FromString(answer)
    ids: Sequence[int] = told.msg_id
    codes: bytes = told.codes
    if not len(ids) == len(codes) == sum(copies):
        raise Unavailable("The mailbox's answer is not one to this request.", reason="malformed")
    refused = {one.group: one for one in told.refusal}
    outcomes: list[GroupOutcome] = []
    at = 0
    for number, count in enumerate(copies):
        sent = tuple(map(_sent, ids[at : at + count], codes[at : at + count]))
        at += count
        if (why := refused.get(number)) is None:
            outcomes.append(GroupOutcome(sent))
        else:
            outcomes.append(GroupOutcome(sent, why.reason or "refused", why.detail, why.retry_after_ms))
    return outcomes


def _sent(msg_id: int, code: int) -> Sent:
    return Sent(msg_id, Verdict(code))
