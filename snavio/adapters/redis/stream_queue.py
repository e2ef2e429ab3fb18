"""Puts commands into Redis streams, one entry each.

Never takes a key from outside: it is derived from the topic. Never answers before Redis has the entries on disk,
unless the operator said that Redis's own setting is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from snavio.adapters.redis.scripts import script
from snavio.domain.queue_address import stream_key
from snavio.domain.verdict import Verdict
from snavio.errors import StateError
from snavio.ports.queue_driver import DriverFailed, DriverResult, OutgoingMessage, QueueState

FIELD: Final = b"run"
"""The one field of an entry: a serialised Run with a single command."""
MARK_SECONDS: Final = 60
FULL_RETRY_MS: Final = 1000
PROBE_MS: Final = 1
CONNECTIONS: Final = 16
CONNECT_S: Final = 1.0

SCRIPT: Final = script("append")


class RedisStreamDriver:
    """A `QueueDriver`."""

    def __init__(self, url: str, *, max_stream_length: int, require_fsync: bool = True) -> None:
        # `RetryingQueue` is the one that tries again; a second layer below it would outlive the budget.
        self._pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=CONNECT_S,
            socket_connect_timeout=CONNECT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._max_stream_length = max_stream_length
        self._require_fsync = require_fsync
        self._waits_for_fsync: bool | None = None
        self._script_id = ""

    async def deliver(
        self, topic: str, messages: Sequence[OutgoingMessage], *, token: str, timeout_s: float
    ) -> DriverResult:
        """Store the messages in order; those that do not fit are refused as saturated."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect()
                try:
                    stored = await self._store(connection, topic, messages, token, timeout_s)
                except BaseException:
                    # Its next answer would be this one's.
                    await connection.disconnect()
                    raise
                finally:
                    await self._pool.release(connection)
        except DriverFailed:
            raise
        except ResponseError as error:
            return _refused(error, len(messages))
        except (RedisError, OSError, TimeoutError, asyncio.IncompleteReadError):
            self._waits_for_fsync = None  # it may come back as another server
            raise DriverFailed("Redis did not answer.", perhaps=True) from None
        verdicts = [Verdict.DELIVERED] * stored + [Verdict.SATURATED] * (len(messages) - stored)
        full = stored < len(messages)
        return DriverResult(
            tuple(verdicts), FULL_RETRY_MS if full else 0, "The stream is full." if full else ""
        )

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        """Its server's settings, the kind of its key, and its length."""
        self._waits_for_fsync = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect()
                try:
                    length = int(await _ask(connection, "XLEN", stream_key(topic)))
                except ResponseError as error:
                    return QueueState(flaw=_refused(error, 1).detail or "Redis refused for now.")
                except BaseException:
                    await connection.disconnect()
                    raise
                finally:
                    await self._pool.release(connection)
        except DriverFailed as failure:
            if failure.unfit:
                return QueueState(flaw=failure.cause)
            raise
        except (RedisError, OSError, TimeoutError, asyncio.IncompleteReadError):
            raise DriverFailed("Redis did not answer.", perhaps=False) from None
        room = max(0, self._max_stream_length - length)
        return QueueState("" if room else "The stream is full.", length, room)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._pool.disconnect()

    async def _connect(self) -> Any:
        try:
            connection = await self._pool.get_connection()
        except (RedisError, OSError, TimeoutError):
            self._waits_for_fsync = None
            raise DriverFailed("Redis cannot be reached.", perhaps=False) from None
        try:
            if self._waits_for_fsync is None:
                self._waits_for_fsync = await self._examine(connection)
        except StateError as unfit:
            await self._pool.release(connection)
            raise DriverFailed(str(unfit), perhaps=False, unfit=True) from None
        except (RedisError, OSError, asyncio.IncompleteReadError):
            await connection.disconnect()
            await self._pool.release(connection)
            raise DriverFailed("Redis cannot be examined.", perhaps=False) from None
        except BaseException:
            await connection.disconnect()
            await self._pool.release(connection)
            raise
        return connection

    async def _examine(self, connection: Any) -> bool:
        """True if each delivery must wait for the disk; StateError when the server would lose commands."""
        settings = {}
        for name in ("appendonly", "appendfsync", "maxmemory-policy"):
            told = await _ask(connection, "CONFIG", "GET", name)
            settings[name] = told[1].decode() if len(told) == 2 else ""
        if settings["maxmemory-policy"].startswith("allkeys"):
            raise StateError("Redis may evict streams: set maxmemory-policy to noeviction.", reason="evicts")
        if not self._require_fsync:
            return False
        if settings["appendonly"] != "yes":
            raise StateError(
                "Redis keeps nothing on disk: set appendonly yes, or redis_fsync = false in [mesh].",
                reason="not-durable",
            )
        if settings["appendfsync"] == "always":
            return False
        commands = await _ask(connection, "COMMAND", "INFO", "WAITAOF")
        if commands and commands[0]:
            try:
                # Known is not allowed: a replica, say, refuses it. Better now than after the entries are written.
                await _ask(connection, "WAITAOF", 1, 0, PROBE_MS)
            except ResponseError as error:
                raise StateError(f"Redis refuses WAITAOF: {error}", reason="not-durable") from None
            return True
        raise StateError(
            "Redis answers before its fsync: set appendfsync always, or redis_fsync = false in [mesh].",
            reason="not-durable",
        )

    async def _store(
        self, connection: Any, topic: str, messages: Sequence[OutgoingMessage], token: str, timeout_s: float
    ) -> int:
        key = stream_key(topic)
        arguments = (
            2,
            key,
            f"{key}:sent:{token}",
            self._max_stream_length,
            MARK_SECONDS,
            *(message.run for message in messages),
        )
        if not self._script_id:
            self._script_id = (await _ask(connection, "SCRIPT", "LOAD", SCRIPT)).decode()
        try:
            stored = await _ask(connection, "EVALSHA", self._script_id, *arguments)
        except NoScriptError:
            # A server that restarted has forgotten it.
            stored = await _ask(connection, "EVAL", SCRIPT, *arguments)
        if self._waits_for_fsync:
            await self._wait_for_fsync(connection, timeout_s)
        return min(int(stored), len(messages))

    async def _wait_for_fsync(self, connection: Any, timeout_s: float) -> None:
        try:
            synced = await _ask(connection, "WAITAOF", 1, 0, max(1, round(timeout_s * 1000)))
        except ResponseError:
            # The entries are there. Taken for "nothing was stored", a strict claim would be let go of, and its command
            # delivered twice. The server is examined anew before it is given anything more.
            self._waits_for_fsync = None
            raise DriverFailed("Redis does not say when it is on disk.", perhaps=True) from None
        if not synced[0]:
            raise TimeoutError


async def _ask(connection: Any, *command: Any) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


def _refused(error: ResponseError, messages: int) -> DriverResult:
    """The server answered, so nothing was stored."""
    told = str(error)
    if "OOM" in told or "maxmemory" in told:
        return DriverResult((Verdict.SATURATED,) * messages, FULL_RETRY_MS, "Redis is out of memory.")
    if "WRONGTYPE" in told:
        return DriverResult((Verdict.DELIVERY_FAILURE,) * messages, 0, "The key of this queue is no stream.")
    # Loading, read-only for a failover, out of disk: it may pass within the budget.
    return DriverResult((Verdict.UNDECIDED,) * messages, 0, "Redis refused for now.")
