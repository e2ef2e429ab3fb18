"""One Spark session for all tests: its start takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import class_archive
from spark.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    # Made once per machine; every JVM that the tests start afterwards has it.
    class_archive.ensure()
    made = session(
        "tests",
        master="local[2]",
        driver_memory="1g",
        short=True,
        settings={
            "spark.sql.shuffle.partitions": "1",
            **class_archive.INTERPRETED,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield made
    made.stop()
