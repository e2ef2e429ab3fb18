"""Throughput of the Go client: commands a second over one connection, in batches of 1000."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.targets import Targets
from tests.conformance.clients import build, client_process, missing
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

REPEATS = 6
COMMANDS = 200_000
BATCH = 1000
LANES = 12
"""Batches on their way at a time, on the one stream; Shield takes 16."""
PAYLOAD = b"x" * 210


def test_the_go_client_sends_by_a_stream(
    benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh, tmp_path: Path
) -> None:
    if absent := missing("go"):
        pytest.skip(f"needs {' and '.join(absent)}")
    context = client_process("go", build("go", tmp_path))
    client = runner.run(context.__aenter__())
    runner.run(
        client.ask(
            "open",
            shield=mesh.addresses["shield"],
            signer=mesh.addresses["signer"],
            mailbox=mesh.addresses["mailbox"],
            folder=str(mesh.certificates(SOURCE.replace("/", "-"))),
        )
    )
    rates: list[float] = []

    def repeat() -> None:
        told = runner.run(
            client.ask(
                "bench",
                target=TARGET,
                name=NAME,
                payload=PAYLOAD.hex(),
                count=COMMANDS,
                batch=BATCH,
                lanes=LANES,
            )
        )
        assert told["delivered"] == COMMANDS
        rates.append(COMMANDS / told["seconds"])

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    runner.run(context.__aexit__(None, None, None))
    targets = Targets()
    targets.at_least(
        "Go client, one stream, batches of 1000: rate", rates[1:], floor=100_000, unit="commands/s"
    )
    targets.require()
