"""`pip install snavio`, without compiler and without extras: its SDK sends and receives against a running mesh."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.mesh import NAME, TARGET, TOPIC, demo_mesh
from tests.support.plain_install import build_wheel, install
from tests.support.reaper import MARK

COMMANDS = 20
PROGRAM = """
import asyncio, importlib.metadata, json, sys
from pathlib import Path
import snavio
from snavio.sdk import Consumer, Producer

async def main(asked):
    async with Producer(
        shield=asked["shield"], signer=asked["signer"], certificates=Path(asked["producer"])
    ) as producer:
        outcomes = [await producer.send(asked["target"], asked["name"], text.encode()) for text in asked["texts"]]
    got = []
    async with Consumer(
        mailbox=asked["mailbox"], topic=asked["topic"], certificates=Path(asked["consumer"])
    ) as consumer:
        async for command in consumer:
            got.append(command.payload.decode())
            await command.ack(durable=True)
            if len(got) == len(asked["texts"]):
                break
    print(json.dumps({
        "file": snavio.__file__,
        "installed": sorted(each.name for each in importlib.metadata.distributions()),
        "outcomes": [outcome.reason for outcome in outcomes],
        "delivered": all(outcome.delivered for outcome in outcomes),
        "got": got,
    }))

asyncio.run(asyncio.wait_for(main(json.loads(sys.argv[1])), 120))
"""


def in_environment(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One program of the environment: isolated from this tree, from the user's packages and from every compiler."""
    return subprocess.run(
        words,
        cwd=folder,
        env={"PATH": str(python.parent), "HOME": str(folder), MARK: os.environ[MARK]},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


async def test_plain_wheel_in_an_empty_environment_sends_and_receives(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    begun = time.monotonic()
    wheel = await asyncio.to_thread(build_wheel, tmp_path / "dist")
    built = time.monotonic()
    python = await asyncio.to_thread(install, wheel, tmp_path / "environment")
    installed = time.monotonic()
    texts = [f"command {number}" for number in range(COMMANDS)]
    async with demo_mesh(tmp_path / "mesh") as mesh:
        asked = {
            **{service: mesh.addresses[service] for service in ("shield", "signer", "mailbox")},
            "producer": str(mesh.certificates("acme-billing")),
            "consumer": str(mesh.certificates("acme-bot")),
            "target": TARGET,
            "name": NAME,
            "topic": TOPIC,
            "texts": texts,
        }
        words = (str(python), "-I", "-c", PROGRAM, json.dumps(asked))
        run = await asyncio.to_thread(in_environment, python, tmp_path, *words)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert Path(told["file"]).is_relative_to(python.parents[1])
    assert not {"pyarrow", "apsw", "typer", "rich", "pydantic", "orjson", "uvloop"} & set(told["installed"])
    assert told["delivered"], told["outcomes"]
    assert sorted(told["got"]) == sorted(texts)
    for arguments in (["up"], ["version"], ["send", TARGET, NAME]):
        refused = in_environment(python, tmp_path, str(python.with_name("snavio")), *arguments)
        assert refused.returncode == 2
        assert 'pip install "snavio[mesh]"' in refused.stderr
        assert refused.stderr.count("\n") == 1
    figure(
        f"wheel built in {built - begun:.1f} s, installed in {installed - built:.1f} s, "
        f"used in {time.monotonic() - installed:.1f} s",
    )
