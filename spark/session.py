"""One way to a Spark session: on this machine, on a cluster, or through Spark Connect.

Never listens on other interfaces than loopback, and never leaves the time zone or the arithmetic to the machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

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
}
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
# Start sooner, run slower: for jobs of seconds.
SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


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
        builder = SparkSession.builder.appName(name).remote(remote)
        for key, value in {"spark.sql.session.timeZone": "UTC", **(settings or {})}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    require_java()
    local = master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {**SETTINGS, **(LOCAL if local else {}), **(settings or {})}
    if short:
        chosen["spark.driver.extraJavaOptions"] = (
            f"{chosen.get('spark.driver.extraJavaOptions', '')} {SHORT}".strip()
        )
    # Memory is the JVM's, so it has to be said before there is one.
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
