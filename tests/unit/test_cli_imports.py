"""Import budget of the command line: the modules that `snavio --help` and `snavio version` may load.

By name, not by time: a slow machine changes a time, only a change of ours changes the list.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# A module here is a tenth of a second, or the first step to one.
HEAVY = {
    *("grpc", "google", "pydantic", "pydantic_settings", "cryptography", "structlog", "opentelemetry"),
    *("rich", "orjson", "uvloop", "pyarrow", "duckdb", "apsw", "markdown_it", "pygments"),
}
OURS = {
    *(
        "snavio",
        "snavio.cli",
        "snavio.errors",
        "snavio.cli.app",
        "snavio.cli.commands",
        "snavio.cli.exits",
        "snavio.extras",
    ),
    *("snavio.extras", "snavio.cli.group", "snavio.cli.help", "snavio.cli.option_groups"),
}
VERSION = {
    "snavio.native",
    "snavio._native",
    "snavio.cli.serve",
    "snavio.cli.options",
    "snavio.cli.output",
    "snavio.cli.render",
}
SCRIPT = """
import sys
sys.argv = ["snavio", *{words!r}]
from snavio.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stderr.write("\\n".join(sys.modules))
"""


def loaded(*words: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(words=list(words))], capture_output=True, check=True, text=True
    )
    assert ran.stdout
    return set(ran.stderr.split())


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (("--help",), OURS),
        (("version",), OURS | VERSION),
        (("--version",), OURS | VERSION),
        (
            ("send", "--help"),
            OURS | {f"snavio.cli.{name}" for name in ("send", "installation", "options", "output", "render")},
        ),
    ],
    ids=("--help", "version", "--version", "send --help"),
)
def test_what_is_asked_for_most_often_loads_only_what_it_needs(
    words: tuple[str, ...], ours: set[str]
) -> None:
    found = loaded(*words)
    assert {module for module in found if module.split(".")[0] == "snavio"} <= ours
    assert not {module.split(".")[0] for module in found} & HEAVY
