"""Links and paths in the documentation exist."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written by `make bench`; a tree that has not measured yet has none.
GENERATED = {"docs/performance.md"}
# Pages of others, and build output.
NOT_OURS = {"target", "node_modules", "build", "dist", "__pycache__"}

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_REFERENCE = re.compile(r"^\[[^\]\n]+\]:\s+(\S+)", re.MULTILINE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*/[\w-]+\.\w+")


def pages() -> Iterator[Path]:
    """Every markdown file of the repository."""
    for folder, inside, files in os.walk(ROOT):
        inside[:] = sorted(name for name in inside if name not in NOT_OURS and not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(".md"))


def links(page: str) -> list[str]:
    """The targets of a page's relative links."""
    # Code is not gone but a word: the text of a link may be code.
    prose = _CODE.sub("code", _FENCE.sub("", page))
    found = _LINK.findall(prose) + _REFERENCE.findall(prose)
    return [target for target in found if not _SCHEME.match(target)]


def anchors(page: str) -> set[str]:
    """The anchors that a page's headings get on GitHub."""
    titles = _HEADING.findall(_FENCE.sub("", page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_that_exist(page: Path) -> None:
    for target in links(page.read_text("utf-8")):
        path, _, anchor = unquote(target).partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.is_relative_to(ROOT), f"{target} leaves the repository"
        if aim.relative_to(ROOT).as_posix() in GENERATED and not aim.exists():
            continue
        assert aim.exists(), target
        if anchor and aim.suffix == ".md":
            assert anchor in anchors(aim.read_text("utf-8")), target


@pytest.mark.parametrize("page", ["docs/tour.md", "docs/architecture.md", "docs/protocol.md", "README.md"])
def test_paths_that_a_page_names_exist(page: str) -> None:
    named = [code for code in _CODE.findall((ROOT / page).read_text("utf-8")) if _FILE.fullmatch(code)]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_tour_goes_from_the_producer_to_the_ack() -> None:
    first, _, second = (ROOT / "docs/tour.md").read_text("utf-8").partition("## The second journey")
    stops = re.findall(r"^\d+\. `([^`]+)`", first, re.MULTILINE)
    assert (stops[0], stops[-1]) == ("snavio/sdk/producer.py", "snavio/sdk/ack_buffer.py")
    assert "services/registry/writes/bans.py" in second


def test_the_lines_that_the_tour_points_to_are_there() -> None:
    table = (ROOT / "docs/tour.md").read_text("utf-8").partition("## The packages")[0]
    rows = [line for line in table.splitlines() if line.startswith("| a ")]
    assert [row.split(" |")[0] for row in rows] == [
        "| a replay is refused",
        "| a lease is over",
        "| a ban is written",
    ]
    for row in rows:
        files = [code for code in _CODE.findall(row) if _FILE.fullmatch(code)]
        text = "\n".join((ROOT / file).read_text("utf-8") for file in files)
        # A name such as `Timers.due` or `NonceSet::claim_all`: its last part is defined in a file of that row.
        names = [
            re.split(r"\.|::", code)[-1]
            for code in _CODE.findall(row)
            if code not in files and code != "replayed"
        ]
        missing = [
            name for name in names if not re.search(rf"\b(?:def|fn) {name}\b|^ +{name},$", text, re.MULTILINE)
        ]
        assert (len(files) > 0, missing) == (True, [])


def test_generated_pages_are_made_by_something() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [page for page in GENERATED if page not in makefile] == []


def test_links_are_found_in_prose_and_not_in_code() -> None:
    page = "[a](b.md) [`c`](d/e.md#f) `[no](x.md)`\n```\n[no](y.md)\n```\n[web](https://example.org)\n\n[r]: g.md\n"
    assert links(page) == ["b.md", "d/e.md#f", "g.md"]


def test_headings_become_the_anchors_of_github() -> None:
    assert anchors("# What is not there, yet?\n```\n# no\n```\n## `a_b` and-c\n") == {
        "what-is-not-there-yet",
        "a_b-and-c",
    }
