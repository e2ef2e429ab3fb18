"""Coordination stores of every kind, over servers of the test's own, with a clock that the test moves."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aioboto3

from snavio.adapters.aws.dynamo_coordination import DynamoCoordination
from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.adapters.redis.coordination import RedisCoordination
from snavio.clock import ManualClock, SystemClock
from snavio.domain.claim import Terms
from snavio.ports.coordination import Coordination
from tests.support.moto import REGION, MotoServer
from tests.support.redis import RedisServer

TERMS = Terms(lease_ms=2000, keep_ms=300_000)
TIMEOUT_S = 5.0


@dataclass
class Servers:
    """Shared by a module: starting them takes longer than a test."""

    redis: RedisServer
    moto: MotoServer
    session: aioboto3.Session = field(default_factory=lambda: aioboto3.Session(region_name=REGION))


@dataclass
class Shop:
    """Source of a test's stores: several openings of one kind share their memory."""

    kind: str
    folder: Path
    servers: Servers
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_040_000_000_000))
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex}")
    epochs: int = 0

    @asynccontextmanager
    async def open(
        self,
        *,
        known_epoch: str | None = None,
        clock: ManualClock | None = None,
        max_claims: int = 1000,
        per_source: int = 100,
        max_banned: int = 1000,
        boot: str = "boot-1",
    ) -> AsyncIterator[Coordination]:
        self.epochs += 1
        fresh, clock = f"{self.name}-{self.epochs}", clock or self.clock
        if self.kind == "sqlite":
            store: Coordination = await SqliteCoordination.open(
                self.folder / f"{self.name}.db",
                clock=clock,
                known_epoch=known_epoch,
                fresh_epoch=fresh,
                boot=boot,
                terms=TERMS,
                max_claims=max_claims,
                max_claims_per_source=per_source,
                max_banned=max_banned,
            )
        elif self.kind == "redis":
            store = RedisCoordination(
                self.servers.redis.url,
                prefix=self.name,
                known_epoch=known_epoch,
                fresh_epoch=fresh,
                terms=TERMS,
                max_claims=max_claims,
                max_claims_per_source=per_source,
                timeout_s=TIMEOUT_S,
                clock=clock,
            )
        else:
            dynamo = DynamoCoordination(
                session=self.servers.session,
                table=self.name,
                endpoint_url=self.servers.moto.url,
                known_epoch=known_epoch,
                fresh_epoch=fresh,
                terms=TERMS,
                clock=SystemClock(),
                timeout_s=TIMEOUT_S,
                store_clock=clock,
            )
            await dynamo.prepare()
            store = dynamo
        try:
            yield store
        finally:
            await store.close()

    async def forget_everything(self) -> None:
        """The store comes back empty."""
        if self.kind == "sqlite":
            for file in self.folder.glob(f"{self.name}.db*"):
                file.unlink()
        elif self.kind == "redis":
            async with self.servers.redis.client() as client:
                await client.flushall()
        else:
            async with self.servers.moto.client("dynamodb") as client:
                await client.delete_table(TableName=self.name)

    @asynccontextmanager
    async def going_back(self) -> AsyncIterator[None]:
        """Writes inside the block are lost at its end, as when Redis comes back with an older file of its own."""
        async with self.servers.redis.client() as client:
            kept = {key: await client.dump(key) or b"" for key in await client.keys("*")}
            yield
            await client.flushall()
            for key, value in kept.items():
                await client.restore(key, 0, value)
