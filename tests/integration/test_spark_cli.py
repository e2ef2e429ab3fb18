"""`snavio spark` without a JVM: the process it starts, its output, and its mistakes in one sentence each."""

from __future__ import annotations

import asyncio
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snavio.audit.index_file import moment
from snavio.audit.jobs import Job, SparkLocation, command
from snavio.cli.app import app
from snavio.cli.spark_views import View
from snavio.cli.times import Period
from snavio.errors import BadRequest, SnavioError, Unavailable


def run(*arguments: str) -> SnavioError:
    with pytest.raises(SnavioError) as failed:
        CliRunner().invoke(app, ["spark", *arguments], catch_exceptions=False)
    return failed.value


def test_without_a_mesh_it_says_how_to_start_one(tmp_path: Path) -> None:
    error = run("report", "--state-dir", str(tmp_path))
    assert (error.reason, "start one with `snavio up`" in str(error)) == ("no-mesh", True)


def test_a_job_that_there_is_not_is_suggested() -> None:
    ran = CliRunner().invoke(app, ["spark", "reprot"])
    assert (ran.exit_code, "Did you mean 'report'?" in ran.output) == (2, True)


def test_times_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "certs" / "operator-admin").mkdir(parents=True)
    for given, words in (
        (("--since", "yesterday"), "--since: must be `now`, how long ago"),
        (
            ("--since", "2026-11-16T10:00:00Z", "--until", "2026-11-16T09:00:00Z"),
            "--until 2026-11-16T09:00:00Z is not after --since",
        ),
    ):
        assert words in str(run("report", *given, "--state-dir", str(tmp_path)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--dir", "{state}/no-such"), "no-such is not an archive"),
        (("--dir", "{state}"), "is not an archive: that is a folder with a folder `telemetry` in it"),
        (("--conf", "foo"), "--conf: 'foo' is no KEY=VALUE"),
        (("--conf", "=foo"), "--conf: '=foo' is no KEY=VALUE"),
    ],
)
def test_what_was_mistyped_is_named_before_anything_is_asked(
    tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    """An audit of a folder that is no archive would find nothing, and withdraw every ban."""
    (tmp_path / "certs" / "operator-admin").mkdir(parents=True)
    asked = [one.format(state=tmp_path) for one in given]
    error = run("audit", *asked, "--state-dir", str(tmp_path))
    assert isinstance(error, BadRequest)
    assert words in str(error)


def test_times_at_the_ends_of_the_calendar_are_the_first_and_the_last() -> None:
    first, last = Period("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-10:00").read(now_unix_ns=0)
    assert (first, moment(last or 0)[:4]) == (1, "9999")
    assert Period("2026-11-16T10:00:00.000001Z").read(now_unix_ns=0) == (1_794_823_200_000_001_000, None)


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="Spark needs Java 17: install it"):
        command("slo", [], SparkLocation(), work=tmp_path)
    command("slo", [], SparkLocation(remote="sc://127.0.0.1:15002"), work=tmp_path)  # Java is elsewhere


def test_a_cluster_gets_the_package_by_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snavio.audit.jobs._java", lambda: True)
    line, environment = command(
        "abuse", ["--index", "x"], SparkLocation("spark://127.0.0.1:7077", settings=("a.b=c",)), work=tmp_path
    )
    assert Path(line[0]).name == "spark-submit"
    assert line[line.index("--py-files") + 1] == str(tmp_path / "spark.zip")
    assert environment["PYSPARK_PYTHON"] == sys.executable
    with zipfile.ZipFile(tmp_path / "spark.zip") as packed:
        names = set(packed.namelist())
    assert {"spark/schema.json", "spark/jobs/detect_abuse.py", "spark/transforms/base.py"} <= names
    local, _ = command("abuse", [], SparkLocation(), work=tmp_path)
    assert local[:3] == [sys.executable, "-m", "spark.jobs.detect_abuse"]


def job(tmp_path: Path, script: str) -> Job:
    return Job([sys.executable, "-c", script], {}, log=tmp_path / "spark.log")


async def test_progress_is_heard_and_noise_is_not(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    last = await job(
        tmp_path,
        """
import sys
print("Using Spark's default log4j profile")
print('{"step": "reading", "files": 3}')
print("26/11/16 06:00:00 WARN Utils: something", file=sys.stderr)
print('{"step": "done", "proposals": 1}')
""",
    ).run(told.append)
    assert [one["step"] for one in told] == ["reading", "done"]
    assert last["proposals"] == 1
    assert "WARN" in (tmp_path / "spark.log").read_text()


@pytest.mark.parametrize(
    ("code", "kind"), [(2, BadRequest), (3, Unavailable), (1, SnavioError), (-9, SnavioError)]
)
async def test_a_job_that_fails_says_its_sentence(tmp_path: Path, code: int, kind: type[SnavioError]) -> None:
    script = f"""
import os, signal, sys
print("26/11/16 06:00:00 WARN Utils: before", file=sys.stderr)
print("That is what is wrong.", file=sys.stderr)
print("26/11/16 06:00:00 ERROR Utils: after", file=sys.stderr)
sys.stderr.flush()
os.kill(os.getpid(), signal.SIGKILL) if {code} < 0 else sys.exit({code})
"""
    with pytest.raises(kind, match=r"^That is what is wrong\.$"):
        await job(tmp_path, script).run(lambda _: None)


async def test_a_job_ends_with_whoever_started_it(tmp_path: Path) -> None:
    started = asyncio.Event()
    script = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"step": "watching", "child": %d}' % child.pid, flush=True)
time.sleep(600)
"""
    children: list[int] = []

    def told(facts: dict[str, int]) -> None:
        children.append(facts["child"])
        started.set()

    running = asyncio.create_task(job(tmp_path, script).run(told))
    async with asyncio.timeout(60):
        await started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while Path(f"/proc/{children[0]}/cmdline").exists() and (
            Path(f"/proc/{children[0]}/cmdline").read_bytes()
        ):
            await asyncio.sleep(0.05)


def test_progress_in_plain_lines_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with View("backfill", json=False) as view:
        view.told({"step": "starting", "files": 3, "events": 40})
        view.told({"step": "hour", "hour": "2026-11-16T10:00:00", "done": 1, "of": 2})
    assert capsys.readouterr().out.splitlines() == [
        "starting Spark: 3 files, 40 events",
        "hours: 2026-11-16T10:00:00 hour",
    ]
    with View("slo", json=True) as view:
        view.told({"step": "starting"})
    assert capsys.readouterr().out == ""
