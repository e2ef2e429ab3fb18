"""What is wrong with a configuration, where it stands, and what was probably meant; all of it in one error.

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
    """Where a value comes from: a line of a file, a variable of the environment, or the defaults (none of them)."""

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
    """One thing to correct. `section` and `key` are empty where the mistake is not about one."""

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
    """As the eye goes: down the file, then through the environment."""
    place = mistake.place
    return (bool(place.variable), place.line, place.column, place.variable)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1)
    return found[0] if found else None
