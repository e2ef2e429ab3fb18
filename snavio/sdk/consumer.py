"""Receives the commands of one topic: prefetches them, keeps their leases, brings their acks back.

Never hands out a message whose lease is lost, and never holds more than it was told to; when it closes, it
gives back at once what it has not handed out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any, Self

import structlog

from snavio.clock import Clock, SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.trace_context import parse_traceparent, span_at
from snavio.errors import (
    BadRequest,
    Code,
    IntegrityError,
    Saturated,
    SnavioError,
    Unauthenticated,
    Unavailable,
)
from snavio.native import Received, read_leased_batches
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.capability_request import ask_signer
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.ack_buffer import AckBuffer
from snavio.sdk.certificate import ServiceCertificate
from snavio.sdk.delivery import Command, Integrity, Lease, Nack
from snavio.sdk.leases import LeaseKeeper
from snavio.sdk.lifetime import Startable
from snavio.sdk.message_source import (
    MOST_PER_RECEIVE,
    MessageSource,
    ReceiveCalls,
    ReceiveStream,
    standstill_of,
)
from snavio.sdk.retry_forever import persist
from snavio.sdk.settings import ReceiveSettings
from snavio.sdk.tracing import ReceiveTraces, program_traces

OPERATIONS = ("recv", "ack", "nack", "extend", "stats")
LAST_ANSWERS_S = 2.0
"""At the end, for what the mailbox had sent before it was told."""
EMPTY_PAUSE_S = 0.05
# How many commands may be handed out before others on the loop get a turn: a body that never waits would
# otherwise keep acks and receives from running until everything prefetched is used up.
TURN = 128
NOT_HANDED_OUT = Nack(delay_ms=0, unseen=True)
DAMAGED = {
    # The mailbox has it as it was: another attempt may bring it whole. The DLQ has it when no attempt does.
    Integrity.NOT_AS_STORED: Nack(
        delay_ms=None, reason="E_INTEGRITY: payload_hash or hash_chain is not what the mailbox computed"
    ),
    # Stored with the damage: no attempt would bring anything else.
    Integrity.NOT_AS_SENT: Nack(
        delay_ms=None, reason="E_INTEGRITY: the payload is not what its sender hashed", dead=True
    ),
}


class Consumer(Startable):
    """The receiving half of the SDK: `async for command in consumer`. Lives on one event loop.

    Settle every command; the lease of one that is forgotten is extended for as long as the consumer is open.
    `capability` is presented instead of one that is asked for: one that somebody gave, narrowed or not. Messages
    come over a stream as they are ready, large responses in chunks of 64 KiB; with `stream=False` each is a call.
    """

    def __init__(
        self,
        *,
        mailbox: str,
        topic: str,
        certificates: str | Path,
        signer: str | None = None,
        principal_certificates: str | Path | None = None,
        source: str = "",
        certificate_ttl_s: int = 0,
        visibility_s: float = 30.0,
        max_unsettled: int = 2000,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
        clock: Clock | None = None,
        capability: str | None = None,
        stream: bool = True,
    ) -> None:
        self._address = mailbox
        self._topic = topic
        self._files = CertificateFiles.in_folder(certificates)
        self._trust_domain = trust_domain
        self._intake = ReceiveSettings(visibility_s=visibility_s, max_unsettled=max_unsettled)
        self._visibility_ns = round(visibility_s * 1e9)
        self._clock = clock or SystemClock()
        if principal_certificates is not None and signer is None:
            raise BadRequest("principal_certificates needs Signer's address too.", reason="no-signer")
        # Without Signer's address the certificate has to be renewed by another process.
        self._certificate = signer and ServiceCertificate(
            certificates,
            signer=signer,
            clock=self._clock,
            trust_domain=trust_domain,
            source=source,
            principal=principal_certificates,
            ttl_s=certificate_ttl_s,
        )
        # Without one it is asked for at the first call: of Signer at its address, or where the mailbox says that it is.
        self._capability_provider = CapabilityProvider(
            CapabilityScope(topic, OPERATIONS),
            ask_signer(signer, files=self._files, trust_domain=trust_domain),
            clock=self._clock,
            fixed=capability,
        )
        self._stream = stream
        self._receiving: MessageSource | None = None
        self._channel: MeshChannel | None = None
        self._acks: AckBuffer | None = None
        self._keeper: LeaseKeeper | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._open = False
        self._unsettled = 0
        self.integrity_failures = 0
        """Messages that did not match their hashes (E_INTEGRITY) and were given back unseen."""
        self.standstill = ""
        """Why the topic hands out nothing although it holds messages: `leased`, `delayed`, `retries`, `tenant-share` or
        `memory`; empty when it is empty, or hands out."""
        self._handed = 0
        self._messages: list[Received] = []
        self._lease: Lease | None = None
        self._batches: deque[tuple[Lease, list[Received]]] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        # Only a program that uses OpenTelemetry can tell spans.
        self._traces = ReceiveTraces() if program_traces() else None
        self._log = structlog.get_logger().bind(topic=topic)

    @classmethod
    def from_context(cls, target: str, *, service: str, context: str | None = None, **options: Any) -> Self:
        """A consumer of one of the tenant's targets, as one of its services, in a context.

        That is `context`, SNAVIO_CONTEXT, or the one in use. The service's certificate is had through the context's
        principal, and kept. `options` are the other arguments.
        """
        # Here: a program that says its addresses itself reads no contexts.
        from snavio.sdk.from_context import service_access

        access = service_access(service, context)
        return cls(
            mailbox=access.endpoints.mailbox,
            signer=access.endpoints.signer,
            topic=f"{access.tenant}/{target.removeprefix(f'{access.tenant}/')}",
            certificates=access.certificates,
            principal_certificates=access.principal,
            source=access.source,
            trust_domain=access.endpoints.trust_domain,
            **options,
        )

    @property
    def late_acks(self) -> int:
        """Acks that changed nothing because the lease had ended before."""
        return 0 if self._acks is None else self._acks.late_acks

    @property
    def unsettled(self) -> int:
        """Messages that are prefetched, handed out, or whose end the mailbox has not confirmed."""
        return self._unsettled

    async def start(self) -> None:
        """Begin to prefetch; a mailbox that is away is tried again until it is there."""
        if self._channel is not None:
            raise BadRequest("A consumer is opened once.", reason="already-open")
        if self._certificate:
            await self._certificate.start(within_s=self._intake.call_s)
        channel = MeshChannel(
            self._address,
            files=self._files,
            service="mailbox",
            trust_domain=self._trust_domain,
            capability_provider=self._capability_provider,
        )
        self._channel = channel
        intake = self._intake
        self._acks = AckBuffer(self._topic, channel=channel, call_s=intake.call_s, settled=self._released)
        self._keeper = LeaseKeeper(
            self._topic,
            channel=channel,
            clock=self._clock,
            visibility_s=intake.visibility_s,
            call_s=intake.call_s,
            lost=self._released,
        )
        self._receiving = receiving = self._way(channel)
        self._open = True
        for name, work in (
            ("fetch", self._fetch(receiving, self._keeper)),
            ("leases", self._keeper.run()),
            ("settle", self._acks.run()),
        ):
            task = asyncio.create_task(work, name=f"consumer {name}")
            task.add_done_callback(self._ended)
            self._tasks[name] = task

    async def close(self) -> None:
        """Give back what was not handed out, bring the acks home, end. Bounded in time."""
        if not self._open:
            return
        self._open = False
        self._arrived.set()
        try:
            await self._end_fetch()
            await self._give_back()
        finally:
            await self._stop("leases")
            await self._stop("settle")
            if self._certificate:
                await self._certificate.stop()
            if self._channel is not None:
                await self._channel.close()

    async def flush(self) -> None:
        """Wait until the mailbox has confirmed every settlement so far; Unavailable if it takes too long."""
        if self._acks is not None:
            await self._acks.flush()

    # -- handing out ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Command:
        if self._acks is None:
            raise Unavailable("The consumer is not open.", reason="not-open")
        self._handed += 1
        if not self._handed % TURN:
            await asyncio.sleep(0)
        while self._open:
            if self._messages:
                message = self._messages.pop()
                lease = self._lease
                assert lease is not None
                if message.integrity > Integrity.VERIFIED:
                    self._refuse(message, lease, self._acks)
                elif message.msg_id in lease.open:
                    if self._traces is not None and message.traceparent:
                        self._trace(self._traces, message, lease)
                    return Command(message, lease, self._acks)
            elif self._batches:
                self._lease, self._messages = self._batches.popleft()
                if not self._batches:
                    self._wanted.set()
            elif self._failure is not None:
                raise self._failure
            else:
                self._wanted.set()
                self._arrived.clear()
                await self._arrived.wait()
        raise StopAsyncIteration

    def _refuse(self, message: Received, lease: Lease, acks: AckBuffer) -> None:
        """Give back a message that does not match its hashes; the application never sees it."""
        manner = DAMAGED[Integrity(message.integrity)]
        self.integrity_failures += 1
        self._log.error(
            "message is damaged",
            code=Code.E_INTEGRITY.name,
            msg_id=message.msg_id,
            attempt=message.attempt,
            why=manner.reason,
        )
        acks.nack(lease, message.msg_id, manner)

    def _trace(self, traces: ReceiveTraces, message: Received, lease: Lease) -> None:
        context = parse_traceparent(message.traceparent)
        if context is None:
            return
        # Below the mailbox's span; a message that no command brought has none there.
        above = context.span_id
        if message.admitted_unix_ns:
            above = span_at("mailbox", context.trace_id, message.id, message.timestamp)
        span = traces.begin(
            context,
            topic=self._topic,
            command_id=message.id,
            above=above,
            attempt=message.attempt,
            mono_ns=self._clock.mono_ns(),
        )
        if span is not None:
            lease.spans[message.msg_id] = span

    # -- prefetching ---------------------------------------------------------------------------------

    def _way(self, channel: MeshChannel) -> MessageSource:
        visibility_ms = round(self._intake.visibility_s * 1000)
        if self._stream:
            return ReceiveStream(self._topic, channel=channel, visibility_ms=visibility_ms)
        wait_s = self._intake.receive_wait_s
        return ReceiveCalls(self._topic, channel=channel, visibility_ms=visibility_ms, wait_s=wait_s)

    async def _fetch(self, receiving: MessageSource, keeper: LeaseKeeper) -> None:
        intake = self._intake
        while not receiving.ended:
            # Messages in flight are taken at once: their leases have begun.
            room = intake.max_unsettled - self._unsettled if receiving.awaited else await self._room()
            answer, asked = b"", 0
            async for attempt in persist(Unavailable, Saturated, first_pause_s=0.05):
                with attempt:
                    asked = self._clock.mono_ns()
                    answer = await self._received(receiving, room)
            try:
                boot_epoch, messages = read_leased_batches(answer, self._topic)
            except ValueError:
                raise IntegrityError("The mailbox's answer cannot be read.", reason="malformed") from None
            now = self._clock.mono_ns()
            self.standstill = "" if messages or not answer else standstill_of(answer)
            if messages:
                receiving.took(len(messages))
                lease = Lease(boot_epoch, messages, now_mono_ns=now, visibility_ns=self._visibility_ns)
                if len(lease.open) != len(messages):
                    # A message that is there twice would be handed out twice and settled once.
                    raise IntegrityError("The mailbox's answer names a message twice.", reason="malformed")
                keeper.take(lease)
                messages.reverse()
                self._unsettled += len(messages)
                self._batches.append((lease, messages))
                self._arrived.set()
            elif now - asked < intake.receive_wait_s * 1e9 / 2:
                # A mailbox that answers "nothing" without waiting must not be asked in a busy loop.
                await asyncio.sleep(EMPTY_PAUSE_S)

    async def _received(self, receiving: MessageSource, room: int) -> bytes:
        """One answer; with another certificate if the one that is there was revoked, and a principal gets it."""
        try:
            return await receiving.receive(room)
        except Unauthenticated as error:
            if not self._certificate or not await self._certificate.replaced(error):
                raise
            if self._channel is not None:
                self._channel.reload()
            # Not at once: the mailbox may not know of the new one's root yet, nor the capability its holder.
            raise Unavailable(str(error), reason=error.reason) from None

    async def _room(self) -> int:
        """Wait until a Receive is worth its call; for how many messages."""
        most = self._intake.max_unsettled
        worthwhile = max(1, min(MOST_PER_RECEIVE, most) // 4)
        while True:
            room = most - self._unsettled
            if room >= worthwhile or (room > 0 and not self._batches and not self._messages):
                return room
            self._wanted.clear()
            await self._wanted.wait()

    def _released(self, count: int) -> None:
        self._unsettled -= count
        self._wanted.set()

    # -- ending --------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._arrived.set()

    async def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _end_fetch(self) -> None:
        """Stop asking; what the mailbox sent before it knew is taken, to be given back."""
        fetching = self._tasks.get("fetch")
        if self._receiving is not None and fetching is not None and self._receiving.awaited:
            await self._receiving.end()
            await asyncio.wait({fetching}, timeout=LAST_ANSWERS_S)
        await self._stop("fetch")

    async def _give_back(self) -> None:
        acks = self._acks
        assert acks is not None
        if self._lease is not None:
            self._batches.appendleft((self._lease, self._messages))
        for lease, messages in self._batches:
            for message in messages:
                acks.nack(lease, message.msg_id, NOT_HANDED_OUT)
        self._batches.clear()
        self._messages = []
        try:
            await acks.flush()
        except SnavioError as error:
            self._log.warning("not everything was settled", reason=error.reason, messages=self._unsettled)
