"""A received command, and the lease under which it is ours.

Never settles a message twice, and never one whose lease is known to be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from snavio.domain.message import bounded
from snavio.errors import BadRequest
from snavio.native import Received
from snavio.sdk.envelope import Envelope, envelope_of

if TYPE_CHECKING:
    from snavio.sdk.ack_buffer import AckBuffer

LONGEST_DELAY_MS = (1 << 32) - 1


class Integrity(IntEnum):
    """Outcome of comparing a message with its hashes; the numbers of `Received.integrity`."""

    UNVERIFIED = 0
    """The mailbox sent no hashes."""
    VERIFIED = 1
    NOT_AS_STORED = 2
    """It changed on its way from the mailbox."""
    NOT_AS_SENT = 3
    """It changed before the mailbox stored it."""


class Settlement(IntEnum):
    """Result of an `ack` or `nack`. From 1 on the numbers of `snavio.v1.Settlement`."""

    BUFFERED = 0
    """It is on its way to the mailbox with others."""
    DONE = 1
    LATE = 2
    """The lease had ended, so that another consumer may have the message; nothing changed."""
    GONE = 3
    """The message was settled before, or there is none; nothing changed."""


@dataclass(frozen=True, slots=True)
class Nack:
    """Options of a nack."""

    delay_ms: int | None
    """None leaves it to the mailbox."""
    reason: str = ""
    dead: bool = False
    unseen: bool = False
    """Given back unprocessed: the attempt does not count."""

    @classmethod
    def of(cls, *, delay_s: float | None, reason: str, dead: bool) -> Nack:
        """As a user says it. BadRequest for a delay that cannot be."""
        delay_ms = None if delay_s is None else round(delay_s * 1000)
        if delay_ms is not None and not 0 <= delay_ms <= LONGEST_DELAY_MS:
            raise BadRequest("delay_s is negative or too long.", reason="bad-delay")
        return cls(delay_ms, bounded(reason), dead)


class Lease:
    """The messages of one Receive that are not settled yet."""

    __slots__ = ("boot_epoch", "lost", "open", "renew_mono_ns", "spans", "until_mono_ns")

    def __init__(
        self, boot_epoch: int, messages: list[Received], *, now_mono_ns: int, visibility_ns: int
    ) -> None:
        self.boot_epoch = boot_epoch
        self.open: dict[int, int] = {message.msg_id: message.attempt for message in messages}
        """Message id → attempt."""
        self.lost: set[int] = set()
        self.spans: dict[int, Any] = {}
        """Spans of OpenTelemetry that end with the settlement of their message."""
        self.until_mono_ns = 0
        self.renew_mono_ns = 0
        self.renewed(now_mono_ns=now_mono_ns, visibility_ns=visibility_ns)

    def renewed(self, *, now_mono_ns: int, visibility_ns: int) -> None:
        """The mailbox counts the visibility from about now."""
        self.until_mono_ns = now_mono_ns + visibility_ns
        self.renew_mono_ns = now_mono_ns + visibility_ns // 2

    def lose(self, msg_ids: list[int]) -> int:
        """The mailbox does not know these as ours any more; how many of them were still open."""
        lost = [msg_id for msg_id in msg_ids if self.open.pop(msg_id, None) is not None]
        self.lost.update(lost)
        for msg_id in lost:
            self.end_span(msg_id, "lost")
        return len(lost)

    def end_span(self, msg_id: int, how: str) -> None:
        """A traced message was settled, or is not ours any more."""
        span = self.spans.pop(msg_id, None)
        if span is not None:
            span.set_attribute("snavio.settlement", how)
            span.end()


class Command:
    """One command for us. Settle it with `ack` or `nack`; until then its lease is extended."""

    __slots__ = ("_acks", "_lease", "_message")

    def __init__(self, message: Received, lease: Lease, acks: AckBuffer) -> None:
        self._message = message
        self._lease = lease
        self._acks = acks

    def __repr__(self) -> str:
        return f"Command({self.command_id!r}, {self.name!r} from {self.source!r}, attempt {self.attempt})"

    @property
    def msg_id(self) -> int:
        """The mailbox's number of this message."""
        return self._message.msg_id

    @property
    def attempt(self) -> int:
        """1 at the first delivery."""
        return self._message.attempt

    @property
    def stored_unix_ns(self) -> int:
        """Time at which the mailbox stored it, nanoseconds since the epoch."""
        return self._message.stored_unix_ns

    @property
    def source(self) -> str:
        """`<tenant>/<service>` that sent it, from its certificate."""
        return self._message.source

    @property
    def command_id(self) -> str:
        """The sender's id; the same in every attempt of the sender and of the mailbox."""
        return self._message.id

    @property
    def timestamp(self) -> str:
        """Time at which the sender signed it, as signed."""
        return self._message.timestamp

    @property
    def target(self) -> str:
        """The service that it is for."""
        return self._message.target

    @property
    def name(self) -> str:
        """Name of the command."""
        return self._message.name

    @property
    def content_type(self) -> str:
        """Media type of the payload; may be empty."""
        return self._message.content_type

    @property
    def payload(self) -> bytes:
        """As the sender gave it."""
        return self._message.payload

    @property
    def traceparent(self) -> str:
        """W3C trace context; not signed; may be empty."""
        return self._message.traceparent

    @property
    def admitted_unix_ns(self) -> int:
        """Time at which Shield admitted it, nanoseconds since the epoch."""
        return self._message.admitted_unix_ns

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes that its sender gave beside the payload; commands have none."""
        return dict(self._message.attrs)

    @property
    def shard(self) -> int:
        """The shard of the topic that it came from; messages of one shard come in their order."""
        return self._message.shard

    @property
    def verified(self) -> bool:
        """True when payload_hash and hash_chain match those of the mailbox; False when it sent none."""
        return self._message.integrity == Integrity.VERIFIED

    @property
    def envelope(self) -> Envelope:
        """Its envelope: hashes, computed from its bytes at every call."""
        return envelope_of(self._acks.topic, self._message)

    @property
    def lost(self) -> bool:
        """The lease has ended: another consumer may have the message, and settling it changes nothing."""
        return self._message.msg_id in self._lease.lost

    async def ack(self, *, durable: bool = False) -> Settlement:
        """Done with it, for good.

        Returns at once and goes to the mailbox with others; `durable` waits for the mailbox's fsync and tells
        what it said, or raises Unavailable when it said nothing in time.
        """
        settlement = self._acks.ack(self._lease, self._message.msg_id)
        if self._lease.spans:
            self._lease.end_span(self._message.msg_id, "ack")
        if durable and settlement is Settlement.BUFFERED:
            return await self._acks.confirmed_ack()
        return settlement

    async def nack(
        self, *, delay_s: float | None = None, reason: str = "", dead: bool = False, durable: bool = False
    ) -> Settlement:
        """Give it back, for another attempt not before `delay_s`; `reason` goes into the attempt record.

        Without a delay the mailbox waits at random, the longer the more attempts there were. `dead` allows no
        other attempt: it goes to the topic's DLQ, with the reason.
        """
        manner = Nack.of(delay_s=delay_s, reason=reason, dead=dead)
        settlement = self._acks.nack(self._lease, self._message.msg_id, manner)
        if self._lease.spans:
            self._lease.end_span(self._message.msg_id, "dead" if dead else "nack")
        if durable and settlement is Settlement.BUFFERED:
            return await self._acks.confirmed_nack(self._lease, manner)
        return settlement
