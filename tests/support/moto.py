"""moto's server as a process of its own, in place of AWS."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aioboto3

from snavio.launch.free_ports import free_ports

REGION = "eu-central-1"
START_SECONDS = 30.0
# moto asks for no particular credentials; boto asks for some.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
}


@contextmanager
def credentials() -> Iterator[None]:
    """Credentials in the environment, where boto looks for them."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class MotoServer:
    """One server on a free port."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_SECONDS):
            while True:
                # Another's listener on this port must not pass for ours.
                assert self._process.poll() is None, f"moto's server ended with {self._process.returncode}"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return

    async def reset(self) -> None:
        """Forgets everything, and starts if it was killed."""
        if self._process is None:
            await self.start()
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /moto-api/reset HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(reader.read(), START_SECONDS)
        writer.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @asynccontextmanager
    async def client(self, service: str) -> AsyncIterator[Any]:
        async with aioboto3.Session(region_name=REGION).client(service, endpoint_url=self.url) as client:
            yield client


@contextmanager
def moto_process() -> Iterator[MotoServer]:
    """A server for a whole module: `reset` it before each test. Not started before the first."""
    server = MotoServer()
    with credentials():
        try:
            yield server
        finally:
            server.kill()


@asynccontextmanager
async def moto_server() -> AsyncIterator[MotoServer]:
    """A running server; killed at the end. Its start takes seconds: share it within a module."""
    server = MotoServer()
    with credentials():
        await server.start()
        try:
            yield server
        finally:
            server.kill()
