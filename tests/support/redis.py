"""A real redis-server of the test's own, on a free port, that can be stopped, killed and started again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from snavio.launch.free_ports import free_ports

START_SECONDS = 10.0


class RedisServer:
    """One server with its folder; `fsync` is its `appendfsync`, or None to keep nothing on disk."""

    def __init__(self, folder: Path, *, fsync: str | None = "always", extra: tuple[str, ...] = ()) -> None:
        found = shutil.which("redis-server")
        if found is None:
            raise RuntimeError("redis-server is missing: run `make test`, which installs it.")
        self._program = found
        self._folder = folder
        self._fsync = fsync
        self._extra = extra
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        durable = ["--appendonly", "yes", "--appendfsync", self._fsync] if self._fsync else []
        self._process = subprocess.Popen(
            [
                *(self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                *("--dir", str(self._folder), "--loglevel", "warning", *durable, *self._extra),
                # A process title is written over the environment, and with it the mark by which it is ended.
                *("--set-proc-title", "no"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_SECONDS), self.client() as client:
            while True:
                try:
                    await client.ping()
                    return
                except Exception:
                    await asyncio.sleep(0.02)

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stops answering, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def lose_everything(self) -> None:
        """Comes back empty, as after the loss of its disk."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        await self.start()

    def client(self) -> Redis:
        return Redis(host="127.0.0.1", port=self.port, socket_timeout=5, socket_connect_timeout=5)


@asynccontextmanager
async def redis_server(
    folder: Path, *, fsync: str | None = "always", extra: tuple[str, ...] = ()
) -> AsyncIterator[RedisServer]:
    """A running server; killed at the end."""
    server = RedisServer(folder, fsync=fsync, extra=extra)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
