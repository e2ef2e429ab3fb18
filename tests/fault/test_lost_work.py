"""A service whose background work cannot go on ends with an exit code for it, and never runs on without that work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from snavio.clock import SystemClock
from snavio.host.background import Background, host
from snavio.host.introspection import Introspection
from snavio.host.process import LOST_WORK
from tests.support.pki import Authority
from tests.support.servers import calling, serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", ["exits", "hangs", "task"])
def test_a_process_that_lost_its_background_work_ends_with_a_code(fault: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.lost_work", fault],
        cwd=ROOT,
        input="now\n",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout == "ready fast 1\n"
    assert ended.returncode == LOST_WORK, ended.stderr
    assert "work cannot go on" in ended.stderr


async def test_health_says_not_serving_from_the_loss_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = Background()
    host(own)
    introspection = Introspection("shield", clock=SystemClock())
    own.failed("chore", RuntimeError("a bug"))
    assert introspection.reading().counters['background_faults_total{work="chore"}'] == 1
    async with serving(authority) as served, calling(served, authority.mesh("fast")) as channel:

        async def status() -> int:
            answer = await channel.call(
                "/grpc.health.v1.Health/Check",
                health_pb2.HealthCheckRequest(),
                health_pb2.HealthCheckResponse,
                timeout_s=10,
            )
            return int(answer.status)

        assert await status() == health_pb2.HealthCheckResponse.SERVING
        own.lost("chore", RuntimeError("a bug"))
        assert await status() == health_pb2.HealthCheckResponse.NOT_SERVING
        served.server.set_serving(True)
        assert await status() == health_pb2.HealthCheckResponse.NOT_SERVING
