"""Sentences of the documentation that were wrong once, each compared with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snavio.cli.registration import read_registration
from snavio.domain.directory import DedupeMode, QueueKind, Route
from snavio.telemetry import schema
from snavio.telemetry.events import SnapshotTooLarge

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def test_telemetry_lists_every_column_that_a_question_can_use() -> None:
    _, _, below = page("telemetry.md").partition("### Columns")
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+)(, always)? \| (.+) \|$", below.partition("\n## ")[0], re.MULTILINE
    )
    assert [(name, kind, bool(always), about) for name, kind, always, about in rows] == [
        (column.name, column.kind, column.required, column.about) for column in schema.COLUMNS
    ]


@pytest.mark.parametrize("kind", list(QueueKind), ids=str)
def test_the_directory_page_offers_every_queue_that_a_route_can_have(kind: QueueKind, tmp_path: Path) -> None:
    example = page("directory.md").partition("```toml\n")[2].partition("```")[0]
    (line,) = [line for line in example.splitlines() if line.startswith("queue = ")]
    assert kind.name.lower() in line
    assert "until" not in line
    file = tmp_path / "registration.toml"
    file.write_text(example.replace('queue = "mailbox"', f'queue = "{kind.name.lower()}"'), "utf-8")
    (route,) = [value for value in read_registration(file).values if isinstance(value, Route)]
    assert route.queue_kind is kind


def test_the_directory_page_offers_strict_delivery(tmp_path: Path) -> None:
    example = page("directory.md").partition("```toml\n")[2].partition("```")[0]
    (line,) = [line for line in example.splitlines() if line.startswith("dedupe_mode = ")]
    assert "until" not in line
    file = tmp_path / "registration.toml"
    file.write_text(example.replace('dedupe_mode = "none"', 'dedupe_mode = "strict"'), "utf-8")
    (route,) = [value for value in read_registration(file).values if isinstance(value, Route)]
    assert route.dedupe_mode is DedupeMode.STRICT


def test_no_page_and_no_proto_says_of_a_queue_that_it_is_not_there_yet() -> None:
    texts = [*(ROOT / "docs").glob("*.md"), *(ROOT / "proto").rglob("*.proto"), ROOT / "README.md"]
    found = [
        path.name
        for path in texts
        if re.search(r"until (it|they) exists?\b|[Nn]ot available yet", path.read_text("utf-8"))
    ]
    assert found == []


def test_the_snapshots_page_promises_the_fields_that_the_event_has() -> None:
    (sentence,) = re.findall(r"`snavio\.snapshot\.too_large`(.*?\.)\n", page("snapshots.md"), re.DOTALL)
    assert re.findall(r"`(\w+)`", sentence) == list(schema.BY_NAME[schema.SNAPSHOT_TOO_LARGE].fields)
    assert list(SnapshotTooLarge(9, 8, 7).fields()) == ["detail"]
    detail = str(SnapshotTooLarge(9, 8, 7).fields()["detail"])
    assert all(figure in detail for figure in "789")


@pytest.mark.parametrize("name", ["directory.md", "dispatch.md"])
def test_pages_that_explain_limits_say_that_intervals_are_aligned(name: str) -> None:
    assert "aligned" in page(name)


def test_the_protocol_page_tells_how_an_ended_certificate_is_refused() -> None:
    """`tests/security/test_mtls.py` tests the behaviour: refused by TLS on connecting, by the gate on an open
    connection.
    """
    rows = [line for line in page("protocol.md").splitlines() if line.startswith("| `UNAVAILABLE` | none |")]
    assert len(rows) == 1
    assert "ended already" in rows[0]
