"""The built wheel in an environment of its own, with its plain dependencies and nothing else.

Never compiles in that environment, and asks the package index only for wheels that no earlier run has kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(sys.prefix) / "plain-wheels"
"""Wheels of the dependencies, beside the environment that runs the tests."""
BUILD_S = 600.0
INDEX_S = 180.0
PIP_S = 120.0


def run(*words: str | Path, within_s: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """One program of the tree to its end."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree; the release build of the extension is used as it is when it is fresh."""
    maturin = Path(sys.executable).with_name("maturin")
    built = run(maturin, "build", "--release", "--offline", "--out", folder, within_s=BUILD_S)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("snavio-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """An environment with `wheel` and what it needs; its Python."""
    # Without pip of its own: ours installs into it, which saves most of the time that an environment takes.
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    kept = _pip(python, "install", "--no-index", "--find-links", KEPT, wheel)
    if kept.returncode != 0:
        _download(wheel)
        kept = _pip(python, "install", "--no-index", "--find-links", KEPT, wheel)
    assert kept.returncode == 0, kept.stderr
    return python


def _pip(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "--python", python)
    # No compiler and no cargo: a plain install must not need one.
    options = ("--quiet", "--no-compile", "--only-binary", ":all:")
    return run(*pip, *words, *options, within_s=PIP_S, PATH=str(python.parent))


def _download(wheel: Path) -> None:
    words = ("download", "--quiet", "--only-binary", ":all:", "--dest", KEPT, "--retries", "2", wheel)
    try:
        downloaded = run(
            sys.executable,
            "-m",
            "pip",
            *words,
            within_s=INDEX_S,
            PIP_CONSTRAINT=str(ROOT / "constraints.txt"),
        )
        why = (downloaded.stderr.strip().splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        why = f"no answer within {INDEX_S:.0f} s"
    else:
        if downloaded.returncode == 0:
            # An older Snavio of an earlier run would satisfy nobody, and ours is installed by its path.
            for own in KEPT.glob("snavio-*.whl"):
                own.unlink()
            return
    pytest.fail(
        f"The dependencies of a plain install could not be fetched from the package index: {why}", False
    )
