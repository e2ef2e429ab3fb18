"""`snavio spark ledger`: what `watch` left, as a person and a program read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from snavio.audit.ledger import read_ledger
from snavio.cli.app import app
from snavio.errors import NotFound
from spark.judging import Crowding, Judge, by_window, fold
from spark.policy import DetectionPolicy
from spark.write import write_lines

POLICY = DetectionPolicy()
START = 1_794_823_200


def left_by_watch(folder: Path) -> None:
    judge = Judge(POLICY)
    rows = [
        Crowding(START + window * 30, "acme/big", "bot", "say", 90, 100, 1, 40, 30, 0, 700)
        for window in range(3)
    ]
    fold(judge, by_window(rows, (), ()))
    write_lines(judge.ledger(START + 60), folder / "ledger.jsonl")


def test_the_ledger_of_watch_is_read_and_shown(tmp_path: Path) -> None:
    left_by_watch(tmp_path)
    (one,) = read_ledger(tmp_path).rows
    assert (one["source"], one["target"], one["points"], one["alarm_points"]) == ("acme/big", "bot", 24, 25)
    assert (one["permits_used"], one["others_refused"], one["seconds_to_ban"], one["near"]) == (
        270,
        90,
        30,
        True,
    )


def test_a_line_that_is_none_is_left_out_and_no_ledger_is_said(tmp_path: Path) -> None:
    left_by_watch(tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_text(path.read_text() + '{"source": "x"}\n{\n' + json.dumps({"points": "many"}) + "\n")
    assert len(read_ledger(tmp_path).rows) == 1
    with pytest.raises(NotFound, match="`snavio spark watch` writes one"):
        read_ledger(tmp_path / "nowhere")


def test_the_command_needs_no_mesh_that_runs(tmp_path: Path) -> None:
    left_by_watch(tmp_path)
    done = CliRunner().invoke(app, ["spark", "ledger", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "acme/big" in done.stdout and "24 of 25" in done.stdout
    told = json.loads(CliRunner().invoke(app, ["spark", "ledger", "--out", str(tmp_path), "--json"]).stdout)
    assert [one["source"] for one in told["suspects"]] == ["acme/big"]
