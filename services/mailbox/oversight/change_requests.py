"""Carries out what operators and owners ask for: changes by id or, after a preview, by filter.

Never changes more by filter than a preview has shown, and never answers before the disk has it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from services.mailbox.delivery.topic_locks import TopicLocks
from services.mailbox.oversight.listing import Chosen, Filter, Listing, SeenMessage
from services.mailbox.settle.changes import CHANGES, MessageOperation, Order, change, changeable
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.receipts import ID_STRIDE
from services.mailbox.state.settling import Settling
from snavio.clock import Clock
from snavio.domain.message import KEPT_STATES, MessageState, bounded
from snavio.errors import BadRequest, Conflict, NotFound, Saturated
from snavio.ports.mailbox_store import BatchRecord, MailboxStore

SAMPLES = 10
TOKEN_SECONDS = 600
MAX_IDS = 10_000
WORKING_TOPICS = 1024
_TOKEN = struct.Struct("<QQQ")
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """A requested change, by ids or by filter."""

    topic: str
    operation: MessageOperation
    ids: Sequence[int] = ()
    wanted: Filter | None = None
    reason: str = ""

    def order(self, *, now_unix_ns: int, age_ns: int) -> Order:
        """The change to make."""
        states = self.wanted.states if self.wanted is not None else KEPT_STATES
        return Order(self.operation, states, bounded(self.reason), now_unix_ns, age_ns)


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """Outcome of a change: messages that it names, messages that were changed, and a preview's samples and token."""

    matched: int
    changed: int = 0
    samples: list[SeenMessage] = field(default_factory=list)
    token: bytes = b""


class Oversight:
    """Lives on one event loop. One change of a topic at a time."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        listing: Listing,
        settlements: Settlements,
        store: MailboxStore,
        clock: Clock,
    ) -> None:
        self._delivery = delivery
        self._listing = listing
        self._settlements = settlements
        self._store = store
        self._clock = clock
        # Of this life of the mailbox: a preview from before a restart has to be made again.
        self._secret = secrets.token_bytes(32)
        self._locks = TopicLocks()

    async def preview(self, wish: RequestedChange) -> ChangeOutcome:
        """Count what the request would change, with samples and a token to have it done."""
        through = self._through(wish.topic)
        matched = 0
        samples: list[SeenMessage] = []
        async for part in self._matching(wish, through):
            matched += sum(one.bits.bit_count() for one in part)
            for one in part:
                if len(samples) < SAMPLES:
                    samples += await self._sights(wish.topic, one, SAMPLES - len(samples))
        return ChangeOutcome(matched, samples=samples, token=self._token(wish, through, matched))

    async def carry_out(self, wish: RequestedChange, token: bytes = b"") -> ChangeOutcome:
        """Do it. With a filter, Conflict unless `token` is from a preview of the same that still holds."""
        through, most = self._through(wish.topic), len(wish.ids)
        if wish.wanted is not None:
            through, most = self._allowed(wish, token)
            now = 0
            async for part in self._matching(wish, through):
                now += sum(one.bits.bit_count() for one in part)
            if now > most:
                raise Conflict(
                    f"{now} messages match now, the preview had {most}: look again.",
                    reason="preview-outdated",
                )
        matched = changed = 0
        async with self.turn(wish.topic):
            async for part in self._matching(wish, through):
                matched += sum(one.bits.bit_count() for one in part)
                self._require_room(wish, part)
                changed += await self.apply(wish, part, most - changed)
                if wish.wanted is not None and changed >= most:
                    break
        return ChangeOutcome(matched, changed)

    async def apply(self, wish: RequestedChange, part: Sequence[Chosen], most: int) -> int:
        """Change what of these is still as it was, at most so many; how many. The caller has the topic's turn."""
        order = wish.order(now_unix_ns=self._clock.unix_ns(), age_ns=self._delivery.transitions.age_ns())
        adopted = [(await self._adopt(wish.topic, one.record), one.bits) for one in part]
        # No await from here to `begin`: the messages that are counted are those that are moved.
        settling, changed = Settling(), 0
        for batch, asked in adopted:
            if batch is None:
                continue
            bits = _lowest(changeable(batch, order, asked), most - changed)
            moved = change(settling, batch, order, bits) if bits else 0
            changed += moved
            if not moved:
                self._delivery.transitions.disown(wish.topic, batch)
        self._delivery.transitions.begin(settling)
        await self._settlements.stored(settling)
        return changed

    async def _adopt(self, topic: str, record: BatchRecord) -> Batch | None:
        batch = self._delivery.transitions.adopt(topic, record)
        if batch is None:
            fresh = await self._record(topic, record.batch_id)
            batch = self._delivery.transitions.adopt(topic, fresh) if fresh else None
        return batch

    def _require_room(self, wish: RequestedChange, part: Sequence[Chosen]) -> None:
        """Bringing messages back takes up room, as sending them did; dead ones had given theirs up."""
        topic = self._delivery.topics.topic(wish.topic)
        if topic is None or wish.operation not in (MessageOperation.REQUEUE, MessageOperation.RESUME):
            return
        by_shard: Counter[int] = Counter()
        for one in part:
            by_shard[one.record.shard] += one.bits.bit_count()
        for shard, messages in by_shard.items():
            if self._delivery.topics.surplus(wish.topic, messages, shard) > 0:
                hint = self._delivery.limits.retry_after_ms
                raise Saturated("The topic is full.", retry_after_ms=hint)

    async def _matching(self, wish: RequestedChange, through: int) -> AsyncIterator[list[Chosen]]:
        order = wish.order(now_unix_ns=0, age_ns=0)
        if wish.wanted is None:
            yield await self._by_ids(wish, order)
            return
        async for part in self._listing.chosen(wish.topic, wish.wanted, through=through):
            yield [one for chosen in part if (one := self._now(wish.topic, order, chosen)).bits]

    async def _by_ids(self, wish: RequestedChange, order: Order) -> list[Chosen]:
        if len(wish.ids) > MAX_IDS:
            raise BadRequest(f"More than {MAX_IDS} message ids.", reason="too-many-ids")
        bits: dict[int, int] = {}
        for msg_id in wish.ids:
            bits[msg_id // ID_STRIDE] = bits.get(msg_id // ID_STRIDE, 0) | 1 << msg_id % ID_STRIDE
        found: list[Chosen] = []
        for batch_id, some in bits.items():
            record = await self._record(wish.topic, batch_id)
            if record is not None:
                found.append(self._now(wish.topic, order, Chosen(record, some)))
        return [one for one in found if one.bits]

    def _now(self, topic: str, order: Order, chosen: Chosen) -> Chosen:
        batch = self._listing.batch(topic, chosen.record)
        return Chosen(chosen.record, changeable(batch, order, chosen.bits))

    async def _record(self, topic: str, batch_id: int) -> BatchRecord | None:
        return await self._listing.run(lambda: self._store.record(topic, batch_id))

    async def _sights(self, topic: str, chosen: Chosen, most: int) -> list[SeenMessage]:
        first = chosen.record.batch_id * ID_STRIDE
        some, _ = await self._listing.page(topic, Filter(), after=first - 1, limit=ID_STRIDE)
        return [
            one for one in some if chosen.bits >> (one.msg_id - first) & 1 and one.msg_id < first + ID_STRIDE
        ][:most]

    def _through(self, topic: str) -> int:
        known = self._delivery.topics.topic(topic)
        if known is None:
            raise NotFound("There is no such topic.", reason="unknown-topic")
        return known.last_id

    @asynccontextmanager
    async def turn(self, topic: str) -> AsyncIterator[None]:
        """Be the only one who changes the topic's messages, apart from those who receive and settle them."""
        if len(self._locks) >= WORKING_TOPICS:
            raise Saturated("Too many topics are being changed.", retry_after_ms=1000)
        async with self._locks.of(topic):
            # A change whose caller went away is still on its way: a read of the disk before then is out of date.
            known = self._delivery.topics.topic(topic)
            await self._settlements.over(known.adopted.values() if known else ())
            yield

    # -- tokens ----------------------------------------------------------------------------------------

    def _token(self, wish: RequestedChange, through: int, matched: int) -> bytes:
        until = self._clock.mono_ns() + TOKEN_SECONDS * _SECOND
        told = _TOKEN.pack(until, through, matched)
        return told + self._seal(wish, told)

    def _allowed(self, wish: RequestedChange, token: bytes) -> tuple[int, int]:
        """Up to which batch, and how many messages, the token allows to change."""
        if not token:
            raise BadRequest("A change by filter needs the token of its preview.", reason="no-preview")
        told = token[: _TOKEN.size]
        if len(told) < _TOKEN.size or not hmac.compare_digest(token[_TOKEN.size :], self._seal(wish, told)):
            raise Conflict("The token is not from a preview of this request.", reason="preview-mismatch")
        until, through, matched = _TOKEN.unpack(told)
        if self._clock.mono_ns() >= until:
            raise Conflict("The preview is too old: look again.", reason="preview-outdated")
        return through, matched

    def _seal(self, wish: RequestedChange, told: bytes) -> bytes:
        wanted = wish.wanted or Filter()
        rest = replace(wanted, states=frozenset())
        asked = repr((wish.topic, int(wish.operation), sorted(wanted.states), rest)).encode()
        return hmac.digest(self._secret, told + hashlib.sha256(asked).digest(), "sha256")


def _lowest(bits: int, most: int) -> int:
    """The lowest `most` of the set bits."""
    while bits.bit_count() > max(0, most):
        bits &= ~(1 << bits.bit_length() - 1)
    return bits


def purgeable(states: frozenset[MessageState]) -> bool:
    """True when a purge may go by these states: all of them by default would be a slip of the hand."""
    return states != KEPT_STATES and bool(states & CHANGES[MessageOperation.PURGE])
