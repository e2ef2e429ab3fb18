"""The messages of `make` to a newcomer without the tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(
    folder: Path, *, tools: tuple[str, ...], python: str = "python3"
) -> subprocess.CompletedProcess[str]:
    """`make install` where only `tools` can be found, into a venv that does not exist yet."""
    found = folder / "bin"
    found.mkdir()
    for tool in tools:
        (found / tool).symlink_to(str(shutil.which(tool)))
    return subprocess.run(
        [str(shutil.which("make")), "install", f"VENV={folder / '.venv'}", f"PYTHON={python}"],
        cwd=ROOT,
        env={"PATH": str(found)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_missing_rust_toolchain_is_one_sentence(tmp_path: Path) -> None:
    ran = make(tmp_path, tools=("bash", "find", "grep", "sed"))
    assert ran.returncode != 0
    assert "Snavio needs a Rust toolchain" in ran.stdout
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    if shutil.which("cargo") is None:
        pytest.fail("the tests need cargo, as the build does")
    ran = make(tmp_path, tools=("bash", "find", "grep", "sed", "cargo"), python=str(old))
    assert ran.returncode != 0
    assert "Snavio needs Python 3.11 or newer" in ran.stdout
    assert not (tmp_path / ".venv").exists()
