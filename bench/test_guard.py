"""CPU of authorising a unary call at its headers, by turns with a server that authorises after the body."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.guard_server import METHOD
from bench.targets import Targets
from snavio.rpc.channel import MeshChannel
from tests.support.pki import Authority

PAIRS = int(os.environ.get("PAIRS", "20"))
CALLS = 2000
AT_ONCE = 16
REQUEST = b"x" * 300
# `SNAVIO_GUARD_BASE=<tree of another commit>` measures that commit's server in place of the one after the body.
BASE = os.environ.get("SNAVIO_GUARD_BASE")


@contextmanager
def server(folder: Path, mode: str, tree: str | None = None) -> Iterator[tuple[int, str]]:
    """A server's process and address."""
    here = Path(__file__)
    command = [sys.executable, str(here.parent / "guard_server.py"), str(folder), mode]
    environment = {**os.environ, "PYTHONPATH": tree or str(here.parents[1])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.pid, f"127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def cpu_ns(pid: int) -> int:
    """CPU time of a process's threads so far; finer than the ticks of `stat`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


async def calls(channel: MeshChannel) -> None:
    async def some() -> None:
        for _ in range(CALLS // AT_ONCE):
            assert await channel.call_raw(METHOD, REQUEST, timeout_s=60) == REQUEST

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def test_guarding_at_the_headers_costs_at_most_five_percent(
    benchmark: Any, runner: asyncio.Runner, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = authority.service("acme", "billing")
    folder = authority.mesh("shield").certificate.parent
    spent: dict[str, list[float]] = {"headers": [], "body": []}
    with ExitStack() as stack:
        processes = {"headers": stack.enter_context(server(folder, "headers"))}
        processes["body"] = stack.enter_context(
            server(folder, "headers", BASE) if BASE else server(folder, "body")
        )

        async def connected(address: str) -> MeshChannel:
            channel = MeshChannel(address, files=files, service="shield")
            await calls(channel)
            return channel

        channels = {name: runner.run(connected(address)) for name, (_, address) in processes.items()}

        def pair() -> None:
            for name in ("headers", "body") if len(spent["body"]) % 2 else ("body", "headers"):
                before = cpu_ns(processes[name][0])
                runner.run(calls(channels[name]))
                spent[name].append((cpu_ns(processes[name][0]) - before) / CALLS / 1000)

        benchmark.pedantic(pair, rounds=PAIRS)
        for channel in channels.values():
            runner.run(channel.close())
    ratios = [new / old for new, old in zip(spent["headers"], spent["body"], strict=True)]
    print(
        {name: round(statistics.median(values), 1) for name, values in spent.items()},
        statistics.median(ratios),
    )
    targets = Targets()
    targets.at_most(
        "guard at the headers, CPU of a unary call", ratios, ceiling=1.05, unit="x", by=statistics.median
    )
    targets.require()
