"""Spark's classes, laid out once for the JVM to map instead of load: a session then starts in half the time.

Never needed: without the archive, or with one that does not fit this JVM, Spark starts as it always did. It is a cache
of this machine, some 150 MB, and belongs to one Java and one pyspark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

MAKE_SECONDS: Final = 180
MOST_KEPT: Final = 3
# Of what `make` runs: an archive of less is made anew.
LESSON: Final = 2
INTERPRETED: Final[Mapping[str, str]] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For rows by the dozen: compiling the queries would take longer than running them."""
# An archive of another build is passed over; nobody has to read about it at every start.
_QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def place() -> Path:
    """Where the archive of this Java and this pyspark is kept."""
    java = _java()
    age = java.stat().st_mtime_ns if java.exists() else 0
    seen = f"{java}|{age}|{pyspark.__file__}|{pyspark.__version__}|{LESSON}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "snavio" / f"spark-{hashlib.sha256(seen.encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """JVM options that use the archive; none when there is none."""
    found = place()
    # Java splits its options at spaces.
    return f"-XX:SharedArchiveFile={found} {_QUIET}" if found.exists() and " " not in str(found) else ""


def ensure() -> bool:
    """Make the archive unless it is there; False when that did not work, which costs time and nothing else."""
    found = place()
    if found.exists():
        return True
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found.parent.mkdir(parents=True, exist_ok=True)
        fresh = found.with_name(f".{found.name}.{os.getpid()}")
        subprocess.run(
            [sys.executable, "-m", "spark.class_archive", str(fresh)],
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            timeout=MAKE_SECONDS,
            check=True,
        )
        # Whole or not at all: two who make it at once both have a good one.
        fresh.replace(found)
        _prune(found.parent)
        return True
    return False


def make(path: Path) -> None:
    """Run what jobs run, in small, and have the JVM keep the classes that took."""
    from spark.session import session

    made = session(
        "class archive",
        master="local[2]",
        driver_memory="1g",
        short=True,
        settings={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={path}"},
    )
    scratch = path.with_suffix(".rows")
    try:
        _run(made, scratch)
        # Who has rows by the dozen has no query compiled: that is a way of its own, with classes of its own.
        for key, value in INTERPRETED.items():
            made.conf.set(key, value)
        _run(made, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    gateway = made.sparkContext._gateway
    assert gateway is not None
    # The JVM writes at its own exit; it hangs up on the call that asks for it.
    with contextlib.suppress(Exception):
        gateway.jvm.System.exit(0)
    gateway.proc.wait(MAKE_SECONDS)


def _run(made: SparkSession, scratch: Path) -> None:
    rows = made.range(1000).withColumn("key", F.col("id") % 7)
    rows.write.mode("overwrite").option("compression", "zstd").parquet(str(scratch))
    counted = made.read.parquet(str(scratch)).groupBy("key").agg(F.sum("id").alias("all")).localCheckpoint()
    share = F.try_divide("all", F.sum("all").over(Window.partitionBy(F.col("key") % 2)))
    counted.select("key", share.alias("share"), F.to_json(F.struct("key"))).orderBy("key").collect()
    # Words of SQL have a parser of their own, with hundreds of classes.
    made.createDataFrame([(1, "a")], "key long, name string").selectExpr("sum(key)", "max(name)").collect()


def _prune(folder: Path) -> None:
    """Those of other environments, but for a few: each is large, and environments come and go."""
    by_age = sorted(folder.glob("spark-*.jsa"), key=lambda kept: kept.stat().st_mtime, reverse=True)
    for old in by_age[MOST_KEPT:]:
        old.unlink(missing_ok=True)


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return Path(found or "java").resolve()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
