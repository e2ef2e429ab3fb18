"""`snavio edge run` as a process of its own, with the mesh that it starts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from snavio.launch.edge_control import EdgeControl
from snavio.launch.free_ports import free_ports
from snavio.launch.processes import free_addresses

READY_S = 120.0


@dataclass
class EdgeRun:
    """A running edge. `port` is that of ingress, `pull` that of the Pull API."""

    process: asyncio.subprocess.Process
    folder: Path
    port: int
    pull: int
    session: aiohttp.ClientSession

    @property
    def control(self) -> EdgeControl:
        return EdgeControl(self.folder / "db" / "edge")

    @property
    def log(self) -> str:
        return (self.folder / "err.txt").read_text()

    async def post(
        self, path: str, body: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        async with self.session.post(
            f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers
        ) as answer:
            return answer.status, orjson.loads(await answer.read())

    async def work(self, path: str, document: dict[str, Any], token: str = "worker") -> tuple[int, Any]:
        """One call of the Pull API."""
        url, headers = f"http://127.0.0.1:{self.pull}{path}", {"Authorization": f"Bearer {token}"}
        async with self.session.post(url, data=orjson.dumps(document), headers=headers) as answer:
            data = await answer.read()
            return answer.status, orjson.loads(data) if data else None

    async def cli(self, *words: str) -> tuple[int, str]:
        """A command of `snavio edge` on this edge."""
        asked = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "snavio.cli", "edge", *words, "--db", str(self.folder / "db"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asked.communicate()
        return asked.returncode or 0, out.decode()


def child_pid(launcher: int, module: str) -> int:
    """The process of a module that a launcher has started; 0 while there is none."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == launcher and module.encode() in words:
            return int(entry.name)
    return 0


@asynccontextmanager
async def edge_run(folder: Path, text: str, **environment: str) -> AsyncIterator[EdgeRun]:
    """Run a file whose `PORT` and `PULL` are free ports."""
    ports = free_ports(2)
    # Two meshes that begin at once would both find the usual ports free, and one of them would be too late.
    addresses = free_addresses("enrolment")
    own = {"SNAVIO_SIGNER__ENROL_LISTEN": addresses.pop("enrolment")}
    own |= {f"SNAVIO_MESH__{name.upper()}": address for name, address in addresses.items()}
    config = folder / "Hookaidofile"
    config.write_text(text.replace("PORT", str(ports[0])).replace("PULL", str(ports[1])))
    with (folder / "err.txt").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "snavio.cli", "edge", "run", "--config", str(config), "--db", str(folder / "db"),
            "--pid-file", str(folder / "pid"),
            stdout=asyncio.subprocess.PIPE, stderr=errors, env={**os.environ, **own, **environment},
        )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = (await process.stdout.readline()).decode()
        assert re.search(r"edge ready", line), (line, (folder / "err.txt").read_text()[-3000:])
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield EdgeRun(process, folder, ports[0], ports[1], session)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(60):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
