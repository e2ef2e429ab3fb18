"""Hookaidofiles for tests: the examples under tests/vectors, and short ways to compile a text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from snavio.edge.compiling import Compilation, compile_text
from snavio.edge.findings import FindingLog
from snavio.edge.parsing import parse
from snavio.edge.placeholders import Surroundings, TextTrust
from snavio.edge.plan import EdgePlan
from snavio.edge.starters import STARTERS
from snavio.edge.tree import DirectiveBlock

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "hookaidofiles"
EXAMPLES = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir())} | {
    f"starter-{name}": text.encode() for name, text in STARTERS.items()
}
ENVIRONMENT = {"HOST": "ci.example", "LIMIT": "25", "PASSWORD": "correct horse"}
PULL = "pull_api { auth token env:T }\n"


def compiled(
    text: str | bytes,
    *,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    trust: TextTrust = TextTrust.TRUSTED,
) -> Compilation:
    """The compilation of a text in surroundings that hold nothing else."""

    def read(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return (files or {})[path]

    data = text.encode() if isinstance(text, str) else text
    return compile_text(data, surroundings=Surroundings(environment or {}, read), trust=trust)


def plan_of(text: str, *, environment: Mapping[str, str] | None = None) -> EdgePlan:
    """The plan of a file without mistakes."""
    return compiled(text, environment=environment).usable()


def reasons(text: str, *, environment: Mapping[str, str] | None = None) -> list[str]:
    """The reasons of all mistakes."""
    return [each.reason for each in compiled(text, environment=environment).mistakes]


def tree_of(data: bytes) -> DirectiveBlock:
    """The tree of a file without mistakes of form."""
    findings = FindingLog()
    tree = parse(data, findings)
    assert tree is not None
    assert findings.mistakes == ()
    return tree
