"""A mailbox in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from snavio.clock import SystemClock
from tests.support.mailbox import MailboxFixture

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0


class Killable(MailboxFixture):
    """A mailbox in a process of its own."""

    process: asyncio.subprocess.Process | None = None
    mailbox_lines: str = ""
    """For the `[mailbox]` section of its configuration."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Additional environment of its process."""

    async def start(self) -> None:
        if self.signer is None:
            await self.start_signer()
        config = self.folder / "snavio.toml"
        config.write_text(
            f'[mesh]\nstate_dir = "{self.folder}"\nmailbox = "127.0.0.1:0"\nsigner = "{self.mesh.signer}"\n'
            f"[mailbox]\n{self.mailbox_lines}"
        )
        with (self.folder / "mailbox.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "services.mailbox", "--config", str(config)),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment, "SNAVIO_FOLLOW_PARENT": str(os.getpid())},
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            ready = await self.process.stdout.readline()
        assert ready.startswith(b"ready mailbox "), (self.folder / "mailbox.log").read_text()
        self.address = f"127.0.0.1:{ready.split()[2].decode()}"

    async def end(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            async with asyncio.timeout(SECONDS):
                await self.process.wait()
            self.process = None
        await self.hang_up()


@asynccontextmanager
async def killable(folder: Path, *, mailbox_lines: str = "") -> AsyncIterator[Killable]:
    """Not started yet; killed at the end."""
    office = Killable(folder, clock=SystemClock())
    office.mailbox_lines = mailbox_lines
    try:
        yield office
    finally:
        await office.end(signal.SIGKILL)
        if office.signer is not None:
            await office.signer.drain(0)
