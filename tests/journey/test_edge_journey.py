"""A team without an SDK: a file, GitHub's requests in, workers that fetch, a reload, a command, and why it saw 401."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from pathlib import Path

import orjson

from tests.support.edge import SECRET, github, signed
from tests.support.edge_cli import edge_run

FILE = """
ingress { listen 127.0.0.1:PORT }
pull_api { listen 127.0.0.1:PULL; auth token raw:worker }
queue_limits { max_depth 5 }
/webhooks/github {
  auth hmac { provider github; secret env:GITHUB_SECRET }
  pull { path /github }
}
/scripts { auth hmac env:GITHUB_SECRET
  pull { path /scripts } }
/small { pull { path /small } }
/fan { deliver "https://a.example/x" {}
  deliver "https://b.example/x" {} }
"""


async def test_from_a_file_to_a_worker_and_back(tmp_path: Path) -> None:
    async with edge_run(tmp_path, FILE, GITHUB_SECRET=SECRET.decode()) as edge:
        # Webhooks in.
        body = b'{"ref":"refs/heads/main"}'
        status, said = await edge.post("/webhooks/github", body, github(body, delivery="d-1"))
        assert (status, said["status"]) == (202, "queued")
        event = said["id"]
        status, said = await edge.post("/webhooks/github", body, github(body, delivery="d-1"))
        assert (status, said) == (202, {"status": "duplicate", "id": event})
        headers = signed(b"x", path="/scripts")
        assert (await edge.post("/scripts", b"x", headers))[0] == 202
        assert (await edge.post("/scripts", b"x", headers))[1]["code"] == "replayed"
        # Messages out.
        status, found = await edge.work("/github/dequeue", {"batch": 10, "max_wait": "5s"})
        assert status == 200, found
        (item,) = found["items"]
        assert base64.b64decode(item["payload_b64"]) == body if "payload_b64" in item else True
        status, _ = await edge.work("/github/ack", {"lease_id": item["lease_id"]})
        assert status == 204
        assert (await edge.work("/github/dequeue", {"batch": 1}, token="guess"))[0] == 401
        # The rules of the file are the topic's, as soon as the mailbox has heard of them.
        async with asyncio.timeout(60):
            while (answer := await edge.post("/small", b"x"))[0] == 202:
                pass
        assert (answer[0], answer[1]["code"]) == (503, "saturated")
        # What does not run yet is said, and nothing of it is lost.
        assert (await edge.post("/fan"))[0] == 202
        assert "`deliver` does not run yet" in edge.log
        code, listed = await edge.cli("ls", "--json")
        assert code == 0, listed
        ready = {
            each["target"]: each["ready"] for each in orjson.loads(listed)["routes"] if each["path"] == "/fan"
        }
        assert ready == {"https://a.example/x": 1, "https://b.example/x": 1}
        # Why 401.
        await edge.post("/webhooks/github", body, github(body, delivery="d-2", key=b"wrong"))
        code, shown = await edge.cli("recent", "--refused", "--json")
        newest = orjson.loads(shown)["requests"][0]
        assert (newest["status"], newest["reason"]) == (401, "signature-mismatch")
        code, shown = await edge.cli("explain", newest["request_id"])
        assert code == 0 and "signature-mismatch" in shown and SECRET.decode() not in shown
        code, shown = await edge.cli("try", "/webhooks/github", "-d", "{}", "--json")
        assert code == 1 and orjson.loads(shown)["reason"] == "signature-missing"
        # A reload on the signal of the pid file; a target that vanishes leaves its topic behind.
        config = tmp_path / "Hookaidofile"
        config.write_text(config.read_text().replace('deliver "https://b.example/x" {}', ""))
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(edge.control.health))["config"]["generation"] < 2:
                await asyncio.sleep(0.1)
        code, shown = await edge.cli("orphans", "--json")
        (orphan,) = orjson.loads(shown)["orphans"]
        assert (code, orphan["ready"]) == (0, 1)
        code, shown = await edge.cli("orphans", orphan["topic"], "--cancel", "--json")
        assert orjson.loads(shown)["canceled"] == 1
        edge.process.send_signal(signal.SIGTERM)
        assert await edge.process.wait() == 0
    assert not (tmp_path / "pid").exists()
