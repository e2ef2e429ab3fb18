"""Every event of the telemetry contract is found in an archive by some test, with all its fields.

A test finds an event when one function names it (`schema.DELIVERED`) and puts a row of it through `fields`, which fails
when one is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from snavio.telemetry import schema

TESTS = Path(__file__).resolve().parents[1]


def finders(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Event and function, for every function of a module that finds one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(node))
        calls = {
            each.func.id for each in inside if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        }
        if "fields" not in calls:
            continue
        for each in inside:
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "schema":
                named = getattr(schema, each.attr, None)
                if isinstance(named, str) and named in schema.BY_NAME:
                    yield named, node.name


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Functions by the event that they find."""
    functions: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "from tests.support.archived import" in text:
            for event, function in finders(ast.parse(text)):
                functions.setdefault(event, []).append(f"{path.name}::{function}")
    return functions


@pytest.mark.parametrize("event", [event.name for event in schema.EVENTS])
def test_event_is_found_in_an_archive_with_all_its_fields(found: dict[str, list[str]], event: str) -> None:
    assert found.get(event)


def test_an_event_without_a_test_would_be_noticed() -> None:
    named = "def test():\n    found(schema.DELIVERED)\n"
    assert list(finders(ast.parse(named))) == []
    assert list(finders(ast.parse(named + "    fields(row)\n"))) == [(schema.DELIVERED, "test")]
