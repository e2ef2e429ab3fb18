"""The mailbox on the wire: checks who may touch which topic, and translates between messages and rules.

Never decides about a message itself, never serves a call without a capability for it, and never tells a caller about
another tenant's topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from google.protobuf.message import DecodeError

from services.mailbox.access.capabilities import Capabilities, count_received
from services.mailbox.access.quotas import QuotaTake as Quota
from services.mailbox.delivery.receiving import Receiving, Wanted
from services.mailbox.intake.batch_intake import BatchIntake, Sender
from services.mailbox.intake.message_groups import GroupIntake
from services.mailbox.intake.new_messages import MessageIntake, require_sender, topic_of
from services.mailbox.settings import MailboxSettings
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.delivery import Delivery, NackTerms
from services.mailbox.state.receipts import LATE, receipts
from services.mailbox.wire.receive_stream import ReceiveStreams
from snavio.clock import Clock
from snavio.domain.caveat import Operation
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed, SnavioError
from snavio.hop.instance_names import InstanceNames
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.methods import read_strictly
from snavio.rpc.server import Call, Methods
from snavio.telemetry.latency import LatencyWindow
from snavio.v1.mailbox_pb2 import (
    AckRequest,
    ExtendRequest,
    NackRequest,
    ProbeRequest,
    ProbeResponse,
    ReceiveRequest,
    SettleResponse,
    StatsRequest,
    StatsResponse,
    TopicStats,
)

SERVICE = "/snavio.v1.Mailbox/"
WINDOW = 16
MIN_VISIBILITY_MS = 250
MAX_MESSAGES = 5000
MAX_RESPONSE_BYTES = 1 << 20
MAX_RECEIPTS = 20_000
MAX_REASON_BYTES = 256
NOT_TOLD = ("shards", "reorder_depth")
"""Of a topic's counts: they are for operators."""


class MailboxServicer:
    """One handler per method of `snavio.v1.Mailbox`."""

    def __init__(
        self,
        *,
        settings: MailboxSettings,
        delivery: Delivery,
        intake: BatchIntake,
        message_intake: MessageIntake,
        group_intake: GroupIntake,
        receiving: Receiving,
        settlements: Settlements,
        capabilities: Capabilities,
        gate: CertificateGate,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._delivery = delivery
        self._intake = intake
        self._message_intake = message_intake
        self._group_intake = group_intake
        self._receiving = receiving
        self._settlements = settlements
        self._capabilities = capabilities
        self._gate = gate
        self._clock = clock
        self._instance_names = InstanceNames()
        self._asking: set[tuple[str, str]] = set()
        """Topics and connections with a receive under way."""
        self.enqueue = LatencyWindow(clock=clock)
        """Of sends, from their arrival to the answer after the fsync; one per batch."""

    def methods(self) -> Methods:
        """Everything this service answers."""
        methods = Methods()
        methods.stream_raw(SERVICE + "SendStream", self.send_stream)
        methods.unary_raw(SERVICE + "Send", self.send)
        methods.unary_raw(SERVICE + "SendAll", self.send_all)
        methods.unary_raw(SERVICE + "Receive", self.receive)
        streams = ReceiveStreams(receiving=self._receiving, opening=self.wanted, quota=self._quota)
        methods.stream_raw(SERVICE + "RecvStream", streams.serve)
        methods.unary(SERVICE + "Ack", self.ack, AckRequest, strict=True)
        methods.unary(SERVICE + "Nack", self.nack, NackRequest, strict=True)
        methods.unary(SERVICE + "Extend", self.extend, ExtendRequest, strict=True)
        methods.unary(SERVICE + "Probe", self.probe, ProbeRequest, strict=True)
        methods.unary(SERVICE + "Stats", self.stats, StatsRequest, strict=True)
        return methods

    async def send_stream(self, call: Call) -> None:
        """Hello, then batches; answers come as the disk allows, in any order."""
        stream = BatchStream(call, gate=self._gate, window=WINDOW)
        answer = mesh_hello(self._clock, in_flight=WINDOW)
        answer.instance, answer.epoch = "mailbox", self._delivery.boot_epoch
        try:
            # Before the first batch already: a sender that has no capability gets one before it has anything to resend.
            await stream.greet(
                answer,
                require=lambda: self._capabilities.check(call, Operation.SEND, None),
                names=self._instance_names,
            )
            assert stream.name is not None
            sender = Sender(stream.name.name, stream.name.epoch)
            async for frame in stream.batches():
                try:
                    grant = self._capabilities.check(call, Operation.SEND, None)
                except SnavioError:
                    # Not answered and not stored: its sender sends it again, with another capability.
                    stream.reply(b"", final=True)
                    raise
                await self._intake.take(
                    frame,
                    sender,
                    admits=grant.admits,
                    final=self._timed(lambda answer: stream.reply(answer, final=True)),
                )
        finally:
            await stream.finish()

    def _timed(self, answer: Callable[[bytes], None]) -> Callable[[bytes], None]:
        began = self._clock.mono_ns()

        def timed(verdicts: bytes) -> None:
            self.enqueue.add(self._clock.mono_ns() - began)
            answer(verdicts)

        return timed

    async def send(self, request: bytes, call: Call) -> bytes:
        """Store messages that are nobody's commands."""
        began = self._clock.mono_ns()
        topic = topic_of(request)
        identity = call.peer.identity
        require_sender(topic, identity)
        grant = self._capabilities.check(call, Operation.SEND, topic)
        response = await self._message_intake.post(
            request, topic, identity=identity, cert_serial=call.peer.cert_serial, admits=grant.admits
        )
        self.enqueue.add(self._clock.mono_ns() - began)
        serialised: bytes = response.SerializeToString()
        return serialised

    async def send_all(self, request: bytes, call: Call) -> bytes:
        """Store groups of messages, each in all of its topics or in none."""
        began = self._clock.mono_ns()
        grant = self._capabilities.check(call, Operation.SEND, None)
        response = await self._group_intake.post(
            request,
            identity=call.peer.identity,
            cert_serial=call.peer.cert_serial,
            admits=grant.admits,
            covers=lambda topic: self._capabilities.check(call, Operation.SEND, topic),
        )
        self.enqueue.add(self._clock.mono_ns() - began)
        return response

    async def receive(self, request: bytes, call: Call) -> bytes:
        """Lease messages; the response is framed around stored bytes."""
        try:
            asked = read_strictly(ReceiveRequest, request)
        except DecodeError:
            raise BadRequest("The request cannot be read.", reason="malformed") from None
        wanted = self.wanted(asked, call)
        wait_s = min(asked.wait_ms, self._settings.max_wait_ms) / 1000
        remaining_s = call.remaining_s()
        if remaining_s is not None:
            # An answer after the caller's deadline would lease messages that no consumer gets.
            wait_s = max(0.0, min(wait_s, remaining_s - 0.1))
        grant = self._capabilities.check(call, Operation.RECV, asked.topic)
        taken = grant.take(wanted.max_messages)
        received = b""
        caller = call.context.peer()
        asking = (asked.topic, caller)
        # With two receives at a time on one connection, the second says nothing about the answer to the first.
        alone = asking not in self._asking
        if alone:
            self._asking.add(asking)
            self._delivery.asked_again(*asking)
        try:
            received = await self._receiving.receive(
                replace(wanted, max_messages=taken.messages, wait_s=wait_s, caller=caller if alone else "")
            )
        finally:
            if alone:
                self._asking.discard(asking)
            count_received(received, taken)
        return received

    def wanted(self, asked: Any, call: Call) -> Wanted:
        """A request for messages, checked. It is good for as long as the caller's certificate and capability are."""
        holder = _owner(asked.topic, call)
        self._capabilities.check(call, Operation.RECV, asked.topic)
        self._check_visibility(asked.visibility_ms)
        if asked.max_messages > MAX_MESSAGES:
            raise BadRequest(f"max_messages is over {MAX_MESSAGES}.", reason="max-messages")

        def require_trust() -> None:
            self._gate.require(call.peer)
            self._capabilities.check(call, Operation.RECV, asked.topic)

        return Wanted(
            topic=asked.topic,
            holder=holder,
            visibility_ms=asked.visibility_ms,
            max_messages=asked.max_messages or MAX_MESSAGES,
            max_bytes=min(asked.max_bytes or MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES),
            wait_s=0.0,
            require_trust=require_trust,
            explain=asked.explain,
        )

    async def ack(self, request: Any, call: Call) -> SettleResponse:
        """End leases for good."""
        holder = _owner(request.topic, call)
        self._capabilities.check(call, Operation.ACK, request.topic)
        msg_ids, attempts = _lists(request.receipts)
        codes = await self._settlements.settle(
            request.topic, request.receipts.boot_epoch, msg_ids, attempts, holder=holder, final=True
        )
        return SettleResponse(codes=codes)

    async def nack(self, request: Any, call: Call) -> SettleResponse:
        """Give messages back, for the next attempt."""
        holder = _owner(request.topic, call)
        self._capabilities.check(call, Operation.NACK, request.topic)
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        if delay_ms is not None and delay_ms > self._settings.max_delay_ms:
            raise BadRequest(f"delay_ms is over {self._settings.max_delay_ms}.", reason="delay")
        if len(request.reason.encode()) > MAX_REASON_BYTES:
            raise BadRequest(f"reason is longer than {MAX_REASON_BYTES} bytes.", reason="reason-too-long")
        if request.dead and request.unseen:
            raise BadRequest("A message that nobody has seen cannot be called dead.", reason="dead-unseen")
        msg_ids, attempts = _lists(request.receipts)
        nack = NackTerms(delay_ms=delay_ms, dead=request.dead, unseen=request.unseen, reason=request.reason)
        codes = await self._settlements.settle(
            request.topic,
            request.receipts.boot_epoch,
            msg_ids,
            attempts,
            holder=holder,
            final=False,
            nack=nack,
        )
        return SettleResponse(codes=codes)

    async def extend(self, request: Any, call: Call) -> SettleResponse:
        """Move deadlines; a lease is memory's business alone, so nothing is written."""
        holder = _owner(request.topic, call)
        self._capabilities.check(call, Operation.EXTEND, request.topic)
        self._check_visibility(request.visibility_ms)
        msg_ids, attempts = _lists(request.receipts)
        if request.receipts.boot_epoch != self._delivery.boot_epoch:
            return SettleResponse(codes=LATE * len(msg_ids))
        codes = self._delivery.extend(
            request.topic,
            receipts(msg_ids, attempts),
            holder=holder,
            visibility_ms=request.visibility_ms,
            add=request.add,
        )
        return SettleResponse(codes=codes)

    async def probe(self, request: Any, call: Call) -> ProbeResponse:
        """Tell of the room that a command to a topic would meet, and of its id."""
        self._capabilities.check(call, Operation.SEND, None)
        room, full = self._intake.room(request.topic)
        counts = self._delivery.topics.counts(request.topic)
        answer = ProbeResponse(
            waiting=counts.ready + counts.inflight if counts is not None else 0, room=room, full=full
        )
        if request.command_id:
            first = self._intake.first(request.topic, request.source, request.command_id)
            if first is not None:
                answer.first_msg_id, answer.first_stored_unix_ns = first
        return answer

    async def stats(self, request: Any, call: Call) -> StatsResponse:
        """Counts of one topic, or of all that the caller may see."""
        if request.topic and not _may_see(request.topic, call.peer.identity):
            raise NotAllowed("This topic belongs to another tenant.", reason="not-owner")
        grant = self._capabilities.check(call, Operation.STATS, request.topic or None)
        if request.topic:
            names = [request.topic]
        else:
            names = [
                name
                for name in self._delivery.topics.names()
                # The owner first: most topics belong to other tenants, and this check is the cheaper one.
                if _may_see(name, call.peer.identity) and grant.covers(Operation.STATS, name)
            ]
        response = StatsResponse()
        for name in names:
            counts = self._delivery.topics.counts(name)
            if counts is not None:
                told = {
                    each.name: getattr(counts, each.name)
                    for each in fields(counts)
                    if each.name not in NOT_TOLD
                }
                profile = "ephemeral" if self._settings.amnesia else "durable"
                response.topic.append(TopicStats(**told, dlq_profile=profile))
        return response

    def _quota(self, call: Call, topic: str, messages: int) -> Quota:
        return self._capabilities.check(call, Operation.RECV, topic).take(messages)

    def _check_visibility(self, visibility_ms: int) -> None:
        if not MIN_VISIBILITY_MS <= visibility_ms <= self._settings.max_visibility_ms:
            bounds = f"{MIN_VISIBILITY_MS} to {self._settings.max_visibility_ms}"
            raise BadRequest(f"visibility_ms must be {bounds}.", reason="visibility")


def _may_see(topic: str, identity: Identity) -> bool:
    return identity.kind is IdentityKind.OPERATOR or _owns(topic, identity)


def _owns(topic: str, identity: Identity) -> bool:
    return identity.tenant != "" and topic.startswith(identity.tenant + "/")


def _owner(topic: str, call: Call) -> str:
    """Holder of the leases of this call: the identity, which outlives the hourly certificate."""
    if not _owns(topic, call.peer.identity):
        raise NotAllowed("This topic belongs to another tenant.", reason="not-owner")
    return call.peer.identity.spiffe_id


def _lists(named: Any) -> tuple[list[int], list[int]]:
    msg_ids, attempts = list(named.msg_id), list(named.attempt)
    if len(msg_ids) != len(attempts):
        raise BadRequest("msg_id and attempt differ in length.", reason="receipts")
    if len(msg_ids) > MAX_RECEIPTS:
        raise BadRequest(f"More than {MAX_RECEIPTS} receipts.", reason="receipts")
    return msg_ids, attempts
