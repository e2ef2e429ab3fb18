"""One way to a Spark session: on this machine, on a cluster, or through Spark Connect.

Never listens on other interfaces than loopback, and never leaves the time zone or the arithmetic to the machine.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from spark import class_archive, early_imports

# Of every session. ANSI: a division by zero is an error, not a quiet null.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Sets of names are small here: a table of them is quicker than sorting everything from the 129th key on.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "20000",
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # Three equal tasks on two cores take as long as four.
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": "8",
    # A file or two for a task: the table in which a task counts stays small, and a small table is quick.
    "spark.sql.files.maxPartitionBytes": "32m",
}
# Nobody waits for an answer between two pauses of a batch; what counts is the whole.
LONG: Final = "-XX:+UseParallelGC"
# Start sooner, run slower: for jobs of seconds.
SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


CONNECT_PORT: Final = 15002
CONNECT_SECONDS: Final = 5.0


class ConnectAway(Exception):
    """Spark Connect cannot be reached, or not from here."""


class JavaMissing(Exception):
    """There is nothing to run Spark on."""


def require_java() -> None:
    """JavaMissing, with what to install, unless there is a Java."""
    home = os.environ.get("JAVA_HOME", "")
    if shutil.which("java") is None and shutil.which(os.path.join(home, "bin", "java")) is None:  # noqa: PTH118
        raise JavaMissing(
            "Spark needs Java 17: install it (for example `apt-get install openjdk-17-jre-headless`), "
            "or set JAVA_HOME."
        )


def require_connect(remote: str) -> None:
    """ConnectAway unless a server listens: Spark's own client would try for minutes and say nothing."""
    try:
        found = urlsplit(remote)
        host, port = found.hostname, found.port or CONNECT_PORT
    except ValueError:
        host = None
    if host is None or found.scheme != "sc":
        raise ValueError(f"--remote: {remote.partition(';')[0]} is no address such as sc://localhost:15002.")
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectAway(
            f"Nobody answers at sc://{host}:{port} ({error.strerror or error}): start a Spark Connect server, "
            "or leave out --remote."
        ) from None


def session(
    name: str,
    *,
    master: str = "local[*]",
    remote: str = "",
    driver_memory: str = "2g",
    short: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for one job. `remote` is a Spark Connect address and takes the place of `master`."""
    if remote:
        require_connect(remote)
        ours = {key: value for key, value in SETTINGS.items() if key.startswith("spark.sql.")}
        try:
            builder = SparkSession.builder.appName(name).remote(remote)
            for key, value in {**ours, **(settings or {})}.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()
        except ImportError as missing:
            raise ConnectAway(
                f"Spark Connect needs a package that is not here: {missing}. "
                "Install Snavio with `pip install 'snavio[spark]'`."
            ) from None
    require_java()
    local = master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Of the small JVM that only puts the command line of the real one together.
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT)
    chosen = {**SETTINGS, **(LOCAL if local else {}), **(settings or {})}
    if local:
        given = chosen.get("spark.driver.extraJavaOptions", "")
        fitting = (SHORT, class_archive.options()) if short else (LONG,)
        chosen["spark.driver.extraJavaOptions"] = " ".join(filter(None, (given, *fitting)))
    # Memory is the JVM's, so it has to be said before there is one.
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with early_imports.meanwhile():
        made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
