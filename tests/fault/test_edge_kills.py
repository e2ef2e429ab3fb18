"""Kills of the edge and of the mailbox under load: nothing that was answered 202 is lost, and no replay is let in."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from snavio.admin.queue import QueueClient
from snavio.edge.topics import route_topic
from snavio.launch.installation import find
from snavio.v1.edge_pb2 import HttpEnvelope
from tests.support.edge import SECRET, signed
from tests.support.edge_cli import EdgeRun, child_pid, edge_run

KILLS = 50 if os.environ.get("SNAVIO_FULL") else 5
FILE = """
ingress { listen 127.0.0.1:PORT }
pull_api { listen 127.0.0.1:PULL; auth token raw:worker }
queue_limits { max_depth 1000000 }
/s { auth hmac env:EDGE_SECRET
  pull { path /s } }
"""


class Load:
    """Sends signed requests, keeps those that were acknowledged."""

    def __init__(self, edge: EdgeRun) -> None:
        self._edge = edge
        self.acknowledged: dict[bytes, dict[str, str]] = {}
        self.refused: list[tuple[int, str]] = []
        self._done = asyncio.Event()

    async def worker(self, name: int) -> None:
        number = 0
        while not self._done.is_set():
            number += 1
            body = b"%d-%d" % (name, number)
            headers = signed(body, path="/s", nonce=body.decode())
            # As a sender does it: the same request again until there is an answer that says something.
            while not self._done.is_set():
                try:
                    status, said = await self._edge.post("/s", body, headers)
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)
                    continue
                if status == 202:
                    self.acknowledged[body] = headers
                elif status == 503:
                    await asyncio.sleep(0.02)
                    continue
                elif said["code"] != "replayed":
                    self.refused.append((status, said["code"]))
                # `replayed` without a 202 before: the edge that took it was killed before it could say so.
                break

    async def more(self, number: int) -> None:
        """Wait for so many further acknowledgements."""
        goal = len(self.acknowledged) + number
        async with asyncio.timeout(120):
            while len(self.acknowledged) < goal:
                await asyncio.sleep(0.01)

    def end(self) -> None:
        self._done.set()


async def stored(folder: Path) -> list[bytes]:
    """The bodies in the topic, as an operator sees them."""
    installation = find(state_dir=folder / "db", config=None)
    run = installation.state.running()
    assert run is not None
    mesh = run.reaches(installation.mesh)
    async with QueueClient(
        mesh.mailbox,
        certificates=installation.operator_certificates,
        signer=mesh.signer,
        trust_domain=mesh.trust_domain,
    ) as queue:
        topic = route_topic("edge", "/s").topic
        return [
            HttpEnvelope.FromString(each.payload).body async for each in queue.messages(topic, payload=True)
        ]


# Whoever restarts what crashes pauses for up to 15 s when it crashes again and again.
@pytest.mark.timeout(300 + 40 * KILLS)
@pytest.mark.parametrize("victim", ["edge", "mailbox"])
async def test_a_kill_under_load_loses_nothing_that_was_acknowledged_and_lets_no_replay_in(
    tmp_path: Path, victim: str
) -> None:
    async with edge_run(tmp_path, FILE, EDGE_SECRET=SECRET.decode()) as edge:
        load = Load(edge)
        workers = [asyncio.create_task(load.worker(name)) for name in range(8)]
        await load.more(20)
        for _ in range(KILLS):
            if victim == "edge":
                pid = (await asyncio.to_thread(edge.control.health))["pid"]
            else:
                async with asyncio.timeout(60):
                    while not (pid := child_pid(edge.process.pid, "services.mailbox")):
                        await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            await load.more(20)
        load.end()
        await asyncio.gather(*workers)
        assert load.refused == []
        found = await stored(tmp_path)
        assert len(found) == len(set(found)), "a request was stored twice"
        assert set(load.acknowledged) <= set(found), "an acknowledged request is gone"
        for body, headers in list(load.acknowledged.items())[:: max(1, len(load.acknowledged) // 50)]:
            status, said = await edge.post("/s", body, headers)
            assert (status, said["code"]) == (401, "replayed")
