"""Fast in this process, between scripted neighbours over mTLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.fast.app import FastApp
from services.fast.settings import FastSettings
from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.hop.server_stream import BatchStream
from snavio.host.introspection import METHOD
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import slow_pb2 as slw
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.neighbours import (
    Bench,
    ScriptedHop,
    ScriptedRegistry,
    ScriptedSigner,
    answering,
    commands_of,
)
from tests.support.pki import Authority
from tests.support.wire import Answer, Forge, Key, RawStream, hello_frame, mesh_batch, run

GOOD = Verdict.DELIVERED
SOURCE = "acme/billing"
RIVAL = "globex/shop"
TARGET, NAME = "discord-bot", "notify-user"
CACHE_MISS, ACL_EXPIRED, ROUTE_EXPIRED, DEDUPE_REQUIRED = 1, 2, 3, 4
TOKEN_REQUIRED, WARM_BANNED, COLD_ONLY, SYNC = 5, 6, 7, 8


@dataclass
class ScriptedGrants:
    """Slow's unary half: permits as a test gives them, and what was told to it."""

    permits: dict[tuple[str, str], slw.Grant] = field(default_factory=dict)
    """Answer to every wish for a route; DECIDED_BY_SLOW for the others."""
    away: bool = False
    asked: list[slw.GrantsRequest] = field(default_factory=list)
    returned: list[slw.PermitReturn] = field(default_factory=list)
    bans: list[slw.BanReport] = field(default_factory=list)

    def add_to(self, methods: Methods) -> Methods:
        methods.unary("/snavio.v1.Slow/Grants", self._grants, slw.GrantsRequest)
        methods.unary("/snavio.v1.Slow/ReturnPermits", self._return, slw.ReturnPermitsRequest)
        methods.unary("/snavio.v1.Slow/ReportBans", self._bans, slw.ReportBansRequest)
        return methods

    @property
    def calls(self) -> int:
        return len(self.asked) + len(self.returned) + len(self.bans)

    async def _grants(self, request: slw.GrantsRequest, _call: Call) -> slw.GrantsResponse:
        if self.away:
            raise Unavailable("scripted")
        self.asked.append(request)
        none = slw.Grant(state=slw.GRANT_STATE_DECIDED_BY_SLOW, retry_after_ms=10_000)
        return slw.GrantsResponse(
            grant=[self.permits.get((wish.target, wish.name), none) for wish in request.wish]
        )

    async def _return(self, request: slw.ReturnPermitsRequest, _call: Call) -> slw.ReturnPermitsResponse:
        self.returned.extend(request.permit)
        return slw.ReturnPermitsResponse()

    async def _bans(self, request: slw.ReportBansRequest, _call: Call) -> slw.ReportBansResponse:
        if self.away:
            raise Unavailable("scripted")
        self.bans.extend(request.ban)
        return slw.ReportBansResponse()


@dataclass
class Scene:
    """Fast and everybody around it."""

    bench: Bench
    registry: ScriptedRegistry
    slow: ScriptedHop
    mailbox: ScriptedHop
    signer: ScriptedSigner
    app: FastApp
    stream: RawStream
    forge: Forge
    grants: ScriptedGrants
    address: str
    seq: int = 0

    @property
    def clock(self) -> Any:
        return self.bench.clock

    async def ask(self, *commands: bytes, source: str = SOURCE) -> list[Verdict]:
        """The verdicts of one batch."""
        return (await self.stream.ask(self.batch(*commands, source=source), self.seq)).codes

    def batch(self, *commands: bytes, source: str = SOURCE, budget_ms: int = 5000) -> bytes:
        self.seq += 1
        return mesh_batch([run(source, commands)], batch_seq=self.seq, budget_ms=budget_ms)

    async def send(self, count: int, *, source: str = SOURCE, target: str = TARGET) -> Answer:
        """`count` commands of one source in one batch, finally answered."""
        commands = [self.forge.command(target=target) for _ in range(count)]
        return await self.stream.ask(self.batch(*commands, source=source), self.seq)

    async def status(self) -> dict[str, float]:
        """Every counter and gauge, and how often something was timed."""
        channel = self.bench.channel(self.address, self.bench.authority.operator("ops"), "fast")
        told = await channel.call(METHOD, StatusRequest(), StatusResponse, timeout_s=10)
        timed = {each.name: float(each.count) for each in told.latency}
        return {each.name: float(each.value) for each in (*told.counter, *told.gauge)} | timed

    def reasons(self) -> list[int]:
        """Reasons of all escalations so far, in order."""
        return [each.reason for batch in self.slow.batches for each in batch.escalation]

    async def way(self) -> str | int:
        """Way of a command at this moment: `mailbox`, or the reason of its escalation."""
        warm, cold = self.mailbox.commands, self.slow.commands
        assert await self.ask(self.forge.command()) == [GOOD]
        if self.mailbox.commands > warm:
            assert self.slow.commands == cold
            return "mailbox"
        assert self.slow.commands == cold + 1
        reason: int = self.slow.batches[-1].escalation[0].reason
        return reason


@asynccontextmanager
async def fast(
    folder: Path,
    *,
    authority: Authority | None = None,
    registry: ScriptedRegistry | None = None,
    shield_ttl_s: int = 3600,
    **settings: Any,
) -> AsyncIterator[Scene]:
    bench, signer = Bench(folder), ScriptedSigner()
    if authority is not None:
        bench.authority = authority
    registry = registry or ScriptedRegistry()
    slow, mailbox, grants = ScriptedHop.slow(), ScriptedHop.mailbox(), ScriptedGrants()
    for name, methods in (
        ("signer", signer.methods()),
        ("registry", registry.methods()),
        ("slow", grants.add_to(slow.methods())),
        ("mailbox", mailbox.methods()),
    ):
        await bench.neighbour(name, methods)
    app = FastApp(bench.mesh("fast"), FastSettings.model_validate(settings), bench.clock)
    try:
        address = f"127.0.0.1:{await app.start()}"
        channel = bench.channel(address, bench.authority.mesh("shield", ttl_s=shield_ttl_s), "fast")
        stream = RawStream(channel, "/snavio.v1.Fast/Dispatch")
        await stream.greet(hello_frame(instance="shield-0", epoch=1))
        forge = Forge(Key("hmac-v1", b"k" * 32), "a", clock=bench.clock)
        yield Scene(bench, registry, slow, mailbox, signer, app, stream, forge, grants, address)
        stream.cancel()
    finally:
        slow.release()
        mailbox.release()
        bench.clock.advance(seconds=3600)
        await app.drain()
        await bench.close()


@asynccontextmanager
async def rivals(folder: Path) -> AsyncIterator[Scene]:
    """A Fast that knows one route, on which two sources may send."""
    # A certificate that outlives a wall clock which is set by an hour: that is its own business.
    async with fast(folder, shield_ttl_s=4 * 3600) as running:
        allow(running.registry, SOURCE, RIVAL)
        await put(running, route())
        yield running


def route(**told: Any) -> reg.Route:
    """That route, with what a test adds."""
    return reg.Route(target=TARGET, name=NAME, topic="acme/discord-bot", **told)


def allow(registry: ScriptedRegistry, *sources: str) -> None:
    """Let them send on it."""
    for source in sources:
        registry.write(acl=reg.AclEntry(source=source, target=TARGET, name=NAME))


def issued(permits: int, *, life_ms: int = 60_000) -> slw.Grant:
    """Permits, as Slow gives them."""
    return slw.Grant(state=slw.GRANT_STATE_ISSUED, permits=permits, life_ms=life_ms, interval=7)


def refusing(verdict: Verdict) -> Any:
    """A script of Slow: this verdict for everything."""

    async def script(batch: Any, stream: BatchStream) -> None:
        stream.reply(answering(batch, [verdict] * len(commands_of(batch))), True)

    return script


async def put(scene: Scene, told: reg.Route) -> None:
    """Write the route and wait until Fast has read it."""
    scene.registry.write(route=told)
    await scene.registry.was_read()
