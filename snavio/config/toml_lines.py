"""Positions of each table and key of a TOML text; `tomllib` reads the values but keeps no positions.

Does not validate: on text that is not TOML it stops at the first thing that it does not recognise, with the positions
found so far. It never raises.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]

_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^\s,#\]}\[{\"']+(?: [^\s,#\]}\[{\"']+)?")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?'
    r"|'''.*?'''(?:'{1,2}(?!'))?"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}
# Deeper than any configuration; a hostile text must not exhaust the stack.
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Spot:
    """A table header or a key. `path` is its full name, `line` and `column` count characters from 1.

    `start` and `end` are the offsets of the whole statement, value included.
    """

    path: Path
    line: int
    column: int
    header: bool
    start: int
    end: int


class _Lost(Exception):
    """The text is not TOML as this scanner knows it."""


def spots(text: str) -> list[Spot]:
    """Every header and key, in the order of the text; keys of inline tables too."""
    scan = _Scan(text)
    with contextlib.suppress(_Lost):
        scan.document()
    return sorted(scan.found, key=lambda spot: spot.start)


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.found: list[Spot] = []

    def document(self) -> None:
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table, depth=0)
            self._end_of_line()
            self._skip(_GAP)

    def _header(self) -> Path:
        start = self._at
        bracket = "[[" if self._text.startswith("[[", start) else "["
        self._at += len(bracket)
        self._skip(_SPACE)
        named_at = self._at
        path = self._key()
        self._expect("]" * len(bracket))
        self._note(path, named_at, header=True, start=start)
        return path

    def _pair(self, table: Path, *, depth: int) -> None:
        start = self._at
        path = (*table, *self._key())
        self._expect("=")
        self._skip(_SPACE)
        # Noted before its value, so that a value we cannot follow does not hide the key.
        position = len(self.found)
        self._note(path, start, header=False, start=start)
        self._value(path, depth=depth)
        self.found.pop(position)
        self._note(path, start, header=False, start=start)

    def _key(self) -> Path:
        parts = [self._part()]
        while self._text.startswith(".", self._at):
            self._at += 1
            self._skip(_SPACE)
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        match = _BARE.match(self._text, self._at) or _STRING.match(self._text, self._at)
        if match is None or match.group().startswith(('"""', "'''")):
            raise _Lost
        self._at = match.end()
        self._skip(_SPACE)
        word = match.group()
        if word.startswith("'"):
            return word[1:-1]
        return _ESCAPE.sub(_unescape, word[1:-1]) if word.startswith('"') else word

    def _value(self, path: Path, *, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Lost
        if self._text.startswith("[", self._at):
            self._at += 1
            self._listed("]", lambda: self._value(path, depth=depth + 1))
        elif self._text.startswith("{", self._at):
            self._at += 1
            self._listed("}", lambda: self._pair(path, depth=depth + 1))
        else:
            match = _STRING.match(self._text, self._at) or _PLAIN.match(self._text, self._at)
            if match is None:
                raise _Lost
            self._at = match.end()

    def _listed(self, closing: str, item: Callable[[], None]) -> None:
        self._skip(_GAP)
        while not self._text.startswith(closing, self._at):
            item()
            self._skip(_GAP)
            if not self._text.startswith(closing, self._at):
                self._expect(",")
                self._skip(_GAP)
        self._at += 1

    def _note(self, path: Path, named_at: int, *, header: bool, start: int) -> None:
        line = bisect_right(self._lines, named_at)
        column = named_at - self._lines[line - 1] + 1
        self.found.append(Spot(path, line, column, header, start, self._at))

    def _end_of_line(self) -> None:
        self._skip(_SPACE)
        if self._at < len(self._text) and self._text[self._at] not in "#\r\n":
            raise _Lost

    def _expect(self, word: str) -> None:
        if not self._text.startswith(word, self._at):
            raise _Lost
        self._at += len(word)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number <= 0x10FFFF else "\ufffd"
