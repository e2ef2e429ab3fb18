"""Dead letters of Redis streams, in a stream of their own beside each, in the same slot of a cluster.

Never moves what a consumer works on: only what was delivered too often and lies untouched.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from snavio.adapters.redis.scripts import script
from snavio.clock import Clock
from snavio.domain.queue_address import dead_stream_key, stream_key
from snavio.errors import BadRequest, Unavailable
from snavio.ports.dead_letters import DeadLetter

CALL_SECONDS: Final = 5.0
AT_ONCE: Final = 100
MAX_LETTERS: Final = 10_000
MAX_ATTEMPTS: Final = 10
IDLE_MS: Final = 60_000
"""Longer than a consumer that is alive leaves a message between two attempts."""
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)


class RedisDeadLetters:
    """A `DeadLetters`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        max_stream_length: int,
        max_attempts: int = MAX_ATTEMPTS,
        idle_ms: int = IDLE_MS,
        max_letters: int = MAX_LETTERS,
    ) -> None:
        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=2,
            timeout=CALL_SECONDS,
            socket_connect_timeout=2.0,
            socket_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._redis: Any = Redis(connection_pool=pool)
        self._clock = clock
        self._max_stream_length = max_stream_length
        self._max_attempts = max_attempts
        self._idle_ms = idle_ms
        self._max_letters = max_letters
        self._bury, self._redrive = script("bury"), script("redrive")

    async def sweep(self, topics: Sequence[str]) -> Mapping[str, int]:
        moved = {}
        async with self._asking():
            for topic in topics:
                if many := await self._sweep(topic):
                    moved[topic] = many
        return moved

    async def listed(self, topic: str, *, limit: int, after: str = "") -> list[DeadLetter]:
        if after and _ID.fullmatch(after) is None:
            raise BadRequest("after: not the id of a dead letter.", reason="bad-field")
        async with self._asking():
            rows = await self._redis.execute_command(
                "XRANGE", dead_stream_key(topic), f"({after}" if after else "-", "+", "COUNT", limit
            )
        return [_letter(row) for row in rows or ()]

    async def redrive(self, topic: str, letter_ids: Sequence[str]) -> int:
        if any(_ID.fullmatch(each) is None for each in letter_ids):
            raise BadRequest("letter_id: not the id of a dead letter.", reason="bad-field")
        if not letter_ids:
            return 0
        async with self._asking():
            return int(
                await self._redis.eval(
                    self._redrive,
                    2,
                    stream_key(topic),
                    dead_stream_key(topic),
                    self._max_stream_length,
                    *letter_ids,
                )
            )

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _sweep(self, topic: str) -> int:
        key, moved = stream_key(topic), 0
        try:
            groups = await self._redis.xinfo_groups(key)
        except ResponseError:
            return 0  # No stream, or none that has groups.
        for group in groups:
            name, start = group["name"], "-"
            while True:
                rows = await self._redis.xpending_range(
                    key, name, min=start, max="+", count=AT_ONCE, idle=self._idle_ms
                )
                worn = [row for row in rows if row["times_delivered"] >= self._max_attempts]
                if worn:
                    moved += await self._move(topic, name, worn)
                if len(rows) < AT_ONCE:
                    break
                start = f"({rows[-1]['message_id'].decode()}"
        return moved

    async def _move(self, topic: str, group: Any, rows: Sequence[Mapping[str, Any]]) -> int:
        entries: list[Any] = []
        for row in rows:
            entries += [row["message_id"], "max-attempts", row["times_delivered"]]
        return int(
            await self._redis.eval(
                self._bury,
                2,
                stream_key(topic),
                dead_stream_key(topic),
                group,
                self._max_letters,
                self._clock.unix_ns() // 1_000_000,
                *entries,
            )
        )

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(4 * CALL_SECONDS):
                yield
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(
                f"Redis does not answer: {type(error).__name__}.", reason="redis-away"
            ) from None


def _letter(row: Any) -> DeadLetter:
    letter_id, fields = row
    told = (
        {bytes(key): bytes(value) for key, value in fields.items()}
        if isinstance(fields, dict)
        else {bytes(fields[at]): bytes(fields[at + 1]) for at in range(0, len(fields) - 1, 2)}
    )
    was = told.get(b"was", b"0").partition(b"-")[0]
    return DeadLetter(
        letter_id.decode() if isinstance(letter_id, bytes) else str(letter_id),
        told.get(b"reason", b"").decode("utf-8", "replace")[:200],
        _number(told.get(b"attempts")),
        _number(told.get(b"died_ms")) * 1_000_000,
        _number(was) * 1_000_000,
        told.get(b"run", b""),
    )


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() and len(text) < 19 else 0
