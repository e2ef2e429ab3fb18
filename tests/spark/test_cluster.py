"""The jobs on a standalone cluster: a master and two workers of the installed package, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from snavio.audit.index_file import IndexEntry, write_index
from snavio.audit.jobs import Job, SparkLocation, command
from snavio.launch.free_ports import free_ports
from snavio.signed.archive_manifest import EventRange
from spark import class_archive
from spark.session import SHORT
from tests.spark.test_transforms import contended
from tests.support.telemetry_rows import T0, write

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 240.0


def quick() -> str:
    """Faster settings for six JVMs and a few hundred rows."""
    class_archive.ensure()
    return f"{SHORT} {class_archive.options()}"


def workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as told:
            return sum(worker["state"] == "ALIVE" for worker in json.load(told)["workers"])
    except OSError:
        return 0


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    home = Path(pyspark.__file__).parent
    port, page = free_ports(2)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick(),
        "SPARK_LAUNCHER_OPTS": SHORT,
    }
    address = f"spark://127.0.0.1:{port}"
    lines = [
        [
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)),
        ]
    ]
    lines += [
        [
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "768m"),
            *("--work-dir", str(tmp_path / f"worker-{number}"), address),
        ]
        for number in range(2)
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, line in enumerate(lines):
            with (tmp_path / f"daemon-{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [str(home / "bin" / "spark-class"), *line],
                        env=environment,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        end = time.monotonic() + PATIENCE_S
        while workers(page) < 2:
            assert time.monotonic() < end, (tmp_path / "daemon-0.log").read_text()[-2000:]
            time.sleep(0.2)
        yield address
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def test_a_job_runs_by_spark_submit_on_a_master_with_two_workers(master: str, tmp_path: Path) -> None:
    rows = contended(windows=5)
    path = write(rows, tmp_path / "events.parquet")
    start = int(T0.timestamp()) * 1_000_000_000
    stretch = EventRange("fast-0", 1, 1, len(rows))
    write_index([IndexEntry(path, stretch, start, start + 150_000_000_000)], tmp_path / "index.jsonl")
    place = SparkLocation(
        master,
        driver_memory="768m",
        settings=(
            "spark.executor.memory=512m",
            "spark.executor.cores=1",
            "spark.cores.max=2",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            f"spark.driver.extraJavaOptions={quick()}",
            f"spark.executor.extraJavaOptions={quick()}",
            *(f"{key}={value}" for key, value in class_archive.INTERPRETED.items()),
            "spark.sql.shuffle.partitions=2",
        ),
    )
    line, environment = command(
        "abuse",
        ["--index", str(tmp_path / "index.jsonl"), "--out", str(tmp_path / "out")],
        place,
        work=tmp_path / "work",
    )
    assert Path(line[0]).name == "spark-submit"
    assert "--py-files" in line
    told = asyncio.run(Job(line, environment, log=tmp_path / "job.log").run(lambda _: None))
    assert (told["step"], told["proposals"]) == ("done", 1)
    (found,) = (tmp_path / "out" / "proposals.jsonl").read_text().splitlines()
    assert json.loads(found)["source"] == "acme/big"
    # Both workers were given an executor of this run.
    assert [len(list((tmp_path / f"worker-{number}").glob("app-*"))) for number in range(2)] == [1, 1]
