"""Jobs through Spark Connect: on a server of the installed package, and the message when there is none."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from snavio.audit.index_file import IndexEntry, write_index
from snavio.audit.jobs import Job, SparkLocation, command
from snavio.errors import BadRequest, SnavioError, Unavailable
from snavio.launch.free_ports import free_ports
from snavio.signed.archive_manifest import EventRange
from spark import class_archive
from spark.session import SHORT
from tests.spark.test_transforms import contended
from tests.support.telemetry_rows import T0, write

PATIENCE_S = 240.0
TOKEN = "sesame"
pytestmark = pytest.mark.timeout(600)


def run(folder: Path, job: str, remote: str) -> dict[str, object]:
    """As `snavio spark run` starts it."""
    options = ["--index", str(folder / "index.jsonl"), "--out", str(folder / "out")]
    # Rows by the hundred: compiling the queries would take longer than running them.
    settings = tuple(f"{key}={value}" for key, value in class_archive.INTERPRETED.items())
    line, environment = command(
        job, options, SparkLocation(remote=remote, settings=settings), work=folder / "work"
    )
    return asyncio.run(Job(line, environment, log=folder / "job.log").run(lambda _: None))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    rows = contended(windows=5)
    path = write(rows, tmp_path / "events.parquet")
    start = int(T0.timestamp()) * 1_000_000_000
    entry = IndexEntry(path, EventRange("fast-0", 1, 1, len(rows)), start, start + 150_000_000_000)
    write_index([entry], tmp_path / "index.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    ("job", "remote", "error", "sentence"),
    [
        ("abuse", "sc://127.0.0.1:1", Unavailable, "Nobody answers at sc://127.0.0.1:1 (Connection refused)"),
        ("abuse", "http://somewhere", BadRequest, "--remote: http://somewhere is no address such as sc://"),
        ("watch", "sc://127.0.0.1:1", BadRequest, "watch cannot run through Spark Connect"),
    ],
)
def test_what_connect_cannot_do_is_told_in_one_sentence(
    archive: Path, job: str, remote: str, error: type[SnavioError], sentence: str
) -> None:
    with pytest.raises(error) as refusal:
        run(archive, job, remote)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    home, (port,) = Path(pyspark.__file__).parent, free_ports(1)
    class_archive.ensure()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": TOKEN,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"{SHORT} {class_archive.options()}",
        "spark.sql.shuffle.partitions": "1",
    }
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_LAUNCHER_OPTS"] = SHORT
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
            ],
            env={**environment, "PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (tmp_path / "server.log").read_text()[-2000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        yield f"sc://localhost:{port}/;token={TOKEN}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.skipif(importlib.util.find_spec("zstandard") is None, reason="Spark Connect needs zstandard")
def test_a_job_finds_the_same_through_connect(server: str, archive: Path) -> None:
    told = run(archive, "abuse", server)
    assert (told["step"], told["proposals"]) == ("done", 1)
    (found,) = (archive / "out" / "proposals.jsonl").read_text().splitlines()
    assert json.loads(found)["source"] == "acme/big"
