"""A mailbox over real mTLS, with a sender and consumers that speak its wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from services.mailbox.app import MailboxApp
from services.mailbox.settings import MailboxSettings
from snavio.clock import Clock, ManualClock
from snavio.config import MeshSettings
from snavio.domain.capability import Capability
from snavio.domain.identity import Identity, IdentityKind
from snavio.native import Received, read_leased_batches, sign_command, uuid7
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.rpc.status import error_of
from snavio.v1 import mailbox_pb2 as mail
from snavio.v1.batch_pb2 import BatchHeader, Hello, Run, Verdicts
from snavio.v1.signer_pb2 import DenylistRequest, DenylistResponse
from tests.support.capabilities import CapabilityMint
from tests.support.pki import Authority

SERVICE = "/snavio.v1.Mailbox/"
TOPIC = "acme/billing"
SECONDS = 10.0
UNDIVIDED: Mapping[str, Any] = {"tenant_share_percent": 100.0, "reserve_percent": 0.0}
"""Mesh settings under which one tenant may fill every bound."""


def commands(count: int, *, size: int = 20, mark: str = "x", ids: Sequence[str] | None = None) -> list[bytes]:
    """Signed commands whose payloads say `mark` and a number, under fresh ids unless there are some."""
    now = time.time_ns()
    return [
        sign_command(
            b"k" * 32,
            key_version="hmac-v1",
            audience="a",
            command_id=uuid7() if ids is None else ids[number],
            timestamp_unix_ns=now,
            target="billing",
            name="charge",
            payload=f"{mark}{number}".encode().ljust(size, b"."),
        )
        for number in range(count)
    ]


def send_batch(
    seq: int,
    *topics: tuple[str, list[bytes]],
    budget_ms: int = 5000,
    once: bool = False,
    once_ms: int = 0,
    source: str = "acme/shop",
) -> bytes:
    """A serialised SendBatch; every topic's commands are of one source."""
    batch = mail.SendBatch(header=BatchHeader(batch_seq=seq, budget_ms=budget_ms))
    for topic, some in topics:
        run = Run(source=source, key_version="hmac-v1", cert_serial="ab", admitted_unix_ns=5, command=some)
        batch.topic.append(mail.TopicRuns(topic=topic, run=[run], once=once or once_ms > 0, once_ms=once_ms))
    serialised: bytes = batch.SerializeToString()
    return serialised


class SendingPeer:
    """One process that sends to the mailbox over one stream."""

    def __init__(self, channel: MeshChannel, *, instance: str = "fast-0", epoch: int = 1) -> None:
        self._call = channel.stream(SERVICE + "SendStream")
        self._hello = mail.SendBatch(hello=Hello(wire_version=1, instance=instance, epoch=epoch))

    async def connect(self) -> Hello:
        await self._call.write(self._hello.SerializeToString())
        hello: Hello = (await self.read()).hello
        return hello

    async def write(self, frame: bytes) -> None:
        await self._call.write(frame)

    async def read(self) -> Any:
        async with asyncio.timeout(SECONDS):
            frame = await self._call.read()
        assert frame is not grpc.aio.EOF
        return Verdicts.FromString(frame)

    async def send(self, frame: bytes) -> bytes:
        """The codes of one batch, once it is decided."""
        await self.write(frame)
        codes = bytearray()
        while True:
            verdicts = await self.read()
            codes = codes.ljust(verdicts.first + len(verdicts.codes), b"\0")
            for index, code in enumerate(verdicts.codes, verdicts.first):
                codes[index] = code or codes[index]
            if verdicts.final:
                return bytes(codes)

    def close(self) -> None:
        self._call.cancel()


FIELDS = (
    *("msg_id", "attempt", "stored_unix_ns", "source", "id", "timestamp", "target", "name", "content_type"),
    *("payload", "traceparent", "admitted_unix_ns", "idem_key", "attrs", "shard", "integrity"),
)


def fields_of(message: Received, *names: str) -> tuple[object, ...]:
    """Those fields of a message, or all."""
    return tuple(getattr(message, name) for name in names or FIELDS)


@dataclass(frozen=True, slots=True)
class Got:
    """A response of Receive, opened."""

    boot_epoch: int
    messages: list[Received]
    raw: bytes

    @property
    def marks(self) -> list[str]:
        return [message.payload.rstrip(b".").decode() for message in self.messages]

    def receipts(self, first: int = 0, end: int | None = None) -> mail.Receipts:
        chosen = self.messages[first:end]
        return mail.Receipts(
            boot_epoch=self.boot_epoch,
            msg_id=[one.msg_id for one in chosen],
            attempt=[one.attempt for one in chosen],
        )


class ReceivingPeer:
    """One consumer."""

    def __init__(self, channel: MeshChannel) -> None:
        self.channel = channel

    async def receive(self, topic: str = TOPIC, **asked: Any) -> Got:
        request = mail.ReceiveRequest(topic=topic, **{"visibility_ms": 30_000, **asked})
        raw = await self.channel.call_raw(SERVICE + "Receive", request.SerializeToString(), timeout_s=SECONDS)
        epoch, messages = read_leased_batches(raw)
        return Got(epoch, messages, raw)

    async def ack(self, receipts: mail.Receipts, topic: str = TOPIC) -> bytes:
        return await self._settle("Ack", mail.AckRequest(topic=topic, receipts=receipts))

    async def nack(self, receipts: mail.Receipts, *, delay_ms: int | None = 0, **more: Any) -> bytes:
        request = mail.NackRequest(topic=TOPIC, receipts=receipts, delay_ms=delay_ms, **more)
        return await self._settle("Nack", request)

    async def extend(self, receipts: mail.Receipts, *, visibility_ms: int) -> bytes:
        request = mail.ExtendRequest(topic=TOPIC, receipts=receipts, visibility_ms=visibility_ms)
        return await self._settle("Extend", request)

    async def stats(self, topic: str = "") -> dict[str, tuple[int, int]]:
        request = mail.StatsRequest(topic=topic)
        answer = await self.channel.call(SERVICE + "Stats", request, mail.StatsResponse, timeout_s=SECONDS)
        return {one.topic: (one.ready, one.inflight) for one in answer.topic}

    async def _settle(self, method: str, request: Any) -> bytes:
        answer = await self.channel.call(SERVICE + method, request, mail.SettleResponse, timeout_s=SECONDS)
        codes: bytes = answer.codes
        return codes


class ReceivingStream:
    """A consumer's end."""

    def __init__(self, peer: ReceivingPeer, *, credit: int, **asked: Any) -> None:
        self._call = peer.channel.stream(SERVICE + "RecvStream")
        opened = mail.ReceiveRequest(**{"topic": TOPIC, "visibility_ms": 30_000, **asked})
        self._first = mail.RecvStreamRequest(open=opened, credit=credit)

    async def open(self) -> ReceivingStream:
        await self._call.write(self._first.SerializeToString())
        return self

    async def add(self, credit: int) -> None:
        await self._call.write(mail.RecvStreamRequest(credit=credit).SerializeToString())

    async def read(self) -> Got:
        try:
            async with asyncio.timeout(SECONDS):
                frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None
        if frame is grpc.aio.EOF:
            raise EOFError(await self._call.code())
        epoch, messages = read_leased_batches(frame)
        return Got(epoch, messages, frame)

    async def some(self, count: int) -> list[Got]:
        got: list[Got] = []
        while sum(len(one.messages) for one in got) < count:
            got.append(await self.read())
        return got

    def cancel(self) -> None:
        self._call.cancel()

    async def code(self) -> Any:
        async with asyncio.timeout(SECONDS):
            return await self._call.code()


@dataclass
class MailboxFixture:
    """A mailbox with its state folder; peers of it get their certificates here."""

    folder: Path
    settings: MailboxSettings = field(default_factory=MailboxSettings)
    clock: Clock = field(default_factory=lambda: ManualClock(time.time_ns()))
    address: str = ""
    app: MailboxApp | None = None
    mesh_settings: Mapping[str, Any] = field(default_factory=dict)
    signer: MeshServer | None = None

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder / "peers")
        self.mesh = MeshSettings(
            state_dir=self.folder,
            mailbox="127.0.0.1:0",
            denylist_stale_s=30 * 24 * 3600,
            **self.mesh_settings,
        )
        self.authority.leaf(
            Identity(self.mesh.trust_domain, IdentityKind.MESH, "mailbox"),
            folder=self.mesh.certificates("mailbox"),
        )
        self.mint = CapabilityMint(self.clock)
        self._channels: list[MeshChannel] = []
        self._senders: list[SendingPeer] = []

    async def start_signer(self) -> None:
        """As much of Signer as the mailbox needs: nothing is revoked."""
        methods = Methods()
        methods.unary("/snavio.v1.Signer/Denylist", _nobody_revoked, DenylistRequest)
        self.mint.register(methods)
        self.signer = MeshServer(
            listen="127.0.0.1:0",
            files=self.authority.mesh("signer"),
            methods=methods,
            gate=CertificateGate(clock=self.clock),
            clock=self.clock,
        )
        self.mesh = self.mesh.model_copy(update={"signer": f"127.0.0.1:{await self.signer.start()}"})

    async def start(self) -> None:
        if self.signer is None:
            await self.start_signer()
        self.app = MailboxApp(self.mesh, self.settings, self.clock)
        self.address = f"127.0.0.1:{await self.app.start()}"

    async def stop(self) -> None:
        await self.hang_up()
        if self.app is not None:
            await self.app.drain()
            self.app = None

    async def hang_up(self) -> None:
        for sender in self._senders:
            sender.close()
        for channel in self._channels:
            await channel.close()
        self._senders.clear()
        self._channels.clear()

    def channel(self, files: CertificateFiles, capability: Capability | None = None) -> MeshChannel:
        """To the mailbox, with a capability for everything unless there is one."""
        capability_provider = self.mint.capability_provider(files, capability)
        channel = MeshChannel(
            self.address, files=files, service="mailbox", capability_provider=capability_provider
        )
        self._channels.append(channel)
        return channel

    async def sender(
        self, *, service: str = "fast", capability: Capability | None = None, **named: Any
    ) -> SendingPeer:
        sender = SendingPeer(self.channel(self.authority.mesh(service), capability), **named)
        self._senders.append(sender)
        await sender.connect()
        return sender

    def consumer(
        self, tenant: str = "acme", name: str = "worker", *, capability: Capability | None = None
    ) -> ReceivingPeer:
        return ReceivingPeer(self.channel(self.authority.service(tenant, name), capability))

    def operator(self) -> ReceivingPeer:
        return ReceivingPeer(self.channel(self.authority.operator("admin")))


async def _nobody_revoked(_request: DenylistRequest, _call: Call) -> DenylistResponse:
    return DenylistResponse(version=1)


@asynccontextmanager
async def running_mailbox(folder: Path, **options: Any) -> AsyncIterator[MailboxFixture]:
    """A mailbox that serves, gone at the end."""
    office = MailboxFixture(folder, **options)
    await office.start()
    try:
        yield office
    finally:
        await office.stop()
        if office.signer is not None:
            await office.signer.drain(0)
