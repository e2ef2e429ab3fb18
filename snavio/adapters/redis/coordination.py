"""Coordination on Redis, for any number of Slows: every batch is one script, which Redis runs atomically.

The store's clock is the server's. Never sends a script twice: a call whose answer was lost may have debited. Never
works with a server that may evict: a lost count would let a limit be used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from snavio.adapters.coordination_records import MOST_BANS, key_text
from snavio.adapters.redis.scripts import script
from snavio.clock import Clock
from snavio.domain.claim import Claimed, Terms
from snavio.domain.quota import GrantState, LimitRule, Permits
from snavio.errors import Saturated, StateError, Unavailable
from snavio.ports.coordination import BanSeen, ClaimAnswer, ClaimAsk, PermitAsk, PermitReturn

SAFE_POLICY: Final = "noeviction"
USAGE: Final = script("coordination", "usage")
CLAIMS: Final = script("coordination", "claims")
BANS: Final = script("coordination", "bans")
CONNECTIONS: Final = 16


class RedisCoordination:
    """A `Coordination`. `clock` is for tests: without it, time is the server's.

    A replica that takes over makes limits wait for their next interval and strict ids for their time, unless
    `replicas` of them confirm every call before it counts.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        known_epoch: str | None,
        fresh_epoch: str,
        terms: Terms,
        max_claims: int,
        max_claims_per_source: int,
        timeout_s: float,
        replicas: int = 0,
        met_epoch: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        # One slot of a cluster: a script must find all of its keys together.
        self._prefix = f"{{{prefix}}}:"
        self._known = known_epoch
        self._calls = 0
        """Calls that the store has reported as counted."""
        self._fresh = fresh_epoch
        self._terms = terms
        self._bounds = (max_claims, max_claims_per_source)
        self._timeout_s = timeout_s
        self._replicas = replicas
        self._met_epoch = met_epoch
        self._clock = clock
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A second layer of retries would debit twice.
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Any = Redis(connection_pool=pool)
        self._hashes: dict[str, str] = {}
        self._checked = False

    async def check(self) -> None:
        """StateError when the server may evict; Unavailable when it cannot be reached."""
        async with self._errors():
            memory = await self._redis.info("memory")
        policy = memory.get("maxmemory_policy", SAFE_POLICY)
        if policy != SAFE_POLICY:
            raise StateError(
                f"The Redis server of the coordination store has maxmemory-policy {policy}: it may forget what a "
                f"limit has cost. Set it to {SAFE_POLICY}.",
                reason="store-evicts",
            )
        self._checked = True

    async def close(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()
            await self._redis.connection_pool.disconnect()

    # -- limits ----------------------------------------------------------------------------------------

    async def take(self, asks: Sequence[PermitAsk]) -> list[Permits]:
        keys = [ask.key for ask in asks]
        return await self._usage(keys, [["take", *_rule(ask.rule), ask.want] for ask in asks])

    async def grant(self, wishes: Sequence[PermitAsk], *, instance: str, leases: int) -> list[Permits]:
        keys = [wish.key for wish in wishes]
        steps = [["grant", *_rule(wish.rule), wish.want, instance, leases] for wish in wishes]
        return await self._usage(keys, steps)

    async def give_back(self, returns: Sequence[PermitReturn]) -> None:
        keys = [back.key for back in returns]
        steps = [["back", back.interval_ms, back.interval, back.count, back.granted] for back in returns]
        await self._usage(keys, steps)

    async def _usage(self, keys: Sequence[tuple[str, ...]], steps: Sequence[list[Any]]) -> list[Permits]:
        names: dict[str, int] = {}
        for key in keys:
            names.setdefault(self._prefix + "u:" + key_text(key), len(names) + 2)
        numbered = [
            [names[self._prefix + "u:" + key_text(key)], *step] for key, step in zip(keys, steps, strict=True)
        ]
        answers = await self._run(USAGE, list(names), orjson.dumps(numbered))
        return [
            Permits(int(count), GrantState(int(state)), *(int(number) for number in rest))
            for count, state, *rest in answers
        ]

    # -- strict ids ------------------------------------------------------------------------------------

    async def claim(self, asks: Sequence[ClaimAsk], *, owner: str) -> list[ClaimAnswer]:
        answers = await self._claims("claim", asks, owner)
        if answers == ["full"]:
            raise Saturated("Too many strict commands are remembered.", retry_after_ms=self._terms.lease_ms)
        return [_claim_answer(answer) for answer in answers]

    async def look_up(self, source: str, command_id: bytes) -> ClaimAnswer:
        (answer,) = await self._claims("look up", [ClaimAsk(source, command_id, b"")], "")
        return _claim_answer(answer)

    async def commit(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        await self._claims("commit", asks, owner)

    async def release(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        await self._claims("release", asks, owner)

    async def _claims(self, kind: str, asks: Sequence[ClaimAsk], owner: str) -> list[Any]:
        if not asks:
            return []
        places: dict[str, int] = {}

        def place(name: str) -> int:
            return places.setdefault(self._prefix + name, len(places) + 2)

        place("n:")
        entries = [
            [
                place(f"c:{ask.source}\n{ask.command_id.hex()}"),
                place(f"n:{ask.source}"),
                ask.contents.hex(),
            ]
            for ask in asks
        ]
        terms = [kind, owner, self._terms.lease_ms, self._terms.keep_ms, *self._bounds]
        return await self._run(CLAIMS, list(places), orjson.dumps(terms), orjson.dumps(entries))

    # -- bans ------------------------------------------------------------------------------------------

    async def count_bans(self, bans: Sequence[BanSeen], *, within_ms: int) -> list[int]:
        names = [self._prefix + "b:" + key_text(ban.key) for ban in bans]
        terms = orjson.dumps([within_ms, MOST_BANS, [ban.window_ms for ban in bans]])
        return [int(count) for count in await self._run(BANS, names, terms)]

    async def forget_bans(self, keys: Sequence[tuple[str, str, str]]) -> None:
        if keys:
            async with self._errors():
                await self._redis.delete(*(self._prefix + "b:" + key_text(key) for key in keys))

    # -- the server ------------------------------------------------------------------------------------

    async def _run(self, script: str, keys: Sequence[str], *arguments: bytes) -> list[Any]:
        if not self._checked:
            try:
                await self.check()
            except StateError as error:
                raise Unavailable(str(error), reason=error.reason) from None
        now_ms = self._clock.unix_ns() // 1_000_000 if self._clock is not None else 0
        head = orjson.dumps([self._known or "", self._fresh, now_ms, self._calls, self._replicas > 0])
        named = [self._prefix + "epoch", *keys]
        async with self._errors():
            try:
                raw = await self._evaluate(script, named, head, arguments)
            except NoScriptError:
                # It did not run, so it may be sent again: the server was restarted and has lost its scripts.
                self._hashes.pop(script, None)
                raw = await self._evaluate(script, named, head, arguments)
        epoch: str
        answers: list[Any]
        epoch, calls, *answers = orjson.loads(raw)
        # Answers may arrive out of order; the counts of another epoch are separate.
        self._calls = max(self._calls, int(calls)) if epoch == self._known else int(calls)
        if epoch != self._known:
            self._known = epoch
            if self._met_epoch is not None:
                self._met_epoch(epoch)
        return answers

    async def _evaluate(
        self, script: str, keys: list[str], head: bytes, arguments: tuple[bytes, ...]
    ) -> bytes:
        if script not in self._hashes:
            self._hashes[script] = await self._redis.script_load(script)
        evaluated = (self._hashes[script], len(keys), *keys, head, *arguments)
        if not self._replicas:
            found: bytes = await self._redis.evalsha(*evaluated)
            return found
        # On one connection: WAIT confirms the writes of its own connection only.
        async with self._redis.pipeline(transaction=False) as both:
            both.evalsha(*evaluated)
            both.execute_command("WAIT", self._replicas, max(1, round(self._timeout_s * 900)))
            found, confirmed = await both.execute()
        if int(confirmed) < self._replicas:
            # Its debit is lost, which is safe; used, the permits might be given out again after a failover.
            raise Unavailable(
                f"Only {int(confirmed)} of {self._replicas} replicas of the coordination store have confirmed.",
                reason="not-replicated",
            )
        return found

    @contextlib.asynccontextmanager
    async def _errors(self) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except (RedisError, OSError, TimeoutError) as error:
            if isinstance(error, NoScriptError):
                raise
            # The server may be another one, or an empty one, when it comes back.
            self._checked = False
            raise Unavailable(f"The coordination store cannot be asked: {type(error).__name__}.") from None


def _rule(rule: LimitRule) -> list[Any]:
    return [rule.max, rule.interval_ms, rule.burst, rule.cooldown_ms, rule.shadow]


def _claim_answer(told: Sequence[Any]) -> ClaimAnswer:
    claimed, retry_after_ms, delivered_ms = (int(number) for number in told)
    return ClaimAnswer(Claimed(claimed), retry_after_ms, delivered_ms)
