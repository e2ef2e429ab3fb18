"""A killed service is away until its imports are done: modules that it does not need at once are not imported."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.config import SERVICES
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
        *("grpc_reflection.v1alpha", "stamina", "tenacity"),  # when somebody asks, or a connection breaks
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
