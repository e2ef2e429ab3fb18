"""Clients of every language as processes that one run drives in the same way, and their builds.

Never builds twice in a run, and never takes a toolchain that is not there for a failure: that client is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import structlog

ROOT: Final = Path(__file__).resolve().parents[2]
GO: Final = ROOT / "clients" / "go"
TYPESCRIPT: Final = ROOT / "clients" / "ts"
LANGUAGES: Final = ("python", "go", "typescript")
TOOLS: Final = {"go": ("go",), "typescript": ("node", "npm")}
BUILD_S: Final = 240
ANSWER_S: Final = 90
MOST_LINE_BYTES: Final = 64 << 20


class RefusedByClient(Exception):
    """An error that a client answered with."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


def missing(language: str) -> list[str]:
    """Tools that the language's client needs and that this machine does not have."""
    return [tool for tool in TOOLS.get(language, ()) if shutil.which(tool) is None]


def run(*command: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run one step of a build; its own words say what went wrong."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


def build(language: str, folder: Path) -> list[str]:
    """Build a client; the command that starts it."""
    if language == "go":
        program = folder / "snavio-conformance"
        run("go", "build", "-o", str(program), "./cmd/snavio-conformance", folder=GO)
        return [str(program)]
    if language == "typescript":
        install_typescript()
        run("npm", "run", "--silent", "build", folder=TYPESCRIPT)
        return ["node", str(TYPESCRIPT / "dist" / "src" / "conformance.js")]
    return [sys.executable, "-m", "tests.conformance.python_agent"]


def install_typescript() -> None:
    """Install what the lock file names, unless that was done."""
    lock = TYPESCRIPT / "package-lock.json"
    installed = TYPESCRIPT / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", folder=TYPESCRIPT)


class ClientProcess:
    """One running client."""

    def __init__(self, language: str, process: asyncio.subprocess.Process) -> None:
        self.language = language
        self._process = process

    async def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to one request; RefusedByClient when it is an error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **request}).encode() + b"\n")
        async with asyncio.timeout(ANSWER_S):
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        assert line, f"the {self.language} client ended"
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise RefusedByClient(told["error"]["reason"], told["error"]["message"])
        return told

    def sleep(self) -> None:
        """Stop the process, as a machine does that is put to sleep."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def client_process(language: str, command: list[str]) -> AsyncIterator[ClientProcess]:
    """Start a client, and end it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=dict(os.environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MOST_LINE_BYTES,
    )
    try:
        yield ClientProcess(language, process)
    finally:
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            structlog.get_logger().warning("client did not end by itself", language=language)
            process.kill()
            await process.wait()
