"""The words of the code and of the documentation: plain docstrings, one meaning per name, and a short glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("snavio", "services", "spark", "tools", "bench", "tests")
GENERATED = ROOT / "snavio" / "v1"
# Build output, and files that other programs write.
NOT_OURS = {"target", "__pycache__", "corpus"}
# A relative clause in place of a noun: the reader has to guess the thing, or the component that acts.
CLAUSES = re.compile(r"(?:What|Who|Whether|How|Whoever|Whatever|Whom|Whose)\b")
# The requirement itself is said, or a page of docs/ is linked: a numbered text is not in the repository.
NUMBERED = re.compile(r"\bdoc(?:ument)?s?\b[\s#/*|>]+(?:nos?\.?\s*)?0\d\d\b", re.IGNORECASE)
ITEM = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)
MOST_WORDS = 40

TWICE: dict[str, str] = {}
"""Class names that are defined twice, each with its reason."""


def modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py*")):
            if path.suffix in {".py", ".pyi"} and not path.is_relative_to(GENERATED):
                yield path


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those under an attribute or a constant included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value.strip()


def texts() -> Iterator[Path]:
    """Every text of ours that people read: code, protos, Rust, pages and settings."""
    for folder in (*PACKAGES, "native", "proto", "docs", "deploy"):
        for suffix in ("py", "pyi", "rs", "proto", "md", "toml", "lua"):
            for path in sorted((ROOT / folder).rglob(f"*.{suffix}")):
                if not NOT_OURS & set(path.relative_to(ROOT).parts):
                    yield path
    yield from sorted(ROOT.glob("*.md"))
    yield ROOT / "Makefile"
    yield ROOT / "pyproject.toml"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_docstring_begins_with_a_clause_in_place_of_a_noun(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in modules(package)
        for line, text in docstrings(parsed(path))
        if CLAUSES.match(text)
    ]
    assert found == []


def test_a_class_name_has_one_meaning() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in modules("snavio", "services", "spark"):
        for node in ast.walk(parsed(path)) if path.suffix == ".py" else ():
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in TWICE} == {}
    # An exception that is not needed any more would excuse the next mistake.
    assert {name: len(twice.get(name, ())) for name in TWICE} == dict.fromkeys(TWICE, 2)


def test_no_text_refers_to_a_numbered_document() -> None:
    found = []
    for path in texts():
        text = path.read_text("utf-8")
        found += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, each.start()) + 1}: {each[0]!r}"
            for each in NUMBERED.finditer(text)
        ]
    assert found == []


def test_the_glossary_is_short_and_gives_each_word_one_meaning() -> None:
    words = [each["word"] for each in ITEM.finditer((ROOT / "docs" / "glossary.md").read_text("utf-8"))]
    assert 0 < len(words) <= MOST_WORDS
    assert words == sorted(words, key=str.lower)
    assert len({word.lower() for word in words}) == len(words)


def test_every_word_of_the_glossary_is_used() -> None:
    page = ROOT / "docs" / "glossary.md"
    used = "\n".join(
        path.read_text("utf-8") for path in texts() if path != page and path.name != "test_words.py"
    )
    unused = [
        each["word"]
        for each in ITEM.finditer(page.read_text("utf-8"))
        if not re.search(rf"\b{re.escape(each['word'])}s?\b", used, re.IGNORECASE)
    ]
    assert unused == []


def test_the_glossary_says_in_every_row_what_a_word_means() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(ITEM.findall(page))


@pytest.mark.parametrize(
    "text",
    ["Document 00" + "1", "documents 00" + "1 and 00" + "2", "doc 00" + "2", "see document\n# 00" + "1"],
)
def test_a_numbered_document_is_found_however_it_is_written(text: str) -> None:
    assert NUMBERED.search(text)


def test_docstrings_of_attributes_and_functions_are_found() -> None:
    tree = ast.parse('"""M."""\nX = 1\n"""What it is."""\n\n\ndef f():\n    """Whose."""\n')
    assert [text for _, text in docstrings(tree) if CLAUSES.match(text)] == ["What it is.", "Whose."]
