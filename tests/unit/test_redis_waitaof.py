"""A Redis that stores entries and does not confirm them as durable: the outcome is unknown, they are not given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from snavio.adapters.redis.stream_queue import RedisStreamDriver
from snavio.ports.queue_driver import DriverFailed, OutgoingMessage

REFUSED = b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n"
SYNCED = b"*2\r\n:1\r\n:0\r\n"
LETTER = OutgoingMessage("acme/shop", "an id", b"a run")


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class ScriptedRedis:
    """The part of a server that the queue driver uses; `waitaof` answers each WAITAOF, the last one repeated."""

    def __init__(self, *waitaof: bytes) -> None:
        self.waitaof = list(waitaof)
        self.stored = 0

    def answer(self, command: list[str]) -> bytes:
        match command:
            case ["CONFIG", "GET", name]:
                settings = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
                return b"*2\r\n" + bulk(name) + bulk(settings[name])
            case ["COMMAND", "INFO", _]:
                return b"*1\r\n*1\r\n" + bulk("waitaof")
            case ["SCRIPT", "LOAD", _]:
                return bulk("a" * 40)
            case ["EVALSHA", *_]:
                self.stored += 1
                return b":1\r\n"
            case ["WAITAOF", *_]:
                return self.waitaof.pop(0) if len(self.waitaof) > 1 else self.waitaof[0]
        return b"+OK\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def line() -> int:
            return int((await reader.readuntil(b"\r\n"))[1:])

        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                command = []
                for _ in range(await line()):
                    word = await reader.readexactly(await line() + 2)
                    command.append(word[:-2].decode())
                writer.write(self.answer([command[0].upper(), *command[1:]]))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def carrier_to(server: ScriptedRedis) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    driver = RedisStreamDriver(f"redis://127.0.0.1:{port}", max_stream_length=10)
    try:
        yield lambda: driver.deliver("acme/bot", [LETTER], token="t", timeout_s=5)
    finally:
        await driver.close()
        listening.close()


async def test_refusal_to_wait_for_the_disk_leaves_it_open_whether_it_was_stored() -> None:
    server = ScriptedRedis(SYNCED, REFUSED)
    async with carrier_to(server) as deliver:
        with pytest.raises(DriverFailed) as open_outcome:
            await deliver()
        assert server.stored == 1 and open_outcome.value.perhaps


async def test_server_that_refuses_to_wait_for_its_disk_is_given_nothing() -> None:
    server = ScriptedRedis(SYNCED, REFUSED)
    async with carrier_to(server) as deliver:
        with pytest.raises(DriverFailed):
            await deliver()
        with pytest.raises(DriverFailed) as refused:
            await deliver()
        assert server.stored == 1 and not refused.value.perhaps and "WAITAOF" in refused.value.cause
        server.waitaof = [SYNCED]
        await deliver()
        assert server.stored == 2
