"""The archive of Spark's classes: used when it is there, and harmless when it is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import class_archive


def test_a_short_session_maps_the_archive(spark: SparkSession) -> None:
    assert class_archive.place().exists()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    runtime = gateway.jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert f"-XX:SharedArchiveFile={class_archive.place()}" in list(runtime.getInputArguments())


def test_without_an_archive_nothing_is_said_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.options() == ""


def test_a_damaged_archive_is_passed_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    class_archive.place().parent.mkdir(parents=True)
    class_archive.place().write_bytes(b"no archive at all" * 1000)
    options = class_archive.options().split()
    assert options
    started = subprocess.run(
        ["java", *options, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode == 0
    assert not [line for line in (started.stdout + started.stderr).splitlines() if "warning" in line.lower()]


def test_a_place_with_a_space_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    class_archive.place().parent.mkdir(parents=True)
    class_archive.place().write_bytes(b"")
    assert class_archive.options() == ""


def test_an_archive_that_cannot_be_made_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert class_archive.ensure() is False
