"""The table of directives, and what derives from it: every row can be written, and the page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.edge.kinds import KINDS
from snavio.edge.language import FILE, LANGUAGE, Directive, ReloadClass
from snavio.edge.reading import default_of, named_defaults
from snavio.edge.starters import STARTERS
from snavio.edge.tree import DirectiveBlock
from tests.support.hookaidofiles import EXAMPLES, compiled, tree_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = [row for block in LANGUAGE.values() for row in block.rows]


def name_of(row: Directive) -> str:
    return f"{row.block}/{row.key}"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_row_is_whole(row: Directive) -> None:
    assert row.sentence.endswith(".")
    assert not row.opens or row.opens in LANGUAGE
    for one in row.arguments:
        assert one.kind in {*KINDS, "count", "choice"}
        assert (one.kind == "count") == bool(one.bounds)
    if row.means:
        outer = LANGUAGE[row.block].named(row.means[0])
        assert LANGUAGE[outer.opens].named(row.means[1]).arguments
    if row.default and row.arguments[0].many:
        assert row.key == "method"  # Its default follows from all matchers of a route together.
    elif row.default and not row.keywords:
        assert default_of(row.block, row.key) is not None or row.default == "off"
    elif row.default:
        assert set(named_defaults(row.block, row.key)) == set(row.keywords)


def test_every_block_can_be_reached() -> None:
    assert {row.opens for row in ROWS if row.opens} | {FILE} == set(LANGUAGE)


def keys(block: DirectiveBlock) -> set[str]:
    found = set()
    for each in block.statements:
        found.add(name_of(each.row))
        found |= keys(each.block) if each.block else set()
    return found


def test_the_examples_use_every_directive() -> None:
    used = set().union(*(keys(tree_of(data)) for data in EXAMPLES.values()))
    unused = {name_of(row) for row in ROWS if not row.refused} - used
    # Thresholds and exporter options, whose rows differ in nothing but the name.
    families = ("trend_signals/", "adaptive_backpressure/", "runtime_log/", "metrics/", "tracing")
    assert sorted(each for each in unused if not each.startswith(families)) == []


def test_what_needs_a_restart_is_addresses_certificates_queues_and_logs() -> None:
    waiting = {name_of(row) for row in ROWS if row.reload is ReloadClass.RESTART}
    blocks = {each.partition("/")[0] for each in waiting}
    assert blocks == {
        *("file", "ingress", "pull_api", "admin_api", "tls", "observability", "access_log", "runtime_log"),
        *("metrics", "tracing", "tracing_tls", "tracing_retry", "route", "queue"),
    }
    assert {each for each in waiting if each.startswith(("file/", "route/"))} == {
        *("file/tenant", "file/pull_api", "file/admin_api", "route/queue"),
    }


def test_the_page_in_the_repository_is_what_would_be_generated() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_hookaidofile.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_page_names_every_directive() -> None:
    page = (ROOT / "docs" / "hookaidofile.md").read_text("utf-8")
    for row in ROWS:
        assert f"| `{row.usage.replace('|', chr(92) + '|')}` |" in page


def test_the_example_of_the_page_compiles() -> None:
    page = (ROOT / "docs" / "hookaidofile.md").read_text("utf-8")
    (example,) = re.findall(r"## A file\n\n```\n(.*?)```", page, re.DOTALL)
    assert compiled(example).ok


@pytest.mark.parametrize("provider", STARTERS)
def test_a_starter_verifies_its_sender(provider: str) -> None:
    (route,) = compiled(STARTERS[provider]).usable().routes
    assert route.auth.hmac is not None
    assert route.auth.hmac.provider == (None if provider == "generic" else provider)
    assert sum(line.lstrip().startswith("#") for line in STARTERS[provider].splitlines()) > 8
