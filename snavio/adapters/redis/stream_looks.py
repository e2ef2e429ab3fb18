"""Looks at Redis streams: length, what is pending, the oldest entry, and the dead-letter stream.

An entry's id has its time, so ages are exact. Never changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from snavio.clock import Clock
from snavio.domain.queue_address import dead_stream_key, stream_key
from snavio.domain.route_health import QueueLook

TOGETHER: Final = 200
"""Topics of one pipeline."""
CALL_SECONDS: Final = 5.0
CONNECTIONS: Final = 2


class RedisStreamLooks:
    """A `QueueLooks`."""

    def __init__(self, url: str, *, clock: Clock) -> None:
        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=CALL_SECONDS,
            socket_connect_timeout=2.0,
            socket_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._redis: Any = Redis(connection_pool=pool)
        self._clock = clock
        self._seen: set[str] = set()

    async def look(self, topics: Sequence[str]) -> Mapping[str, QueueLook]:
        found: dict[str, QueueLook] = {}
        self._seen &= set(topics)
        for start in range(0, len(topics), TOGETHER):
            part = topics[start : start + TOGETHER]
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    found |= await self._look(part)
            except (RedisError, OSError, TimeoutError) as error:
                failure = f"Redis does not answer: {type(error).__name__}"
                now = self._clock.unix_ns()
                found |= {topic: QueueLook(now, failure=failure) for topic in part}
        return found

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _look(self, topics: Sequence[str]) -> dict[str, QueueLook]:
        asked = self._redis.pipeline(transaction=False)
        for topic in topics:
            key = stream_key(topic)
            asked.execute_command("XINFO", "STREAM", key)
            asked.execute_command("XINFO", "GROUPS", key)
            asked.execute_command("XLEN", dead_stream_key(topic))
        answers = await asked.execute(raise_on_error=False)
        now = self._clock.unix_ns()
        found = {topic: _look(*answers[3 * at : 3 * at + 3], now=now) for at, topic in enumerate(topics)}
        for topic, look in found.items():
            if look is not None:
                self._seen.add(topic)
        gone = QueueLook(now, failure="the stream was deleted, with all that waited in it", certain=True)
        # A stream that was emptied stays; one that was there and is not has been taken away.
        return {
            topic: look or (gone if topic in self._seen else QueueLook(now, dead=0, settled_total=0))
            for topic, look in found.items()
        }


def _look(stream: Any, groups: Any, dead: Any, *, now: int) -> QueueLook | None:
    """The look that these answers are; None where there is no stream."""
    letters = dead if isinstance(dead, int) else 0
    if isinstance(stream, ResponseError):
        if "no such key" in str(stream):
            return None
        return QueueLook(
            now, failure=f"the key of this queue is no stream that can be read: {str(stream)[:80]}"
        )
    if isinstance(stream, Exception) or isinstance(groups, Exception):
        error = stream if isinstance(stream, Exception) else groups
        return QueueLook(now, failure=f"Redis refuses: {type(error).__name__}")
    told = _named(stream)
    length = int(told.get("length", 0))
    pending, read = 0, 0
    for group in map(_named, groups):
        pending += int(group.get("pending", 0))
        last = _millis(group.get("last-delivered-id"))
        read = max(read, last)
    first = told.get("first-entry")
    oldest_ms = _millis(first[0]) if first else 0
    oldest_s = max(0.0, now / 1e9 - oldest_ms / 1e3) if oldest_ms else None
    # Consumers delete what they acknowledged: what was ever added, less what is there, is settled.
    added = told.get("entries-added")
    settled = int(added) - length if isinstance(added, int) else None
    return QueueLook(
        now,
        depth=length,
        inflight=pending,
        oldest_s=oldest_s,
        dead=letters,
        settled_total=settled,
        last_received_unix_ns=read * 1_000_000,
        last_receiver="a consumer group" if read else "",
    )


def _named(row: Any) -> dict[str, Any]:
    if isinstance(row, dict):
        return {_text(key): value for key, value in row.items()}
    return {_text(row[at]): row[at + 1] for at in range(0, len(row) - 1, 2)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _millis(entry_id: Any) -> int:
    try:
        return int(_text(entry_id).partition("-")[0]) if entry_id else 0
    except ValueError:
        return 0
