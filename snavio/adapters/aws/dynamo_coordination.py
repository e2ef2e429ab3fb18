"""Coordination in a DynamoDB table, for any number of Slows: read, decide, then write if the record is unchanged.

Time is DynamoDB's, taken from the `Date` of its answers. Never retries a write blindly: only a write that was refused
is tried again, on the record found then. Never relies on the table's own expiry, which comes hours late: each record
carries the time at which it ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import aioboto3
import orjson
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from snavio.adapters.aws.header_clock import HeaderClock
from snavio.adapters.coordination_records import (
    Step,
    counted,
    granting,
    key_text,
    over_ms,
    read_usage,
    returning,
    taking,
    usage_text,
)
from snavio.clock import Clock
from snavio.domain import claim as claims
from snavio.domain.claim import Claim, Terms
from snavio.domain.quota import GrantState, LimitRule, LimitUsage, Permits
from snavio.domain.store_epoch import StoreEpoch, met
from snavio.errors import IntegrityError, Unavailable
from snavio.ports.coordination import BanSeen, ClaimAnswer, ClaimAsk, PermitAsk, PermitReturn

EPOCH_KEY: Final = "epoch"
MOST_ATTEMPTS: Final = 12
AT_ONCE: Final = 32
CALIBRATIONS: Final = 12
PREPARE_SECONDS: Final = 60
# The table's own expiry only frees space; records stay a day longer for an operator to inspect.
KEPT_SECONDS: Final = 86_400

T = TypeVar("T")
Decide = Callable[[str | None, int], tuple[str | None, T]]
"""(record, now_ms) to the record afterwards, None for none, and the answer."""


class _Contended(Exception):
    """Another writer changed the record between the read and the write."""


class DynamoCoordination:
    """A `Coordination`. `store_clock` is for tests: without it, time is DynamoDB's."""

    def __init__(
        self,
        *,
        session: aioboto3.Session,
        table: str,
        endpoint_url: str | None,
        known_epoch: str | None,
        fresh_epoch: str,
        terms: Terms,
        clock: Clock,
        timeout_s: float,
        met_epoch: Callable[[str], None] | None = None,
        store_clock: Clock | None = None,
    ) -> None:
        self._table = table
        self._session = session
        self._endpoint_url = endpoint_url
        self._config = Config(
            connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1}
        )
        self._known = known_epoch
        self._fresh = fresh_epoch
        self._terms = terms
        self._timeout_s = timeout_s
        self._met_epoch = met_epoch
        self._time = HeaderClock(clock)
        self._store_clock = store_clock
        self._exits = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._born_ms = 0
        self._prepared = False

    async def prepare(self) -> None:
        """Create the table if it does not exist. Unavailable when DynamoDB cannot be reached."""
        client = await self._connected()
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                try:
                    await client.describe_table(TableName=self._table)
                except ClientError as error:
                    if _code(error) != "ResourceNotFoundException":
                        raise
                    await client.create_table(
                        TableName=self._table,
                        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
                        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
                        BillingMode="PAY_PER_REQUEST",
                    )
                    await client.get_waiter("table_exists").wait(TableName=self._table)
        except (ClientError, BotoCoreError, OSError, TimeoutError) as error:
            raise Unavailable(f"The coordination table cannot be prepared: {type(error).__name__}.") from None
        self._prepared = True

    async def calibrate(self) -> None:
        """Read the server's time in different parts of a second, until it is known to a tenth of a second."""
        for _ in range(CALIBRATIONS if self._store_clock is None else 0):
            await self._get(EPOCH_KEY)
            await asyncio.sleep(1 / CALIBRATIONS)

    async def close(self) -> None:
        await self._exits.aclose()
        self._client = None

    # -- limits ----------------------------------------------------------------------------------------

    async def take(self, asks: Sequence[PermitAsk]) -> list[Permits]:
        return await self._debit([(ask.key, ask.rule, taking(ask)) for ask in asks])

    async def grant(self, wishes: Sequence[PermitAsk], *, instance: str, leases: int) -> list[Permits]:
        steps = [(wish.key, wish.rule, granting(wish, instance=instance, leases=leases)) for wish in wishes]
        return await self._debit(steps)

    async def give_back(self, returns: Sequence[PermitReturn]) -> None:
        await self._debit([(back.key, None, returning(back)) for back in returns])

    async def _debit(self, steps: Sequence[tuple[tuple[str, ...], LimitRule | None, Step]]) -> list[Permits]:
        grouped: dict[str, list[tuple[int, LimitRule | None, Step]]] = {}
        for place, (key, rule, step) in enumerate(steps):
            grouped.setdefault("u#" + key_text(key), []).append((place, rule, step))
        answers: list[Permits | None] = [None] * len(steps)

        async def one(name: str, mine: list[tuple[int, LimitRule | None, Step]]) -> None:
            def decide(record: str | None, now_ms: int) -> tuple[str | None, list[Permits | None]]:
                usage = read_usage(record) if record is not None else LimitUsage()
                given: list[Permits | None] = []
                slack_ms = self._slack_ms()
                for _, rule, step in mine:
                    if rule is not None and _uncertain(rule, now_ms, slack_ms):
                        given.append(_not_now(rule, usage, now_ms, slack_ms))
                        continue
                    usage, answer = step(usage, now_ms, self._born_ms)
                    given.append(_shorter(answer, slack_ms))
                return usage_text(usage) if usage.interval >= 0 else None, given

            given = await self._update(name, decide, over=_usage_over)
            for (place, _, _), answer in zip(mine, given, strict=True):
                answers[place] = answer

        await self._all([partial(one, name, mine) for name, mine in grouped.items()])
        return [answer for answer in answers if answer is not None]

    # -- strict ids ------------------------------------------------------------------------------------

    async def claim(self, asks: Sequence[ClaimAsk], *, owner: str) -> list[ClaimAnswer]:
        async def one(ask: ClaimAsk) -> ClaimAnswer:
            def decide(record: str | None, now_ms: int) -> tuple[str | None, ClaimAnswer]:
                found = _read_claim(record)
                kept, claimed, retry_after_ms = claims.claim(
                    found,
                    payload=ask.contents,
                    owner=owner,
                    now_ms=now_ms,
                    terms=self._terms,
                    born_ms=self._born_ms,
                )
                delivered_ms = claims.delivered_ms(found, claimed, self._terms)
                return _claim_text(kept), ClaimAnswer(claimed, retry_after_ms, delivered_ms)

            return await self._update(_claim_key(ask), decide, over=_claim_over)

        # In order where it matters: a second claim of the same id must find the first.
        answers: dict[int, ClaimAnswer] = {}
        for wave in _waves(asks):
            found = await self._all([partial(one, asks[place]) for place in wave])
            answers.update(zip(wave, found, strict=True))
        return [answers[place] for place in range(len(asks))]

    async def look_up(self, source: str, command_id: bytes) -> ClaimAnswer:
        name = _claim_key(ClaimAsk(source, command_id, b""))

        def decide(record: str | None, now_ms: int) -> tuple[str | None, ClaimAnswer]:
            found = _read_claim(record)
            told = claims.look_up(found, now_ms=now_ms, terms=self._terms, born_ms=self._born_ms)
            return record, ClaimAnswer(*told)

        (answer,) = await self._all([partial(self._update, name, decide, over=_claim_over)])
        return answer

    async def commit(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        def decide(record: str | None, now_ms: int) -> tuple[str | None, None]:
            found = _read_claim(record)
            return _claim_text(claims.commit(found, owner=owner, now_ms=now_ms, terms=self._terms)), None

        await self._each_claim(asks, decide)

    async def release(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        def decide(record: str | None, _now_ms: int) -> tuple[str | None, None]:
            return _claim_text(claims.release(_read_claim(record), owner=owner)), None

        await self._each_claim(asks, decide)

    async def _each_claim(self, asks: Sequence[ClaimAsk], decide: Decide[None]) -> None:
        names = dict.fromkeys(_claim_key(ask) for ask in asks)
        await self._all([partial(self._update, name, decide, over=_claim_over) for name in names])

    # -- bans ------------------------------------------------------------------------------------------

    async def count_bans(self, bans: Sequence[BanSeen], *, within_ms: int) -> list[int]:
        def deciding(window_ms: int) -> Decide[int]:
            def decide(record: str | None, now_ms: int) -> tuple[str | None, int]:
                times = counted(orjson.loads(record) if record else [], now_ms, within_ms, window_ms)
                return orjson.dumps(times).decode(), len(times)

            return decide

        over = _ban_over(within_ms)
        answers = []
        for ban in bans:
            # One after the other: the same triple may be reported twice.
            count = partial(self._update, "b#" + key_text(ban.key), deciding(ban.window_ms), over=over)
            answers += await self._all([count])
        return answers

    async def forget_bans(self, keys: Sequence[tuple[str, str, str]]) -> None:
        def decide(_record: str | None, _now_ms: int) -> tuple[str | None, None]:
            return None, None

        names = dict.fromkeys("b#" + key_text(key) for key in keys)
        await self._all([partial(self._update, name, decide, over=_ban_over(0)) for name in names])

    # -- the table -------------------------------------------------------------------------------------

    async def _all(self, work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run all calls, a few at a time, within one deadline."""

        async def run(one: Callable[[], Awaitable[T]]) -> T:
            return await one()

        try:
            async with asyncio.timeout(self._timeout_s):
                if not self._prepared:
                    await self.prepare()
                await self._meet()
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(run(one)) for one in work]
        except TimeoutError:
            raise Unavailable("The coordination store did not answer in time.") from None
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _meet(self) -> None:
        """Read the store's epoch; create or correct it where that is due."""
        for _ in range(MOST_ATTEMPTS):
            item = await self._get(EPOCH_KEY)
            found = StoreEpoch(item["name"]["S"], int(item["born_ms"]["N"])) if item else None
            # The upper bound of the time: an interval that may have begun before the store did is not trusted.
            epoch = met(found, known=self._known, fresh_name=self._fresh, now_ms=self._now_ms()[1])
            if epoch != found:
                body = {"name": {"S": epoch.name}, "born_ms": {"N": str(epoch.born_ms)}}
                try:
                    await self._put(EPOCH_KEY, body, version=int(item["version"]["N"]) if item else None)
                except _Contended:
                    continue
            self._born_ms = epoch.born_ms
            if epoch.name != self._known:
                self._known = epoch.name
                if self._met_epoch is not None:
                    self._met_epoch(epoch.name)
            return
        raise Unavailable("The coordination store's epoch is contended.")

    async def _update(self, name: str, decide: Decide[T], *, over: Callable[[str, int], int]) -> T:
        async with self._slots:
            for attempt in range(MOST_ATTEMPTS):
                item = await self._get(name)
                record = item["record"]["S"] if item else None
                version = int(item["version"]["N"]) if item else None
                now_ms = self._now_ms()[0]
                after, answer = decide(record, now_ms)
                if after == record:
                    return answer
                try:
                    if after is None:
                        await self._delete(name, version=version)
                    else:
                        ends = over(after, now_ms) // 1000 + KEPT_SECONDS
                        body = {"record": {"S": after}, "expires_at": {"N": str(ends)}}
                        await self._put(name, body, version=version)
                except _Contended:
                    await asyncio.sleep(random.uniform(0, 0.004 * 2 ** min(attempt, 5)))  # noqa: S311 no secret
                    continue
                return answer
        raise Unavailable("A record of the coordination store is contended.", reason="contended")

    async def _get(self, name: str) -> dict[str, Any] | None:
        found = await self._call(
            "get_item", TableName=self._table, Key={"pk": {"S": name}}, ConsistentRead=True
        )
        item: dict[str, Any] | None = found.get("Item")
        return item

    async def _put(self, name: str, body: dict[str, Any], *, version: int | None) -> None:
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if version is not None:
            condition = _at_version(version)
        item = {"pk": {"S": name}, "version": {"N": str((version or 0) + 1)}, **body}
        await self._call("put_item", TableName=self._table, Item=item, **condition)

    async def _delete(self, name: str, *, version: int | None) -> None:
        if version is not None:
            await self._call(
                "delete_item", TableName=self._table, Key={"pk": {"S": name}}, **_at_version(version)
            )

    async def _call(self, operation: str, **arguments: Any) -> Any:
        client = await self._connected()
        asked_ms = self._time.mono_ms()
        try:
            found = await getattr(client, operation)(**arguments)
        except ClientError as error:
            if _code(error) == "ConditionalCheckFailedException":
                raise _Contended from None
            # A deleted table is created again, and counts as a store that lost its records.
            self._prepared = _code(error) != "ResourceNotFoundException"
            raise Unavailable(f"The coordination store refuses: {_code(error)}.") from None
        except (BotoCoreError, OSError) as error:
            raise Unavailable(f"The coordination store cannot be asked: {type(error).__name__}.") from None
        self._time.heard(found["ResponseMetadata"]["HTTPHeaders"]["date"], asked_ms=asked_ms)
        return found

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                client = self._session.client(
                    "dynamodb", endpoint_url=self._endpoint_url, config=self._config
                )
                self._client = await self._exits.enter_async_context(client)
        return self._client

    def _now_ms(self) -> tuple[int, int]:
        if self._store_clock is not None:
            now_ms = self._store_clock.unix_ns() // 1_000_000
            return now_ms, now_ms
        bounds = self._time.now_ms()
        if bounds is None:
            raise Unavailable("The coordination store has not told the time yet.")
        return bounds

    def _slack_ms(self) -> int:
        low, high = self._now_ms()
        return high - low


def _uncertain(rule: LimitRule, now_ms: int, slack_ms: int) -> bool:
    """True if the store's clock may already be in the next interval."""
    return now_ms // rule.interval_ms != (now_ms + slack_ms) // rule.interval_ms


def _not_now(rule: LimitRule, usage: LimitUsage, now_ms: int, slack_ms: int) -> Permits:
    end_ms = (now_ms // rule.interval_ms + 1) * rule.interval_ms
    return Permits(0, GrantState.EXHAUSTED, end_ms // rule.interval_ms, end_ms, 0, slack_ms + 1, usage.used)


def _shorter(permits: Permits | None, slack_ms: int) -> Permits | None:
    """The permits with a life shorter by `slack_ms`, by which the store's clock may be ahead of ours."""
    if permits is None or slack_ms == 0:
        return permits
    return replace(permits, life_ms=max(0, permits.life_ms - slack_ms))


def _waves(asks: Sequence[ClaimAsk]) -> list[list[int]]:
    """Indexes of the asks in rounds, each id at most once per round."""
    waves: list[list[int]] = []
    seen: dict[tuple[str, bytes], int] = {}
    for place, ask in enumerate(asks):
        number = seen.get((ask.source, ask.command_id), 0)
        seen[ask.source, ask.command_id] = number + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(place)
    return waves


def _claim_key(ask: ClaimAsk) -> str:
    return f"c#{ask.source}\n{ask.command_id.hex()}"


def _claim_text(claim: Claim | None) -> str | None:
    if claim is None:
        return None
    fields = [claim.payload.hex(), claim.owner, claim.committed, claim.lease_until_ms, claim.expires_ms]
    return orjson.dumps(fields).decode()


def _read_claim(record: str | None) -> Claim | None:
    if record is None:
        return None
    try:
        payload, owner, committed, lease_until_ms, expires_ms = orjson.loads(record)
        return Claim(bytes.fromhex(payload), owner, committed, lease_until_ms, expires_ms)
    except (ValueError, TypeError) as error:
        raise IntegrityError("A record of the coordination store is damaged.") from error


def _usage_over(record: str, _now_ms: int) -> int:
    return over_ms(read_usage(record))


def _claim_over(record: str, now_ms: int) -> int:
    claim = _read_claim(record)
    return claim.expires_ms if claim is not None else now_ms


def _ban_over(within_ms: int) -> Callable[[str, int], int]:
    return lambda _record, now_ms: now_ms + within_ms


def _at_version(version: int) -> dict[str, Any]:
    return {
        "ConditionExpression": "version = :version",
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))
