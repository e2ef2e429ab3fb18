"""Mistakes and warnings about a Hookaidofile, each with its place, collected in one error.

Never holds an expanded value or a secret: a sentence quotes only words of the file, and no credential.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from snavio.errors import BadRequest

MOST_FINDINGS: Final = 100
"""A text that is no Hookaidofile at all has a mistake in every word; nobody reads more than these."""
MOST_COMPARED: Final = 64
"""Longer words are compared with no other: the comparison takes time that grows with their square."""


class TextPosition(NamedTuple):
    """Line and column of a character, both from 1."""

    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake or warning. `reason` is stable and short."""

    at: TextPosition
    reason: str
    sentence: str
    suggestion: str = ""
    """The word that was probably meant, or empty."""

    def __str__(self) -> str:
        meant = f" Did you mean `{self.suggestion}`?" if self.suggestion else ""
        return f"{self.at}: {self.sentence}{meant}"

    def document(self) -> dict[str, object]:
        """The finding as programs read it."""
        return {
            "line": self.at.line,
            "column": self.at.column,
            "reason": self.reason,
            "message": self.sentence,
            "suggestion": self.suggestion or None,
        }


class FindingLog:
    """Collects what is found while a file is read: at most `MOST_FINDINGS` of each kind, the others are counted."""

    def __init__(self) -> None:
        self._mistakes: dict[Finding, None] = {}
        self._warnings: dict[Finding, None] = {}
        self.left_out = 0

    def mistake(self, at: TextPosition, reason: str, sentence: str, suggestion: str = "") -> None:
        """Add what keeps the file from being used."""
        self._add(self._mistakes, Finding(at, reason, sentence, suggestion))

    def warning(self, at: TextPosition, reason: str, sentence: str) -> None:
        """Add what a reader should know."""
        self._add(self._warnings, Finding(at, reason, sentence))

    @property
    def mistakes(self) -> tuple[Finding, ...]:
        """In the order of the file."""
        return tuple(sorted(self._mistakes, key=lambda each: (each.at, each.reason)))

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """In the order of the file."""
        return tuple(sorted(self._warnings, key=lambda each: (each.at, each.reason)))

    def _add(self, found: dict[Finding, None], finding: Finding) -> None:
        if finding in found:
            return
        if len(found) < MOST_FINDINGS:
            found[finding] = None
        else:
            self.left_out += 1


class BadHookaidofile(BadRequest):
    """Every mistake of a Hookaidofile."""

    reason = "bad-hookaidofile"

    def __init__(self, mistakes: Iterable[Finding], *, name: str = "Hookaidofile", left_out: int = 0) -> None:
        self.mistakes = tuple(mistakes)
        lines = [f"{name}:{mistake}" for mistake in self.mistakes]
        if left_out:
            lines.append(f"and {left_out} more.")
        several = f"{name} has {len(self.mistakes) + left_out} mistakes:"
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([several, *lines]))


def closest_word(word: str, known: Iterable[str]) -> str:
    """The known word most similar to `word`, or empty."""
    if len(word) > MOST_COMPARED:
        return ""
    folded = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), folded, n=1)
    return folded[found[0]] if found else ""


def quoted(text: str) -> str:
    """A word of the file in a sentence: cut, and without what moves a cursor."""
    shown = "".join(each if each.isprintable() else "�" for each in text[:61])
    return f"`{shown if len(shown) <= 60 else shown[:59] + '…'}`"
