"""A test that never ends and starts what tests start; `tests/fault/test_killed_test_run.py` kills the run around it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from snavio.launch.free_ports import free_ports
from tests.support.killable import killable
from tests.support.moto import moto_server
from tests.support.redis import redis_server

DETACHED = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


def spark_master(folder: Path) -> None:
    """As `tests/spark/test_cluster.py` starts it: a shell that becomes a JVM, in a session of its own."""
    home, (port, page) = Path(pyspark.__file__).parent, free_ports(2)
    with (folder / "master.log").open("wb") as log:
        subprocess.Popen(
            [
                *(str(home / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"),
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)),
            ],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


async def test_that_is_killed(tmp_path: Path) -> None:
    spark_master(tmp_path)
    # A child whose own child outlives it, in a session of its own.
    subprocess.Popen([sys.executable, "-c", DETACHED], start_new_session=True)
    async with (
        redis_server(tmp_path / "redis", fsync=None),
        moto_server(),
        killable(tmp_path / "mailbox") as office,
    ):
        await office.start()
        Path(os.environ["LEFT_BEHIND_READY"]).write_text(str(os.getpid()))
        await asyncio.sleep(600)
