"""Signed webhooks of 1 KiB at one edge with its mesh on the same cores, fsync before 202; the load is a Go program."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.meters import record
from tests.support.edge import SECRET
from tests.support.edge_cli import EdgeRun, edge_run
from tests.support.pki import Authority

SECONDS = float(os.environ.get("SNAVIO_BENCH_SECONDS", "8"))
SOURCE = Path(__file__).parent / "webhook_load"
FILE = """
ingress { listen 127.0.0.1:PORT TLS }
pull_api { listen 127.0.0.1:PULL; auth token raw:worker }
queue_limits { max_depth 1000000000 }
observability { access_log off }
/s { auth hmac env:EDGE_SECRET
  pull { path /s } }
"""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs Go, for a load that costs little")
    program = tmp_path_factory.mktemp("load") / "webhook_load"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCE, check=True)
    return program


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ran(edge: EdgeRun, load: Path, *words: str) -> tuple[dict[str, float], float]:
    """The load's figures, and the edge's CPU microseconds for each request."""
    pid = (await asyncio.to_thread(edge.control.health))["pid"]
    before = cpu_s(pid)
    made = await asyncio.create_subprocess_exec(
        str(load), "-path", "/s", "-secret", SECRET.decode(), "-seconds", str(SECONDS), *words,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await made.communicate()
    found = json.loads(out)
    assert set(found["statuses"]) == {"202"}, found
    return found, (cpu_s(pid) - before) * 1e6 / found["statuses"]["202"]


async def test_webhooks_over_keep_alive_connections(tmp_path: Path, load: Path) -> None:
    async with edge_run(tmp_path, FILE.replace("TLS", ""), EDGE_SECRET=SECRET.decode()) as edge:
        url = f"http://127.0.0.1:{edge.port}"
        await ran(edge, load, "-url", url, "-connections", "8", "-seconds", "2")
        for connections in (64, 16, 1):
            found, cpu_us = await ran(edge, load, "-url", url, "-connections", str(connections))
            note = f"load {os.getloadavg()[0]:.1f}"
            name = f"webhooks, {connections} connections"
            record(name, values=[found["per_s"]], unit="1/s", target=">= 4000 at 64", note=note)
            record(f"{name}, p50", values=[found["p50_ms"]], unit="ms", target="<= 3 at 1", note=note)
            record(f"{name}, p99", values=[found["p99_ms"]], unit="ms", target="<= 30 at 16", note=note)
            record(f"{name}, gateway CPU each", values=[cpu_us], unit="µs", target="<= 200 at 64", note=note)


async def test_webhooks_over_a_new_tls_connection_each(tmp_path: Path, load: Path) -> None:
    server = Authority(tmp_path / "ca").mesh("gateway")
    tls = f"; tls {{ cert_file {server.certificate}; key_file {server.private_key} }}"
    async with edge_run(tmp_path, FILE.replace("TLS", tls), EDGE_SECRET=SECRET.decode()) as edge:
        url = f"https://127.0.0.1:{edge.port}"
        found, cpu_us = await ran(edge, load, "-url", url, "-connections", "16", "-fresh")
        note = f"{cpu_us:.0f} µs of the gateway's CPU each; load {os.getloadavg()[0]:.1f}"
        record(
            "webhooks, a TLS connection each", values=[found["per_s"]], unit="1/s", target=">= 300", note=note
        )
