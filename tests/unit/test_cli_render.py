"""One renderer: the same rows as a table, as lines and as JSON."""

from __future__ import annotations

import orjson
import pytest
from rich.console import Console

from snavio.cli.render import BLANK, NUMBER, Record, Screen, Styled, Table, TableColumn, show, time_text

ROWS = [
    {"topic": "acme/bot", "ready": 12_345, "note": None},
    {"topic": "x\x1b[31m[b]", "ready": 0, "note": "y"},
]
TABLE = Table(("topic", TableColumn("ready", kind=NUMBER), "note"), ROWS, none="No topics.")


def shown(capsys: pytest.CaptureFixture[str], *blocks: object, json: bool = False) -> str:
    show({"topics": ROWS}, *blocks, json=json)  # type: ignore[arg-type]
    return capsys.readouterr().out


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    made = Console(force_terminal=True, width=width, soft_wrap=True)
    monkeypatch.setattr("snavio.cli.render.console", lambda: made)
    monkeypatch.setattr("snavio.cli.render.fancy", lambda _: width >= 72)


def test_away_from_a_terminal_columns_are_aligned_and_nothing_moves_the_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(capsys, TABLE) == ("topic       ready  note\nacme/bot   12,345  -\nx�[31m[b]       0  y\n")


def test_programs_get_the_rows_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert orjson.loads(shown(capsys, TABLE, json=True)) == {"topics": ROWS}


def test_a_table_without_rows_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, Table(("topic",), [], none="No topics."), None, "") == "No topics.\n"


def test_a_wide_terminal_gets_a_table_and_a_narrow_one_lines_that_can_be_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(monkeypatch, 100)
    wide = shown(capsys, TABLE)
    assert "───" in wide and "\x1b[31m" not in wide and "[b]" in wide
    terminal(monkeypatch, 24)
    assert shown(capsys, TABLE).splitlines()[0] == "acme/bot  12,345"


def test_tabs_divide_what_other_programs_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("topic", "ready"), ROWS[:1], tabs=True)
    assert shown(capsys, table) == "topic\tready\nacme/bot\t12345\n"


def test_records_and_styled_lines_are_plain_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, Record((("id", 7), ("holder", "acme"))), Styled("+ tenant [x]", "green"))
    assert said == "id      7\nholder  acme\n+ tenant [x]\n"


def test_times_are_rfc_3339_and_none_is_none() -> None:
    assert time_text(1_794_823_200_000_001_000) == "2026-11-16T10:00:00Z"
    assert time_text(1_794_823_200_007_000_000, milliseconds=True) == "2026-11-16T10:00:00.007Z"
    assert time_text(0) is None


def test_away_from_a_terminal_readings_are_printed_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen() as screen:
        assert not screen.live
        screen.show({"n": 1}, "one", None, BLANK)
        screen.say({"n": 2}, Styled("two", "bold"))
    assert capsys.readouterr().out == "one\n\ntwo\n"
    with Screen(json=True) as screen:
        screen.show({"n": 1}, "one")
        screen.say({"n": 2}, "two")
    assert capsys.readouterr().out == '{"n":1}\n{"n":2}\n'


def test_on_a_terminal_a_reading_takes_the_place_of_the_one_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(monkeypatch, 100)
    with Screen() as screen:
        assert screen.live
        screen.show({}, TABLE, None, Record((("holder", "acme"),)))
        first = capsys.readouterr().out
        screen.say({}, Styled("this stays", "bold"))
        screen.show({}, "second")
    shown = capsys.readouterr().out
    assert "───" in first and "12,345" in first and "holder  acme" in first and "\x1b[31m" not in first
    # The lines of the first reading are erased, one by one, before the next is written.
    assert shown.count("\x1b[2K") >= first.count("\n") and "this stays" in shown and "second" in shown
    with Screen(live=False) as screen:
        assert not screen.live
