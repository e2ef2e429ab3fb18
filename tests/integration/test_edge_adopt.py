"""An edge on a machine that knew nothing of the mesh: adopted by an invitation, run under its tenant's identity."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import orjson

from snavio.launch.free_ports import free_ports
from tests.support.terminal import configured, running, snavio

FILE = """
ingress {{ listen 127.0.0.1:{port} }}
pull_api {{ listen 127.0.0.1:{pull}; auth token raw:worker }}
/open {{ pull {{ path /open }} }}
/c {{ command nobodys-target notify-user {{ source hooks }} }}
"""


def test_an_adopted_edge_joins_the_mesh_of_its_invitation_and_stores_there(tmp_path: Path) -> None:
    operator, here = tmp_path / "operator", tmp_path / "edge"
    for folder in (operator, here):
        folder.mkdir()
    configured(operator)
    home = {"HOME": str(here), "SNAVIO_CONFIG_DIR": str(here / "config")}
    port, pull = free_ports(2)
    (here / "Hookaidofile").write_text(FILE.format(port=port, pull=pull))
    with running(operator) as up:
        up.drain()
        invited = snavio(
            "tenant",
            "invite",
            "acme",
            "--principal",
            "edge",
            "--contact",
            "a@b.example",
            "--json",
            folder=operator,
        )
        assert invited.returncode == 0, invited.stderr
        invitation = orjson.loads(invited.stdout.splitlines()[0])["invitation"]
        adopted = snavio("edge", "adopt", "-", "--json", folder=here, given=invitation.encode(), **home)
        assert adopted.returncode == 0, (adopted.stdout, adopted.stderr)
        said = orjson.loads(adopted.stdout.splitlines()[0])
        assert said["services"] == ["acme/edge", "acme/hooks"]
        assert [each["answer"] for each in said["commands"]] == ["route-missing"]
        edge = subprocess.Popen(
            [sys.executable, "-m", "snavio.cli", "edge", "run", "--pid-file", "pid"],
            cwd=here, env={**os.environ, **home}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert edge.stdout is not None
            lines: list[str] = []
            while not (lines and lines[-1].startswith("ready edge ")):
                lines.append(edge.stdout.readline())
                assert lines[-1], (lines, edge.stderr.read() if edge.stderr else "")
            assert lines[0].startswith("edge of acme joins the mesh of the context ")
            assert [each.split()[0] for each in lines[1:-1]][:1] == ["ingress"]
            limit = time.monotonic() + 60
            while True:
                asked = urllib.request.Request(f"http://127.0.0.1:{port}/open", data=b"x", method="POST")
                try:
                    with urllib.request.urlopen(asked, timeout=30) as answer:
                        assert answer.status == 202
                        break
                except urllib.error.HTTPError as error:
                    # The mailbox has not heard of a new capability's root yet.
                    assert error.code == 503 and time.monotonic() < limit
            listed = snavio("edge", "ls", "--json", folder=here, given=b"", **home)
            assert listed.returncode == 0, listed.stderr
            ready = {
                each["path"]: each["ready"] for each in orjson.loads(listed.stdout.splitlines()[0])["routes"]
            }
            assert ready["/open"] == 1
            assert int((here / "pid").read_text()) == edge.pid
            edge.send_signal(signal.SIGHUP)
            edge.send_signal(signal.SIGTERM)
            assert edge.wait(60) == 0
            assert not (here / "pid").exists()
        finally:
            edge.kill()
            edge.wait()
