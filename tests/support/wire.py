"""A raw client of the mesh's wire: any certificate, any bytes, and commands made field by field.

It must never help the caller to be correct: nothing here refuses to send what a server should refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import read_sealing_key
from snavio.clock import Clock, SystemClock
from snavio.config import MeshSettings
from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.native import uuid7
from snavio.pki import CertificateAuthority
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.status import error_of
from snavio.v1.batch_pb2 import Hello, Verdicts
from snavio.v1.signer_pb2 import TenantConfigRequest, TenantConfigResponse
from tests.support.pki import Authority
from tests.support.twin import NS, TYPE, encode, format_timestamp, put, put_number, submission, tag_of

SUBMIT = "/snavio.v1.Shield/Submit"
SUBMIT_BATCH = "/snavio.v1.Shield/SubmitBatch"
SUBMIT_STREAM = "/snavio.v1.Shield/SubmitStream"
GREET = "/snavio.v1.Shield/Greet"
# How long anything may take before a test gives up; generous, because nothing is measured by it.
WITHIN_S = 20.0

__all__ = ["NS", "encode", "format_timestamp", "put", "put_number", "submission", "tag_of"]


# --- making commands


@dataclass(frozen=True, slots=True)
class Key:
    """One version of a source's HMAC key."""

    version: str
    secret: bytes = field(repr=False)


@dataclass(slots=True)
class Forge:
    """Makes commands that are valid but for what the caller changes; a change is signed along unless said."""

    key: Key
    audience: str
    target: str = "discord-bot"
    name: str = "notify-user"
    clock: Clock = field(default_factory=SystemClock)

    def fields(self, *, ahead_s: float = 0.0, **changed: bytes | str | None) -> dict[str, bytes]:
        """Every field but the tag. None takes one out; `ahead_s` moves the stamp."""
        stamp = self.clock.unix_ns() + round(ahead_s * NS)
        whole: dict[str, bytes | str | None] = {
            "id": uuid7(),
            "timestamp": format_timestamp(stamp),
            "type": TYPE,
            "key_version": self.key.version,
            "audience": self.audience,
            "target": self.target,
            "name": self.name,
            "content_type": "text/plain",
            "payload": b"raw",
            **changed,
        }
        return {
            name: value.encode() if isinstance(value, str) else value
            for name, value in whole.items()
            if value is not None
        }

    def command(self, *, ahead_s: float = 0.0, **changed: bytes | str | None) -> bytes:
        """Signed after the change, so that nothing else is wrong with it."""
        return self.seal(self.fields(ahead_s=ahead_s, **changed))

    def seal(self, fields: dict[str, bytes], *, secret: bytes | None = None) -> bytes:
        """The fields with their tag."""
        return encode({**fields, "hmac": tag_of(secret or self.key.secret, fields)})

    def altered(self, **changed: bytes | str) -> bytes:
        """Changed after it was signed."""
        fields = self.fields()
        tag = tag_of(self.key.secret, fields)
        return encode({**fields, **_bytes(changed), "hmac": tag})

    def tagged(self, tag: bytes, **changed: bytes | str) -> bytes:
        """With a tag of the caller's choice."""
        return encode({**self.fields(), **_bytes(changed), "hmac": tag})


def _bytes(changed: dict[str, bytes | str]) -> dict[str, bytes]:
    return {name: value.encode() if isinstance(value, str) else value for name, value in changed.items()}


def hello_frame(*, wire_version: int = 1, instance: str = "", epoch: int = 0) -> bytes:
    """The first message of a stream."""
    body = put_number(1, wire_version)
    if instance:
        body += put(5, instance.encode()) + put_number(6, epoch)
    return put(1, body)


def run(source: str, commands: Iterable[bytes], *, key_version: str = "hmac-v1", serial: str = "ab") -> bytes:
    """A Run without its tag."""
    head = put(1, source.encode()) + put(2, key_version.encode()) + put(3, serial.encode()) + put_number(4, 5)
    return head + b"".join(put(5, command) for command in commands)


def mesh_batch(runs: Iterable[bytes], *, batch_seq: int = 1, budget_ms: int = 5000) -> bytes:
    """A serialised Batch, as Shield sends to Fast."""
    header = put_number(1, batch_seq) + put_number(2, budget_ms)
    return put(2, header) + b"".join(put(3, each) for each in runs)


def arbitration_batch(
    escalations: Iterable[tuple[int, list[bytes]]], *, batch_seq: int = 1, budget_ms: int = 5000
) -> bytes:
    """A serialised ArbitrationBatch of (reason, runs), as Fast sends to Slow."""
    header = put_number(1, batch_seq) + put_number(2, budget_ms)
    bodies = (put_number(1, reason) + b"".join(put(2, each) for each in runs) for reason, runs in escalations)
    return put(2, header) + b"".join(put(3, body) for body in bodies)


# --- reading answers


@dataclass(frozen=True, slots=True)
class Refused:
    """Details of one refusal in an answer, beyond its code."""

    index: int
    verdict: Verdict
    retry_after_ms: int
    detail: str
    throttle_until_unix_ns: int = 0
    shares: tuple[float, float, int] = (0.0, 0.0, 0)


@dataclass(slots=True)
class Answer:
    """Everything that was said about one batch."""

    codes: list[Verdict] = field(default_factory=list)
    refusals: list[Refused] = field(default_factory=list)
    replies: int = 0
    final: bool = False

    def take(self, verdicts: Verdicts) -> None:
        """Add one reply; a command that is decided twice is a fault of the server."""
        self.replies += 1
        self.final = verdicts.final
        self.codes += [Verdict.UNDECIDED] * (verdicts.first + len(verdicts.codes) - len(self.codes))
        for index, code in enumerate(verdicts.codes, verdicts.first):
            if code:
                assert self.codes[index] is Verdict.UNDECIDED, f"command {index} was decided twice"
                self.codes[index] = Verdict(code)
        self.refusals += [
            Refused(
                each.index,
                Verdict(each.reason),
                each.retry_after_ms,
                each.detail,
                each.throttle_until_unix_ns,
                (each.source_share, each.competing_share, each.dispatch_volume),
            )
            for each in verdicts.refusal
        ]

    @property
    def frame_refusal(self) -> Verdict | None:
        """Why the frame as a whole was refused."""
        return self.refusals[0].verdict if self.refusals and not self.codes else None


class RawStream:
    """One batch stream, opened with a Hello unless told otherwise. One reader at a time."""

    def __init__(self, channel: MeshChannel, method: str = SUBMIT_STREAM) -> None:
        self._call = channel.stream(method)
        self._answers: dict[int, Answer] = {}
        self.hello = Hello()

    async def greet(self, frame: bytes | None = None) -> Hello:
        """Exchange Hellos."""
        await self.send(hello_frame(instance="shield-0", epoch=1) if frame is None else frame)
        self.hello = (await self._read()).hello
        return self.hello

    async def listen(self) -> None:
        """Say nothing and hear why the door stays shut.

        grpc.aio forgets the server's status when a write fails because the call has just ended
        (grpc/grpc#36066), so who wants to read a refusal that comes at once must not write.
        """
        await self._read()

    async def send(self, frame: bytes) -> None:
        """Write a frame. A stream that has ended gives the reason at the next read."""
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            async with asyncio.timeout(WITHIN_S):
                await self._call.write(frame)

    async def end(self) -> None:
        """Say that no more comes."""
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            await self._call.done_writing()

    async def partial(self, batch_seq: int = 1) -> Answer:
        """State of a batch after the next reply to it."""
        before = self._answer(batch_seq).replies
        while self._answer(batch_seq).replies == before:
            await self._take()
        return self._answer(batch_seq)

    async def answer(self, batch_seq: int = 1) -> Answer:
        """Everything about a batch, once its final reply is there."""
        while not self._answer(batch_seq).final:
            await self._take()
        return self._answers.pop(batch_seq)

    async def ask(self, frame: bytes, batch_seq: int = 1) -> Answer:
        """Write a frame and wait for its final reply."""
        await self.send(frame)
        return await self.answer(batch_seq)

    def cancel(self) -> None:
        """Let go."""
        self._call.cancel()

    def _answer(self, batch_seq: int) -> Answer:
        return self._answers.setdefault(batch_seq, Answer())

    async def _take(self) -> None:
        verdicts = await self._read()
        self._answer(verdicts.batch_seq).take(verdicts)

    async def _read(self) -> Any:
        """Raises the SnavioError with which the server ended the stream."""
        try:
            async with asyncio.timeout(WITHIN_S):
                frame = await self._call.read()
                if frame is grpc.aio.EOF:
                    code = await self._call.code()
                    metadata = await self._call.trailing_metadata()
                    details = await self._call.details()
                    raise error_of(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details))
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None
        return Verdicts.FromString(frame)


# --- a producer without the SDK


class RawProducer:
    """One certificate, one key, and every way into Shield."""

    def __init__(self, channel: MeshChannel, forge: Forge) -> None:
        self.channel = channel
        self.forge = forge
        self._streams: list[RawStream] = []

    async def stream(self) -> RawStream:
        """A new stream, greeted."""
        stream = RawStream(self.channel)
        self._streams.append(stream)
        await stream.greet()
        return stream

    async def submit(self, command: bytes, *, budget_ms: int = 0) -> Answer:
        """By the unary call."""
        return await self.submit_raw(SUBMIT, put(1, command) + put_number(2, budget_ms))

    async def submit_batch(self, frame: bytes) -> Answer:
        """A batch by the unary call."""
        return await self.submit_raw(SUBMIT_BATCH, frame)

    async def submit_raw(self, method: str, request: bytes) -> Answer:
        """Any bytes to any unary method that answers with Verdicts."""
        answer = Answer()
        answer.take(Verdicts.FromString(await self.channel.call_raw(method, request, timeout_s=WITHIN_S)))
        return answer

    async def close(self) -> None:
        """Let go of every stream and of the channel."""
        for stream in self._streams:
            stream.cancel()
        await self.channel.close()


async def primary_key(signer: str, files: CertificateFiles) -> Key:
    """The key that Signer would have this service sign with."""
    channel = MeshChannel(signer, files=files, service="signer")
    try:
        config = await channel.call(
            "/snavio.v1.Signer/TenantConfig", TenantConfigRequest(), TenantConfigResponse, timeout_s=WITHIN_S
        )
    finally:
        await channel.close()
    return next(
        Key(each.version, each.secret) for each in config.keyset.version if each.version == config.primary
    )


async def audience_of(shield: str, files: CertificateFiles) -> str:
    """The audience that Shield announces; waits for a Shield that is just starting."""
    channel = MeshChannel(shield, files=files, service="shield")
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    hello = await channel.call(GREET, _Raw(put_number(1, 1)), Hello, timeout_s=WITHIN_S)
                except Unavailable:
                    await asyncio.sleep(0.02)
                else:
                    audience: str = hello.audience
                    return audience
    finally:
        await channel.close()


@dataclass(frozen=True, slots=True)
class _Raw:
    """Bytes where a message is expected."""

    body: bytes

    def ByteSize(self) -> int:
        return len(self.SerializeToString())

    def DiscardUnknownFields(self) -> None: ...

    def SerializeToString(self) -> bytes:
        return self.body

    @classmethod
    def FromString(cls, s: bytes, /) -> _Raw:
        return cls(s)


@asynccontextmanager
async def raw_producer(*, shield: str, signer: str, files: CertificateFiles) -> AsyncIterator[RawProducer]:
    """A producer of a running mesh, gone at the end."""
    forge = Forge(await primary_key(signer, files), await audience_of(shield, files))
    producer = RawProducer(MeshChannel(shield, files=files, service="shield"), forge)
    try:
        yield producer
    finally:
        await producer.close()


# --- an installation whose CA the test holds


async def found_installation(state_dir: Path) -> Authority:
    """Prepare a state folder and return its CA, so that a test can make certificates no Signer would."""
    mesh = MeshSettings.model_validate({"state_dir": state_dir})
    settings = SignerSettings()
    await prepare(mesh, settings, clock=SystemClock())
    store = await SealedKeyStore.open(
        settings.store_path(mesh), key=read_sealing_key(settings.sealing_key_path(mesh))
    )
    try:
        kept = await store.authority()
    finally:
        await store.close()
    assert kept is not None
    authority = Authority(state_dir / "odd-certs")
    authority.ca = CertificateAuthority.from_pem(kept.certificate_pem.encode(), kept.private_key_pem.encode())
    return authority
