"""Starts a Spark job as a process, hears its progress, and ends it with us.

Never imports Spark or the jobs: they run on their own, here or on a cluster. Never shows a JVM's log for a mistake: a
job says in one sentence what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.errors import BadRequest, SnavioError, Unavailable

MODULES: Final = {
    "abuse": "detect_abuse",
    "watch": "watch_abuse",
    "slo": "slo_report",
    "shadow": "shadow",
    "backfill": "backfill",
}
JAVA: Final = (
    "Spark needs Java 17: install it (for example `apt-get install openjdk-17-jre-headless`), "
    "or set JAVA_HOME."
)
STOP_SECONDS: Final = 15.0
MAX_LINE_BYTES: Final = 1 << 20
NOISE: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d |WARNING|WARN|INFO|Using |Setting default|To adjust|SLF4J|log4j|Picked up"
    r"|::|\s|Traceback|\[\d|at |Caused by|JVM stacktrace|Exception in thread|ERROR "
    r"|[IWEF]\d{4} \d\d:"  # gRPC's own
)

Told = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class SparkLocation:
    """Where a job runs."""

    master: str = "local[*]"
    remote: str = ""
    driver_memory: str = "2g"
    short: bool = False
    settings: tuple[str, ...] = ()
    """`key=value` of Spark."""

    def __post_init__(self) -> None:
        for setting in self.settings:
            if not setting.partition("=")[0] or "=" not in setting:
                raise BadRequest(
                    f"--conf: {setting!r} is no KEY=VALUE such as spark.executor.memory=4g.",
                    reason="bad-setting",
                )

    @property
    def submitted(self) -> bool:
        """True when spark-submit takes it to a cluster."""
        return not self.remote and not self.master.startswith("local")


def command(
    job: str, options: Sequence[str], place: SparkLocation, *, work: Path
) -> tuple[list[str], Mapping[str, str]]:
    """The command line and environment of a job. BadRequest, Unavailable when it could not start."""
    if job not in MODULES:
        raise BadRequest(f"There is no job {job}; there are {', '.join(MODULES)}.", reason="unknown-job")
    package, pyspark = _found("spark"), _found("pyspark")
    if not place.remote and not _java():
        raise Unavailable(JAVA, reason="java-missing")
    shared = [*options, "--driver-memory", place.driver_memory]
    shared += [part for setting in place.settings for part in ("--conf", setting)]
    shared += ["--remote", place.remote] if place.remote else ["--master", place.master]
    shared += ["--short"] if place.short else []
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
    roots = [str(package.parent), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, roots))
    if not place.submitted:
        return [sys.executable, "-m", f"spark.jobs.{MODULES[job]}", *shared], environment
    archive = packed(package, work / "spark.zip")
    environment["SPARK_HOME"] = str(pyspark)
    submit = [str(pyspark / "bin" / "spark-submit"), "--master", place.master, "--py-files", str(archive)]
    submit += ["--driver-memory", place.driver_memory]
    # The scheme of Spark's own log goes to stderr; the job's lines are all that is on stdout.
    submit += [part for setting in place.settings for part in ("--conf", setting)]
    return [*submit, str(package / "jobs" / f"{MODULES[job]}.py"), *shared], environment


def packed(package: Path, archive: Path) -> Path:
    """The package as `--py-files` takes it."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*")):
            if path.suffix in (".py", ".json"):
                out.write(path, path.relative_to(package.parent).as_posix())
    return archive


class Job:
    """A job's process."""

    def __init__(self, line: Sequence[str], environment: Mapping[str, str], *, log: Path) -> None:
        self._line = line
        self._environment = environment
        self._log = log
        self._last: deque[str] = deque(maxlen=200)

    async def run(self, told: Told) -> dict[str, Any]:
        """Run it to its end; the last thing that it told. A SnavioError with its sentence when it fails."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *self._line,
            env=dict(self._environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
        last: dict[str, Any] = {}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hear(process.stderr))
                heard = group.create_task(self._listen(process.stdout, told))
            last = heard.result()
            code = await process.wait()
        finally:
            await _end(process)
        if code != 0:
            raise _failure(code, self._sentence())
        return last

    async def _listen(self, out: asyncio.StreamReader | None, told: Told) -> dict[str, Any]:
        assert out is not None
        last: dict[str, Any] = {}
        async for line in out:
            try:
                found = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # Spark's own words
            if isinstance(found, dict) and "step" in found:
                last = found
                told(found)
        return last

    async def _hear(self, err: asyncio.StreamReader | None) -> None:
        assert err is not None
        with self._log.open("ab") as log:
            async for line in err:
                log.write(line)
                self._last.append(line.decode(errors="replace").rstrip())

    def _sentence(self) -> str:
        words = [line for line in self._last if line.strip() and NOISE.match(line) is None]
        return words[-1] if words else f"The job failed; {self._log} says why."


def _failure(code: int, sentence: str) -> SnavioError:
    match code:
        case 2:
            return BadRequest(sentence.partition("error: ")[2] or sentence, reason="bad-job")
        case 3:
            return Unavailable(sentence, reason="java-missing")
        case 4:
            return Unavailable(sentence, reason="spark-away")
        case _:
            return SnavioError(sentence, reason="job-failed")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of it stays, the JVM included."""
    for sign, wait_s in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        if process.returncode is not None and sign is signal.SIGTERM:
            # The leader is gone; the other processes of its group are ended with it.
            sign = signal.SIGKILL  # noqa: PLW2901
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        if process.returncode is not None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), wait_s)


def _found(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise BadRequest(
            f"There is no package {name} here: install Snavio with `pip install 'snavio[spark]'`.",
            reason="spark-missing",
        )
    return Path(next(iter(found.submodule_search_locations)))


def _java() -> bool:
    home = os.environ.get("JAVA_HOME", "")
    return shutil.which("java") is not None or bool(home and shutil.which(str(Path(home) / "bin" / "java")))
