"""Mistakes of a configuration with their place and the probable intention, collected in one error.

Never shows the value of a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from snavio.errors import BadRequest

REASON = "bad-configuration"


@dataclass(frozen=True, slots=True)
class SettingLocation:
    """Origin of a value: a line of a file, an environment variable, or the defaults (neither is set)."""

    file: Path | None = None
    line: int = 0
    column: int = 0
    variable: str = ""

    @property
    def origin(self) -> str:
        """`default`, `<file>:<line>` or `environment`."""
        if self.variable:
            return "environment"
        if self.file is None:
            return "default"
        return f"{self.file}:{self.line}" if self.line else str(self.file)

    def __str__(self) -> str:
        if self.variable:
            return f"environment variable {self.variable}"
        if self.file is None:
            return "defaults"
        return f"{self.file}:{self.line}:{self.column}" if self.line else str(self.file)


DEFAULTS = SettingLocation()


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake to correct. `section` and `key` are empty where it is about neither."""

    place: SettingLocation
    sentence: str
    section: str = ""
    key: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


class BadConfiguration(BadRequest):
    """Every mistake of a configuration; a process ends with exit code 2 for it."""

    reason = REASON

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=_reading_order))
        lines = [str(mistake) for mistake in self.mistakes]
        several = f"The configuration has {len(lines)} mistakes:"
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([several, *lines]))


def _reading_order(mistake: Mistake) -> tuple[bool, int, int, str]:
    """Sort key: down the file, then the environment."""
    place = mistake.place
    return (bool(place.variable), place.line, place.column, place.variable)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most similar to the given one."""
    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1)
    return found[0] if found else None
