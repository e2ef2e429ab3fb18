"""A Shield, a Signer and a mailbox that speak the real wire over mTLS and answer as a test scripts them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.native import Admission, Judgement
from snavio.rpc.server import Call, Methods
from snavio.signed.verification import VerifyingKey
from snavio.v1.batch_pb2 import Batch, Hello, Limits, Run, Verdicts
from snavio.v1.mailbox_pb2 import (
    AckRequest,
    ExtendRequest,
    LeasedBatch,
    NackRequest,
    ReceiveRequest,
    ReceiveResponse,
    SettleResponse,
)
from snavio.v1.signer_pb2 import (
    GetPublicKeysRequest,
    Keyset,
    KeyVersion,
    PublicKey,
    PublicKeys,
    TenantConfigRequest,
    TenantConfigResponse,
)
from tests.support.pki import Authority
from tests.support.servers import Served, serving

SOURCE = "acme/billing"
TOPIC = "acme/discord-bot"

Script = Callable[[Judgement], list[bytes]]


def deliver(judgement: Judgement) -> list[bytes]:
    """Everything that was admitted is delivered."""
    ledger = judgement.ledger
    return [frame for frame in (ledger.opening(), ledger.close(Verdict.DELIVERED, 0, "")) if frame]


def refuse(verdict: Verdict, *, retry_after_ms: int = 0, detail: str = "") -> Script:
    """Everything that was admitted is refused further on."""

    def script(judgement: Judgement) -> list[bytes]:
        ledger = judgement.ledger
        frames = (ledger.opening(), ledger.close(verdict, retry_after_ms, detail))
        return [frame for frame in frames if frame]

    return script


def say_nothing(_judgement: Judgement) -> list[bytes]:
    """No answer, ever."""
    return []


def hang_up(_judgement: Judgement) -> list[bytes]:
    """The stream ends with the batch unanswered."""
    raise Unavailable("scripted")


@dataclass
class ScriptedShield:
    """Judges with the real Admission; what then becomes of a batch is the next script's business."""

    audience: str = "shield-1"
    scripts: deque[Script] = field(default_factory=deque)
    otherwise: Script = deliver
    batches: list[int] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    keep_frames: bool = False
    greetings: int = 0
    limits: Limits = field(default_factory=lambda: Limits(window_ms=60_000))

    def __post_init__(self) -> None:
        self.admission = Admission(
            audience=self.audience, nonce_capacity=1 << 20, nonce_share_per_tenant=1 << 20
        )

    def restart(self, audience: str) -> None:
        """Forget everything, as a new process would, but keep the streams: the worst case for a producer."""
        self.audience = audience
        keys = self._keys
        self.admission = Admission(audience=audience, nonce_capacity=1 << 20, nonce_share_per_tenant=1 << 20)
        self.know(keys)

    def know(self, keys: list[KeyVersion]) -> None:
        """The keys that Shield accepts."""
        self._keys = keys
        self.admission.set_keyset(
            SOURCE,
            [
                (key.version, key.secret, key.not_before_unix_ns, key.not_after_unix_ns, key.revoked)
                for key in keys
            ],
        )

    def methods(self) -> Methods:
        methods = Methods()
        methods.stream_raw("/snavio.v1.Shield/SubmitStream", self._stream)
        return methods

    async def _stream(self, call: Call) -> None:
        opening = await call.read()
        assert opening is not None and Batch.FromString(opening).hello.wire_version == 1
        self.greetings += 1
        hello = Hello(
            wire_version=1,
            server_unix_ns=time.time_ns(),
            audience=self.audience,
            limits=self.limits,
        )
        await call.write(Verdicts(hello=hello).SerializeToString())
        while (frame := await call.read()) is not None:
            if self.keep_frames:
                self.frames.append(frame)
            judgement = self.admission.judge(
                frame,
                source=call.peer.identity.source,
                cert_serial=call.peer.cert_serial,
                now_unix_ns=time.time_ns(),
            )
            self.batches.append(judgement.ledger.count)
            script = self.scripts.popleft() if self.scripts else self.otherwise
            for answer in script(judgement):
                await call.write(answer)


def key_version(number: int, *, primary_in_s: float = -60.0, revoked: bool = False) -> KeyVersion:
    """A key of the demo source."""
    now = time.time_ns()
    return KeyVersion(
        version=f"hmac-v{number}",
        secret=bytes([number]) * 32,
        not_before_unix_ns=now - 3600 * 10**9,
        primary_from_unix_ns=now + round(primary_in_s * 1e9),
        revoked=revoked,
    )


@dataclass
class ScriptedSigner:
    """Tells the demo source its keys."""

    keys: list[KeyVersion]
    primary: str = "hmac-v1"
    asked: int = 0
    public_keys: Sequence[VerifyingKey] = ()

    def methods(self) -> Methods:
        methods = Methods()
        methods.unary("/snavio.v1.Signer/TenantConfig", self._config, TenantConfigRequest)
        methods.unary("/snavio.v1.Signer/GetPublicKeys", self._public_keys, GetPublicKeysRequest)
        return methods

    async def _public_keys(self, request: GetPublicKeysRequest, _call: Call) -> PublicKeys:
        keys = [
            PublicKey(key_id=key.key_id, public_key=key.public_key, valid_from_unix_ns=key.valid_from_unix_ns)
            for key in self.public_keys
        ]
        return PublicKeys(scope=request.scope, key=keys)

    async def _config(self, _request: TenantConfigRequest, call: Call) -> TenantConfigResponse:
        self.asked += 1
        keyset = Keyset(source=call.peer.identity.source, version=self.keys)
        return TenantConfigResponse(keyset=keyset, primary=self.primary, poll_after_seconds=60)


@dataclass
class Stage:
    """A scripted mesh's ingress, and the certificate of the service that may send."""

    authority: Authority
    shield: ScriptedShield
    signer: ScriptedSigner
    shield_server: Served
    signer_server: Served
    certificates: Path


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """Shield and Signer that know one key of `acme/billing`."""
    authority = Authority(folder)
    keys = [key_version(1)]
    shield, signer = ScriptedShield(), ScriptedSigner(keys)
    shield.know(keys)
    async with AsyncExitStack() as servers:
        shield_server = await servers.enter_async_context(serving(authority, methods=shield.methods()))
        signer_server = await servers.enter_async_context(
            serving(authority, methods=signer.methods(), files=authority.mesh("signer"))
        )
        billing = authority.service("acme", "billing").certificate.parent
        yield Stage(authority, shield, signer, shield_server, signer_server, billing)


@dataclass
class ScriptedMailbox:
    """One topic in memory: leases without deadlines, unless a test ends them."""

    boot_epoch: int = 7
    ready: deque[tuple[int, int, bytes]] = field(default_factory=deque)
    leased: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    acked: list[int] = field(default_factory=list)
    nacked: list[tuple[int, int, str]] = field(default_factory=list)
    extended: list[int] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    away: bool = False
    stored: int = 0

    def __post_init__(self) -> None:
        self.arrived = asyncio.Event()

    def store(self, *commands: bytes) -> None:
        """More messages, each a serialised Command."""
        for command in commands:
            # As the real one numbers them: batch * 1024 + place.
            self.ready.append((1024 + self.stored, 1, command))
            self.stored += 1
        self.arrived.set()

    def end_leases(self) -> None:
        """As if every visibility had passed: messages are ready again, for the next attempt."""
        for msg_id, (attempt, command) in self.leased.items():
            self.ready.append((msg_id, attempt + 1, command))
        self.leased.clear()
        self.arrived.set()

    def restart(self) -> None:
        """A new boot epoch; what was in flight is ready again."""
        self.boot_epoch += 1
        self.end_leases()

    def methods(self) -> Methods:
        methods = Methods()
        methods.unary("/snavio.v1.Mailbox/Receive", self._receive, ReceiveRequest)
        methods.unary("/snavio.v1.Mailbox/Ack", self._ack, AckRequest)
        methods.unary("/snavio.v1.Mailbox/Nack", self._nack, NackRequest)
        methods.unary("/snavio.v1.Mailbox/Extend", self._extend, ExtendRequest)
        return methods

    def _called(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.away:
            raise Unavailable("scripted")

    async def _receive(self, request: ReceiveRequest, _call: Call) -> ReceiveResponse:
        self._called("Receive")
        assert request.topic == TOPIC
        if not self.ready:
            self.arrived.clear()
            try:
                async with asyncio.timeout(request.wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                pass
        response = ReceiveResponse(boot_epoch=self.boot_epoch)
        while self.ready and len(response.batch) < request.max_messages:
            msg_id, attempt, command = self.ready.popleft()
            self.leased[msg_id] = (attempt, command)
            run = Run(
                source=SOURCE, key_version="hmac-v1", cert_serial="1", admitted_unix_ns=5, command=[command]
            )
            batch = LeasedBatch(batch_id=msg_id // 1024, first=msg_id % 1024, attempt=attempt, run=[run])
            response.batch.append(batch)
        return response

    def _holds(self, epoch: int, msg_id: int, attempt: int) -> bool:
        return epoch == self.boot_epoch and self.leased.get(msg_id, (0, b""))[0] == attempt

    def _settle(
        self, request: AckRequest | NackRequest | ExtendRequest, done: Callable[[int], None]
    ) -> bytes:
        codes = bytearray()
        receipts = request.receipts
        for msg_id, attempt in zip(receipts.msg_id, receipts.attempt, strict=True):
            held = self._holds(receipts.boot_epoch, msg_id, attempt)
            if held:
                done(msg_id)
            codes.append(1 if held else 3 if msg_id in self.acked else 2)
        return bytes(codes)

    async def _ack(self, request: AckRequest, _call: Call) -> SettleResponse:
        self._called("Ack")

        def done(msg_id: int) -> None:
            del self.leased[msg_id]
            self.acked.append(msg_id)

        return SettleResponse(codes=self._settle(request, done))

    async def _nack(self, request: NackRequest, _call: Call) -> SettleResponse:
        self._called("Nack")

        def done(msg_id: int) -> None:
            attempt, command = self.leased.pop(msg_id)
            self.nacked.append((msg_id, request.delay_ms, request.reason))
            self.ready.append((msg_id, attempt + 1, command))
            self.arrived.set()

        return SettleResponse(codes=self._settle(request, done))

    async def _extend(self, request: ExtendRequest, _call: Call) -> SettleResponse:
        self._called("Extend")
        return SettleResponse(codes=self._settle(request, self.extended.append))
