"""Tracebacks of the SDK and of the command line show places, never values."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.cli.app import app
from tests.support.terminal import environment

ROOT = Path(__file__).resolve().parents[2]
SECRET = "c2VjcmV0LW9mLWJpbGxpbmc"

FAILING = f"""
import asyncio, logging, os, sys
import structlog

def use(private_key: bytes) -> None:
    capability = "snvcap1." + private_key.decode()
    raise RuntimeError("the seal is broken")

def failure() -> BaseException:
    try:
        use("".join(reversed({SECRET[::-1]!r})).encode())
    except RuntimeError as error:
        return error

async def task_failure():
    from snavio.tasks import ended

    async def fail():
        use("".join(reversed({SECRET[::-1]!r})).encode())

    task = asyncio.create_task(fail())
    await asyncio.wait({{task}})
    await ended(task)

def background_failure():
    from snavio.host.background import Background

    Background().failed("renewal", failure())

def cli_failure():
    from snavio.cli.exits import report
    from snavio.cli.output import quiet_logs

    quiet_logs()
    structlog.get_logger().error("work failed", exc_info=failure())
    report(failure(), as_json=False)
"""


@pytest.mark.parametrize(
    "call",
    ["asyncio.run(task_failure())", "background_failure()", "cli_failure()"],
    ids=["task", "work", "cli"],
)
def test_no_traceback_shows_locals(call: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{FAILING}\n{call}\n")
    ran = subprocess.run(
        [sys.executable, str(program)],
        env=environment(SNAVIO_DEBUG="1", FORCE_COLOR=""),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = ran.stdout + ran.stderr
    assert "the seal is broken" in said
    assert "in use" in said
    assert SECRET not in said
    assert "snvcap1." + SECRET[:4] not in said


def test_the_library_gives_the_log_no_exceptions_to_render() -> None:
    """A user's structlog may print the locals of an exception; the mesh's own log writes plain text anyway."""
    found = []
    for path in sorted((ROOT / "snavio").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                named = any(word.arg == "exc_info" for word in node.keywords)
                logged = isinstance(node.func, ast.Attribute) and node.func.attr == "exception" and node.args
                if named or logged:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_typer_renders_no_locals() -> None:
    assert app.pretty_exceptions_show_locals is False
