"""Lines of `snavio log` fit into 80 columns without breaking a word that a line can hold."""

from __future__ import annotations

from snavio.cli.change_log import WIDTH, _fitted

REASON = (
    "moved to the ledger because the old billing-service of the-first-region could not keep up with invoices"
)


def test_a_long_reason_is_broken_between_words() -> None:
    text = f"{'':32}by acme/principal/ci, {REASON}"
    lines = _fitted(text)
    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert lines[0].startswith(" " * 32 + "by")
    assert all(line.startswith(" " * 34) for line in lines[1:])


def test_a_name_longer_than_a_line_is_whole_in_its_pieces() -> None:
    name = "n" * 200
    lines = _fitted(f"2026-01-01T00:00:00Z       7  + route {name}")
    assert max(map(len, lines)) <= WIDTH
    assert "".join(line.strip() for line in lines).endswith(name)


def test_spaces_between_columns_stay_and_control_characters_do_not() -> None:
    assert _fitted("2026-01-01T00:00:00Z       7  + target bot") == [
        "2026-01-01T00:00:00Z       7  + target bot"
    ]
    assert _fitted("by x\x1b[2J\ty") == ["by x�[2J�y"]
