"""Spark's results on disk: whole, once, and with nothing beside them, wherever a run was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark.write import write_lines, write_table, write_text


class Frame:
    """Writes one file, as a DataFrame would; or is killed in the middle of it."""

    def __init__(self, text: str, *, killed: bool = False) -> None:
        self.text, self.killed, self.write = text, killed, self

    def hint(self, name: str) -> Frame:
        assert name == "rebalance"
        return self

    def mode(self, how: str) -> Frame:
        assert how == "overwrite"
        return self

    def option(self, *_: str) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        Path(path).mkdir(exist_ok=True)
        if self.killed:
            raise KilledError
        (Path(path) / "part").write_text(self.text)


class KilledError(Exception):
    """Represents a kill at this moment."""


def written(folder: Path, text: str, *, killed: bool = False) -> None:
    frame: Any = Frame(text, killed=killed)
    write_table(frame, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for text in ("one", "two"):
        written(tmp_path / "base", text)
        assert ((tmp_path / "base" / "part").read_text(), names(tmp_path)) == (text, ["base"])


@pytest.mark.parametrize("at", [1, 2])
def test_a_write_killed_between_its_renames_loses_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    written(tmp_path / "base", "one")
    rename, renames = Path.rename, 0

    def killed(path: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        if renames == at:
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            written(tmp_path / "base", "two")
    # The next run is killed too, before it has anything: what was there is there again.
    with pytest.raises(KilledError):
        written(tmp_path / "base", "three", killed=True)
    assert (tmp_path / "base" / "part").read_text() == "one"
    written(tmp_path / "base", "four")
    assert ((tmp_path / "base" / "part").read_text(), names(tmp_path)) == ("four", ["base"])


def test_what_kills_left_does_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> Path:
        raise KilledError

    for process in range(1, 4):
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda process=process: process)
            patch.setattr(Path, "replace", killed)
            with pytest.raises(KilledError):
                write_lines([{"a": process}], tmp_path / "lines.jsonl")
            with pytest.raises(KilledError):
                write_text("text", tmp_path / "page.html")
            with pytest.raises(KilledError):
                written(tmp_path / "base", "half", killed=True)
    assert len(names(tmp_path)) == 3
    write_lines([{"a": 1}], tmp_path / "lines.jsonl")
    write_text("text", tmp_path / "page.html")
    written(tmp_path / "base", "whole")
    assert names(tmp_path) == ["base", "lines.jsonl", "page.html"]
