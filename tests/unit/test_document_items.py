"""Every item of the mailbox's requirements has a test named after it: `pytest -k I_13` shows those of I-13."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# G-5's fan-out over svc-mod is left out of this system; its test is about the latencies that it asks for.
ITEMS = tuple(
    re.findall(
        r"\S+",
        """
        I-1 I-2 I-3 I-4 I-5 I-6 I-7 I-8 I-9 I-10 I-11 I-12 I-13 I-14 I-15 I-16 I-17
        P-1 P-2 P-3 P-4 P-5 P-6 P-7 P-8 P-9
        C-1 C-2 C-3 C-4 C-5 C-6 C-7 C-8 C-9 C-10 C-11 C-12
        G-1 G-2 G-3 G-4 G-5 G-6 G-7 G-8 G-9 G-10
        """,
    )
)


@pytest.fixture(scope="module")
def named() -> dict[str, list[str]]:
    """Names of tests by item."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for item in re.findall(
                    r"(?<![A-Za-z0-9])([IPCG]_[0-9]+)(?![0-9])", node.name.replace("test_", " ")
                ):
                    found.setdefault(item.replace("_", "-"), []).append(node.name)
    return found


@pytest.mark.parametrize("item", ITEMS)
def test_item_of_the_document_has_a_test(named: dict[str, list[str]], item: str) -> None:
    assert named.get(item)


def test_names_claim_no_item_that_there_is_not(named: dict[str, list[str]]) -> None:
    assert set(named) == set(ITEMS)
