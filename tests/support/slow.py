"""Slow in this process, between scripted neighbours, with whatever coordination store a test gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.slow.app import SlowApp
from services.slow.settings import SlowSettings
from snavio.domain.verdict import Verdict
from snavio.ports.coordination import Coordination
from snavio.v1 import registry_pb2 as reg
from tests.support.neighbours import Bench, ScriptedHop, ScriptedRegistry, ScriptedSigner
from tests.support.wire import Answer, Forge, Key, RawStream, arbitration_batch, hello_frame, run

GOOD = Verdict.DELIVERED
SOURCE = "acme/billing"
TARGET, NAME = "discord-bot", "delete-user"
SYNC = 8


@dataclass
class Scene:
    """Slow and everybody around it."""

    bench: Bench
    registry: ScriptedRegistry
    mailbox: ScriptedHop
    signer: ScriptedSigner
    app: SlowApp
    stream: RawStream
    forge: Forge
    address: str = ""
    seq: int = 0

    def batch(
        self, *commands: bytes, source: str = SOURCE, reason: int = SYNC, budget_ms: int = 5000
    ) -> bytes:
        self.seq += 1
        runs = [run(source, commands)]
        return arbitration_batch([(reason, runs)], batch_seq=self.seq, budget_ms=budget_ms)

    async def ask(self, *commands: bytes, source: str = SOURCE, reason: int = SYNC) -> Answer:
        return await self.stream.ask(self.batch(*commands, source=source, reason=reason), self.seq)

    def commands(self, count: int) -> list[bytes]:
        """Fresh ones, all alike but for their ids."""
        return [self.forge.command() for _ in range(count)]


def resolution(
    *,
    allowed: bool = True,
    suspended: bool = False,
    routed: bool = True,
    warm_banned: bool = False,
    **route: Any,
) -> reg.Resolution:
    """Registry's answer; keywords that are not its own go into the route."""
    quota = route.pop("source_quota", None)
    fields = {"target": TARGET, "name": NAME, "topic": f"acme/{TARGET}", "profile": reg.PROFILE_SYNC, **route}
    return reg.Resolution(
        route=reg.Route(**fields) if routed else None,
        allowed=allowed,
        suspended=suspended,
        warm_banned=warm_banned,
        source_quota=quota,
    )


def limit(most: int, seconds: int = 60, **more: Any) -> reg.Limit:
    """A route's limit."""
    return reg.Limit(max=most, interval_seconds=seconds, **more)


def always(*answers: reg.Resolution) -> Callable[[reg.ResolveRequest], Awaitable[bytes]]:
    """The same answer to every key, or exactly these."""

    async def resolve(request: reg.ResolveRequest) -> bytes:
        given = answers if len(answers) != 1 else answers * len(request.key)
        raw: bytes = reg.ResolveResponse(version=1, resolution=given).SerializeToString()
        return raw

    return resolve


@asynccontextmanager
async def slow(
    folder: Path, *, store: Coordination | None = None, bench: Bench | None = None, **settings: Any
) -> AsyncIterator[Scene]:
    """`store` None: the embedded one, in `folder`."""
    bench, signer, registry = (
        bench or Bench(folder),
        ScriptedSigner(),
        ScriptedRegistry(resolve=always(resolution())),
    )
    mailbox = ScriptedHop.mailbox()
    await bench.neighbour("signer", signer.methods())
    await bench.neighbour("registry", registry.methods())
    await bench.neighbour("mailbox", mailbox.methods())
    # Longer than a busy machine keeps this process waiting: who is to be late in a test says so.
    patient = {"resolve_timeout_ms": 10_000, "coordination_timeout_ms": 8_000, **settings}
    app = SlowApp(bench.mesh("slow"), SlowSettings.model_validate(patient), bench.clock, store=store)
    try:
        address = f"127.0.0.1:{await app.start()}"
        channel = bench.channel(address, bench.authority.mesh("fast"), "slow")
        stream = RawStream(channel, "/snavio.v1.Slow/Arbitrate")
        await stream.greet(hello_frame(instance="fast-0", epoch=1))
        forge = Forge(Key("hmac-v1", b"k" * 32), "a", target=TARGET, name=NAME, clock=bench.clock)
        yield Scene(bench, registry, mailbox, signer, app, stream, forge, address)
        stream.cancel()
    finally:
        mailbox.release()
        bench.clock.advance(seconds=3600)
        await app.drain()
        await bench.close()
