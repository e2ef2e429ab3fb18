"""Stores what was let in: requests that arrive together travel together, and each is stored whole or not at all.

Never answers before the mailbox has answered, and never takes more than its bound while the mailbox is slow.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from snavio.domain.verdict import Verdict
from snavio.errors import IntegrityError, Saturated, SnavioError, Unavailable
from snavio.host.background import background
from snavio.rpc.channel import MeshChannel
from snavio.v1.mailbox_pb2 import NewMessage, SendAllResponse, SendGroup

METHOD: Final = "/snavio.v1.Mailbox/SendAll"
MOST_GROUPS: Final = 1000
MOST_COPIES: Final = 4000
MOST_BYTES: Final = (1 << 20) - 4096
MOST_CALLS: Final = 2
MOST_WAITING_BYTES: Final = 64 << 20
MOST_DOUBTS: Final = 50_000
_DELIVERED, _DUPLICATE = Verdict.DELIVERED.value, Verdict.DUPLICATE.value
_GROUP_TAG: Final = b"\x0a"


@dataclass(frozen=True, slots=True)
class PostOutcome:
    """The fate of one request: a verdict, and the ids of its messages, one per topic."""

    verdict: Verdict
    msg_ids: tuple[int, ...] = ()
    retry_after_ms: int = 0
    detail: str = ""


class _WaitingGroup:
    __slots__ = ("copies", "data", "done", "key")

    def __init__(self, data: bytes, copies: int, key: str, done: asyncio.Future[PostOutcome]) -> None:
        self.data = data
        self.copies = copies
        self.key = key
        self.done = done


class Posting:
    """Lives on one event loop."""

    def __init__(self, mailbox: MeshChannel, *, call_s: float = 5.0) -> None:
        self._mailbox = mailbox
        self._call_s = call_s
        self._waiting: deque[_WaitingGroup] = deque()
        self._waiting_bytes = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._doubts: OrderedDict[str, None] = OrderedDict()
        self._closed = False
        self.stored = 0
        self.batches = 0

    async def post(self, topics: Sequence[str], message: NewMessage, *, once: bool = False) -> PostOutcome:
        """Store the message in every topic, or in none.

        With `once`, a key that is known already refuses it. Unavailable when nothing can be said of the outcome; the
        same request may then come again, and is not taken for a replay of itself.
        """
        group = SendGroup(refuse_duplicates=once)
        part = group.part.add()
        part.topic.extend(topics)
        part.message.append(message)
        data = group.SerializeToString()
        if self._closed:
            raise Unavailable("The gateway is ending.", reason="draining")
        if self._waiting_bytes + len(data) > MOST_WAITING_BYTES:
            raise Saturated("Too much is waiting for the mailbox.", retry_after_ms=1000)
        key = message.idem_key
        pending = _WaitingGroup(data, len(topics), key, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        self._waiting_bytes += len(data)
        self._schedule()
        outcome = await pending.done
        if self._doubts and key in self._doubts:
            outcome = self._settled(key, outcome)
        return outcome

    def gauges(self) -> dict[str, float]:
        """For operators."""
        return {"waiting": float(len(self._waiting)), "waiting_bytes": float(self._waiting_bytes)}

    async def close(self) -> None:
        """Wait for calls under way; what has not been sent is refused."""
        self._closed = True
        while self._waiting:
            self._fail(self._waiting.popleft(), Unavailable("The gateway is ending.", reason="draining"))
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._call_s + 1.0)

    def _settled(self, key: str, outcome: PostOutcome) -> PostOutcome:
        """The outcome of a key whose first attempt got no answer: if that one was stored, this is the same request."""
        del self._doubts[key]
        if outcome.verdict in (Verdict.DUPLICATE, Verdict.CONFLICT):
            return PostOutcome(
                Verdict.DELIVERED, outcome.msg_ids, detail="stored by an attempt without an answer"
            )
        return outcome

    def _schedule(self) -> None:
        if not self._scheduled and len(self._calls) < MOST_CALLS:
            # At the end of the loop's turn: all requests that were read in it go together.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        while self._waiting and len(self._calls) < MOST_CALLS:
            batch: list[_WaitingGroup] = []
            size = copies = 0
            waiting = self._waiting
            while waiting and len(batch) < MOST_GROUPS:
                first = waiting[0]
                if batch and (size + len(first.data) + 5 > MOST_BYTES or copies + first.copies > MOST_COPIES):
                    break
                size += len(first.data) + 5
                copies += first.copies
                batch.append(waiting.popleft())
            task = background().once("store requests", self._call(batch))
            self._calls.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if self._waiting:
            self._send()

    async def _call(self, batch: list[_WaitingGroup]) -> None:
        frame = b"".join(
            [part for each in batch for part in (_GROUP_TAG, _varint(len(each.data)), each.data)]
        )
        try:
            raw = await self._mailbox.call_raw(METHOD, frame, timeout_s=self._call_s)
            try:
                answer = SendAllResponse.FromString(raw)
            except DecodeError:
                raise IntegrityError("The mailbox's answer cannot be read.", reason="malformed") from None
            self._answered(batch, answer)
        except SnavioError as error:
            for each in batch:
                self._doubt(each, error)
        except asyncio.CancelledError:
            for each in batch:
                self._fail(each, Unavailable("The gateway is ending.", reason="draining"))
            raise
        except Exception as error:
            for each in batch:
                self._fail(each, Unavailable("The request could not be stored.", reason="internal"))
            background().failed("store requests", error)

    def _answered(self, batch: list[_WaitingGroup], answer: SendAllResponse) -> None:
        self.batches += 1
        ids, codes = answer.msg_id, answer.codes
        refusals = {each.group: each for each in answer.refusal}
        place = 0
        for number, pending in enumerate(batch):
            self._waiting_bytes -= len(pending.data)
            end = place + pending.copies
            found, said = tuple(ids[place:end]), codes[place:end]
            place = end
            refusal = refusals.get(number)
            if refusal is None:
                repeated = bool(said) and all(code == _DUPLICATE for code in said)
                self.stored += not repeated
                outcome = PostOutcome(Verdict.DUPLICATE if repeated else Verdict.DELIVERED, found)
            else:
                outcome = PostOutcome(
                    _verdict(refusal.reason),
                    found,
                    refusal.retry_after_ms,
                    f"{refusal.reason}: {refusal.detail}",
                )
            if not pending.done.done():
                pending.done.set_result(outcome)

    def _doubt(self, pending: _WaitingGroup, error: SnavioError) -> None:
        """Nothing is known of the outcome: a retry of the sender with the same key must not be called a replay."""
        if pending.key:
            self._doubts[pending.key] = None
            self._doubts.move_to_end(pending.key)
            while len(self._doubts) > MOST_DOUBTS:
                self._doubts.popitem(last=False)
        self._fail(pending, error)

    def _fail(self, pending: _WaitingGroup, error: SnavioError) -> None:
        self._waiting_bytes -= len(pending.data)
        if not pending.done.done():
            pending.done.set_exception(error)


def _verdict(reason: str) -> Verdict:
    match reason:
        case "duplicate":
            return Verdict.DUPLICATE
        case "conflict":
            return Verdict.CONFLICT
        case _:
            return Verdict.SATURATED


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
