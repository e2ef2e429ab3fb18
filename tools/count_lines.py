"""Counts the source lines of commits: `tools/count_lines.py d893c51 HEAD` prints one figure for each.

Lines of code of `snavio/` and `services/` as the formatter leaves them, without docstrings (those of attributes too),
comments, blank lines and generated code. Never counts the working tree: a figure names the commit that it is of.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("snavio", "services")
GENERATED: Final = "snavio/v1/"
NO_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


def lines_of(source: str) -> int:
    """Lines with code on them."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held.difference(*_docstrings(ast.parse(source))))


def lines_at(commit: str) -> int:
    """Lines of all modules at a commit."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, *PACKAGES],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return sum(
            lines_of(text.read().decode("utf-8"))
            for member in files
            if member.name.endswith(".py") and not member.name.startswith(GENERATED)
            if (text := files.extractfile(member)) is not None
        )


def _docstrings(tree: ast.Module) -> Iterator[range]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def main(commits: list[str]) -> int:
    """One line per commit, each with its change against the one before."""
    before: int | None = None
    for commit in commits or ["HEAD"]:
        count = lines_at(commit)
        change = "" if before is None else f"  {count - before:+,}"
        sys.stdout.write(f"{commit:12} {count:>8,}{change}\n")
        before = count
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
