"""A killed service is away until its imports are done: modules that it does not need at once are not imported."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.config import SERVICES
from snavio.host.process import start_failure
from snavio.imports import lean_imports

ROOT = Path(__file__).resolve().parents[2]
LATER = frozenset(
    {
        *("rich", "pygments", "attr", "typer", "click"),  # a terminal's
        *(
            "redis",
            "boto3",
            "aioboto3",
            "botocore",
            "pyarrow",
            "duckdb",
            "numpy",
            "pandas",
        ),  # of some adapters
        "grpc_reflection.v1alpha",  # when somebody asks
        *("opentelemetry.sdk", "opentelemetry.exporter"),  # when there is somewhere to export to
        *("snavio.adapters", "snavio.sdk", "snavio.cli", "snavio.launch"),
    }
)


@pytest.mark.parametrize("service", SERVICES)
def test_service_starts_without_what_it_may_never_need(service: str) -> None:
    script = f"import sys, services.{service}.__main__; sys.stdout.write(' '.join(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert LATER.isdisjoint(told.stdout.split())


def test_lean_imports_leave_no_trace() -> None:
    with pytest.raises(ZeroDivisionError), lean_imports():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.unfreeze()
    import rich  # it was out of the way only meanwhile

    assert rich.__name__ == "rich"


@pytest.mark.parametrize("words", [["mailbox"], ["signer"], ["signer", "init"]], ids=" ".join)
def test_state_folder_that_is_a_file_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.touch()
    told = subprocess.run(
        [sys.executable, "-m", f"services.{words[0]}", *words[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SNAVIO_MESH__STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == 2
    lines = [line for line in told.stderr.splitlines() if not line.startswith("{")]
    assert lines == [f"{' '.join(words)}: {state}/{words[0]} cannot be used: Not a directory."]


def test_failed_start_is_a_sentence_for_a_mistake_and_nothing_for_a_fault() -> None:
    missing = ModuleNotFoundError("No module named 'redis'", name="redis")
    assert start_failure(missing) == 'redis is not installed here: pip install "snavio[redis]" brings it.'
    assert (
        start_failure(PermissionError(13, "Permission denied", "/x"))
        == "/x cannot be used: Permission denied."
    )
    assert start_failure(OSError("broken")) is None
    assert start_failure(ZeroDivisionError()) is None
