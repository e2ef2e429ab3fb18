"""Scripted neighbours of one service under test: real servers over mTLS that answer as a test tells them.

They must never decide anything by themselves but what their script says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snavio.clock import ManualClock, SystemClock
from snavio.config import MeshSettings
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import Conflict, Unavailable
from snavio.hop.server_stream import BatchStream, mesh_hello
from snavio.launch.free_ports import free_ports
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from snavio.v1.batch_pb2 import Batch, Hello, Refusal, Verdicts
from snavio.v1.mailbox_pb2 import SendBatch
from snavio.v1.slow_pb2 import ArbitrationBatch
from tests.support.pki import Authority
from tests.support.wire import WITHIN_S

# Wide enough that a scripted hop never is the one that stops reading.
HOP_WINDOW = 256


async def eventually(true: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
    """Wait until `true()`; fails with what it was that did not come true."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


@dataclass
class Neighbour:
    """One server that can go away and come back at the same address."""

    authority: Authority
    name: str
    methods: Methods
    # Not of the system's choice: an outgoing connection could take such a port while the server is away.
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_ports(1)[0]}")
    server: MeshServer | None = None

    async def start(self) -> None:
        clock = SystemClock()
        self.server = MeshServer(
            listen=self.address,
            files=self.authority.mesh(self.name),
            methods=self.methods,
            gate=CertificateGate(clock=clock),
            clock=clock,
        )
        self.address = f"127.0.0.1:{await self.server.start()}"

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.drain(0)
            self.server = None


@dataclass
class ScriptedSigner:
    """Keysets and the denylist."""

    keysets: dict[str, list[sig.KeyVersion]] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    store_epoch: int = 1
    version: int = 1
    away: bool = False
    asked: int = 0
    asked_denylist: int = 0
    used: dict[tuple[str, str], int] = field(default_factory=dict)

    def methods(self) -> Methods:
        methods = Methods()
        methods.unary("/snavio.v1.Signer/ReportKeyUsage", self._usage, sig.ReportKeyUsageRequest)
        methods.unary("/snavio.v1.Signer/KeysetChanges", self._keysets, sig.KeysetChangesRequest)
        methods.unary("/snavio.v1.Signer/Denylist", self._denylist, sig.DenylistRequest)
        return methods

    def put(self, source: str, *versions: sig.KeyVersion) -> None:
        self.keysets[source] = list(versions)
        self.version += 1

    async def was_read(self) -> None:
        """Everything that stands here now has been read and applied: two whole pulls began after this."""
        keys, serials = self.asked, self.asked_denylist
        await eventually(lambda: self.asked >= keys + 2 and self.asked_denylist >= serials + 2)

    async def _keysets(self, _request: sig.KeysetChangesRequest, _call: Call) -> sig.KeysetChangesResponse:
        if self.away:
            raise Unavailable("scripted")
        self.asked += 1
        return sig.KeysetChangesResponse(
            version=self.version,
            store_epoch=self.store_epoch,
            keyset=[sig.Keyset(source=source, version=keys) for source, keys in self.keysets.items()],
        )

    async def _usage(self, request: sig.ReportKeyUsageRequest, _call: Call) -> sig.ReportKeyUsageResponse:
        if self.away:
            raise Unavailable("scripted")
        for use in request.use:
            key = (use.source, use.key_version)
            self.used[key] = self.used.get(key, 0) + use.commands
        return sig.ReportKeyUsageResponse()

    async def _denylist(self, _request: sig.DenylistRequest, _call: Call) -> sig.DenylistResponse:
        if self.away:
            raise Unavailable("scripted")
        self.asked_denylist += 1
        return sig.DenylistResponse(version=self.version, serial=self.revoked)


@dataclass
class ScriptedRegistry:
    """A changelog, and whatever `resolve` answers."""

    log: list[reg.Change] = field(default_factory=list)
    epoch: int = 1
    away: bool = False
    asked: int = 0
    dumped: int = 0
    page: int = 0
    """Changes, or entries of a dump, per answer; 0 for all."""
    resolve: Callable[[reg.ResolveRequest], Awaitable[bytes]] | None = None
    resolved: list[reg.ResolveRequest] = field(default_factory=list)
    bans: list[reg.SetBanRequest] = field(default_factory=list)

    def methods(self) -> Methods:
        methods = Methods()
        methods.unary("/snavio.v1.Registry/Changes", self._changes, reg.ChangesRequest)
        methods.unary("/snavio.v1.Registry/Dump", self._dump, reg.DumpRequest)
        methods.unary_raw("/snavio.v1.Registry/Resolve", self._resolve)
        methods.unary("/snavio.v1.Registry/SetBan", self._set_ban, reg.SetBanRequest)
        return methods

    def write(self, *, deleted: bool = False, **value: Any) -> None:
        """One change, such as `route=Route(...)`."""
        self.log.append(reg.Change(version=len(self.log) + 1, at_unix_ns=1, deleted=deleted, **value))

    def allow(self, source: str, target: str, name: str, *, profile: int = reg.PROFILE_LOW) -> None:
        """A route, and the right to use it."""
        self.write(
            route=reg.Route(target=target, name=name, topic=f"acme/{target}", profile=profile)  # type: ignore[arg-type]
        )
        self.write(acl=reg.AclEntry(source=source, target=target, name=name))

    async def was_read(self) -> None:
        """Everything that stands here now has been read and applied."""
        before = self.asked
        await eventually(lambda: self.asked >= before + 2)

    async def _changes(self, request: reg.ChangesRequest, _call: Call) -> reg.ChangesResponse:
        if self.away:
            raise Unavailable("scripted")
        self.asked += 1
        since = request.since_version if request.directory_epoch == self.epoch else 0
        end = min(len(self.log), since + self.page) if self.page else len(self.log)
        return reg.ChangesResponse(
            version=end, directory_epoch=self.epoch, change=self.log[since:end], more=end < len(self.log)
        )

    async def _dump(self, request: reg.DumpRequest, _call: Call) -> reg.DumpResponse:
        if self.away:
            raise Unavailable("scripted")
        self.dumped += 1
        if request.directory_epoch not in (0, self.epoch):
            raise Conflict("scripted", reason="epoch-changed")
        version = request.version or len(self.log)
        newest = {_place(change): change for change in self.log[:version]}
        standing = [
            change
            for change in newest.values()
            if not change.deleted and request.kind in ("", change.WhichOneof("value"))
        ]
        begin = int(request.page_token or 0)
        end = begin + (self.page or len(standing) or 1)
        return reg.DumpResponse(
            version=version,
            directory_epoch=self.epoch,
            entry=standing[begin:end],
            next_page_token=str(end) if end < len(standing) else "",
        )

    async def _set_ban(self, request: reg.SetBanRequest, _call: Call) -> reg.WriteResponse:
        if self.away:
            raise Unavailable("scripted")
        self.bans.append(request)
        return reg.WriteResponse(version=1, changed=True)

    async def _resolve(self, raw: bytes, _call: Call) -> bytes:
        if self.away or self.resolve is None:
            raise Unavailable("scripted")
        request = reg.ResolveRequest.FromString(raw)
        if not request.key:
            # Slow says that it is there.
            return b""
        self.resolved.append(request)
        return await self.resolve(request)


def _place(change: reg.Change) -> tuple[str, ...]:
    kind = change.WhichOneof("value") or ""
    value = getattr(change, kind)
    keys = ("source", "target", "name", "tenant", "service")
    return (kind, *(getattr(value, key) for key in keys if key in value.DESCRIPTOR.fields_by_name))


Script = Callable[[Any, BatchStream], Awaitable[None]]


@dataclass
class ScriptedHop:
    """The serving end of a batch stream; what arrives is kept, what is answered is the script's business."""

    method: str
    message: type[Any]
    script: Script | None = None
    frames: list[bytes] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)
    hellos: list[Hello] = field(default_factory=list)
    held: list[tuple[Any, BatchStream]] = field(default_factory=list)

    @classmethod
    def fast(cls) -> ScriptedHop:
        return cls("/snavio.v1.Fast/Dispatch", Batch)

    @classmethod
    def slow(cls) -> ScriptedHop:
        return cls("/snavio.v1.Slow/Arbitrate", ArbitrationBatch)

    @classmethod
    def mailbox(cls) -> ScriptedHop:
        return cls("/snavio.v1.Mailbox/SendStream", SendBatch)

    def methods(self) -> Methods:
        methods = Methods()
        methods.stream_raw(self.method, self._serve)
        return methods

    async def hold(self, batch: Any, stream: BatchStream) -> None:
        """Keep the batch unanswered until `release`."""
        self.held.append((batch, stream))

    def release(self, verdict: Verdict = Verdict.DELIVERED) -> None:
        """Answer what is held, and from now on at once."""
        self.script = None
        while self.held:
            batch, stream = self.held.pop(0)
            stream.reply(uniform(batch, verdict), True)

    @property
    def commands(self) -> int:
        """Number of arrivals."""
        return sum(len(commands_of(batch)) for batch in self.batches)

    async def _serve(self, call: Call) -> None:
        clock = SystemClock()
        stream = BatchStream(call, gate=CertificateGate(clock=clock), window=HOP_WINDOW)
        self.hellos.append(await stream.greet(mesh_hello(clock, in_flight=HOP_WINDOW)))
        try:
            async for frame in stream.batches():
                batch = self.message.FromString(frame)
                self.frames.append(frame)
                self.batches.append(batch)
                if self.script is None:
                    stream.reply(uniform(batch, Verdict.DELIVERED), True)
                else:
                    await self.script(batch, stream)
        finally:
            # Nobody waits for what the script has decided not to answer.
            for _ in range(HOP_WINDOW):
                stream.reply(b"", True)
            await stream.finish()


def runs_of(batch: Any) -> list[Any]:
    """Every run, whatever kind of batch it is in."""
    if isinstance(batch, Batch):
        return list(batch.run)
    nested = batch.topic if isinstance(batch, SendBatch) else batch.escalation
    return [run for each in nested for run in each.run]


def commands_of(batch: Any) -> list[bytes]:
    """Every command, in the order in which answers number them."""
    return [command for run in runs_of(batch) for command in run.command]


def uniform(batch: Any, verdict: Verdict) -> bytes:
    """The same verdict for all."""
    return answering(batch, [verdict] * len(commands_of(batch)))


def answering(
    batch: Any, codes: Iterable[int], *, refusals: Iterable[Refusal] = (), first: int = 0, final: bool = True
) -> bytes:
    """A serialised answer."""
    frame: bytes = Verdicts(
        batch_seq=batch.header.batch_seq, first=first, codes=bytes(codes), refusal=refusals, final=final
    ).SerializeToString()
    return frame


@dataclass
class Bench:
    """Surroundings of one service under test: a CA, a clock, and its neighbours."""

    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(time.time_ns()))
    neighbours: dict[str, Neighbour] = field(default_factory=dict)
    channels: list[MeshChannel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder / "peers")

    async def neighbour(self, name: str, methods: Methods) -> Neighbour:
        neighbour = self.neighbours[name] = Neighbour(self.authority, name, methods)
        await neighbour.start()
        return neighbour

    def mesh(self, name: str, **settings: Any) -> MeshSettings:
        """Settings for the service `name` among the neighbours, with a certificate for it."""
        addresses = {each: neighbour.address for each, neighbour in self.neighbours.items()}
        mesh = MeshSettings.model_validate(
            {
                "state_dir": self.folder,
                "pull_interval_ms": 50,
                **addresses,
                name: "127.0.0.1:0",
                **settings,
            }
        )
        self.authority.leaf(
            Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.MESH, name), folder=mesh.certificates(name)
        )
        return mesh

    def channel(self, address: str, files: CertificateFiles, service: str) -> MeshChannel:
        channel = MeshChannel(address, files=files, service=service)
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()
        for neighbour in self.neighbours.values():
            await neighbour.stop()
