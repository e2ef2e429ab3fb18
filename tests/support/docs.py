"""The Python blocks of our documents, so that tests can run what people copy."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = tuple(
    path
    for path in (ROOT / "README.md", ROOT / "docs" / "sdk.md", ROOT / "docs" / "mailbox.md")
    if path.exists()
)

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """One block. `title` is what follows `# example:` in its first line; empty without."""

    document: str
    line: int
    source: str

    @property
    def runnable(self) -> bool:
        return self.source.startswith("# runnable\n")

    @property
    def title(self) -> str:
        first = self.source.partition("\n")[0]
        return first.removeprefix("# example:").strip() if first.startswith("# example:") else ""

    def compiled(self) -> CodeType:
        # Top-level awaits are allowed, as in `python -m asyncio`.
        name = f"{self.document}:{self.line}"
        code: CodeType = compile(
            self.source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        return code

    def names(self) -> dict[str, Any]:
        """Run it; everything that it defines."""
        namespace: dict[str, Any] = {"__name__": "example"}
        exec(self.compiled(), namespace)
        return namespace


def examples() -> list[Example]:
    """Every Python block of every document."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Example(str(document.relative_to(ROOT)), line, match.group(1)))
    return found


def example(title: str) -> Example:
    """The one block that begins with `# example: <title>`."""
    (found,) = [candidate for candidate in examples() if candidate.title == title]
    return found
