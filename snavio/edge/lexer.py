"""Splits the text of a Hookaidofile into words, braces and comments, each with its line and column.

Never backtracks: every pattern is possessive, so a hostile text takes time in proportion to its length.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from typing import Final, NamedTuple

from snavio.edge.findings import FindingLog, TextPosition

MOST_BYTES: Final = 4 << 20
MOST_WORD: Final = 16_384
MOST_DEPTH: Final = 32

_BLANK: Final = re.compile(r"[ \t\r\n]++")
_COMMENT: Final = re.compile(r"#[^\n]*+")
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\[^\n])*+)(")?')
# A placeholder may stand bare, alone or inside a word. A semicolon ends a directive where nothing follows it.
_WORD: Final = re.compile(
    r'(?:[^ \t\r\n{}"#;]++|;(?=[^ \t\r\n{};"#])|\{(?:\$|env\.|file\.|vars\.)[^ \t\r\n{}"]*+\})++'
)
_ESCAPE: Final = re.compile(r'\\(["\\ntr])')
_ESCAPED: Final = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


class LexemeKind(Enum):
    """Kinds of lexeme."""

    WORD = "word"
    OPEN = "{"
    CLOSE = "}"
    END = ";"
    COMMENT = "#"


class Lexeme(NamedTuple):
    """A piece of the text. `raw` is written as it stands in the file, `text` without quotes and escapes.

    Equal to another of the same kind and raw text, wherever that stands.
    """

    kind: LexemeKind
    raw: str
    text: str
    at: TextPosition
    offset: int = 0
    """Of its first character in the text."""

    @property
    def bare(self) -> bool:
        """A word without quotes: only such a word is the name of a directive."""
        return self.kind is LexemeKind.WORD and self.raw[0] != '"'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lexeme) and self.raw == other.raw and self.kind is other.kind

    def __hash__(self) -> int:
        return hash(self.raw)


def decoded(data: bytes, findings: FindingLog) -> str | None:
    """The text of a file; None when it is too large or no UTF-8."""
    if len(data) > MOST_BYTES:
        findings.mistake(
            TextPosition(),
            "too-large",
            f"The file has {len(data):,} bytes; at most {MOST_BYTES:,} are read.",
        )
        return None
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        findings.mistake(TextPosition(line, column), "not-utf8", "The text is not UTF-8 from here on.")
        return None


def lexemes_of(text: str, findings: FindingLog) -> list[Lexeme]:
    """All lexemes of a text, in order; what is none is a mistake and is left out."""
    found: list[Lexeme] = []
    line, line_start, place, end = 1, 0, 0, len(text)
    while place < end:
        if blank := _BLANK.match(text, place):
            if newlines := text.count("\n", place, blank.end()):
                line += newlines
                line_start = text.rfind("\n", place, blank.end()) + 1
            place = blank.end()
            continue
        at, start = TextPosition(line, place - line_start + 1), place
        letter = text[place]
        if letter == "#":
            place = _end_of(_COMMENT, text, place)
            raw = text[start:place].rstrip()
            if start and text[start - 1] not in ' \t\n\r{};"':
                findings.warning(
                    at, "comment-in-word", "A `#` begins a comment inside a word too; quotes keep it as text."
                )
            found.append(Lexeme(LexemeKind.COMMENT, raw, raw, at, start))
        elif letter == '"':
            found.append(_string(text, place, at, findings))
            place += len(found[-1].raw)
            if not _closed(found[-1].raw):
                # The mistake is said. Its word ends with its line, so that what follows is still read.
                found[-1] = Lexeme(LexemeKind.WORD, '""', found[-1].text, at, start)
        elif letter != ";" and (word := _WORD.match(text, place)):
            place = word.end()
            found.append(_word(word[0], at, start, findings))
        else:
            place += 1
            found.append(Lexeme(LexemeKind(letter), letter, letter, at, start))
    return found


def _string(text: str, place: int, at: TextPosition, findings: FindingLog) -> Lexeme:
    string = _STRING.match(text, place)
    raw = string[0] if string else '"'
    inner = string[1] if string else ""
    if not string or string[2] is None:
        findings.mistake(at, "unclosed-quote", "The quote that opens here is not closed on its line.")
    elif len(raw) > MOST_WORD:
        findings.mistake(at, "too-long", f"A word has at most {MOST_WORD:,} characters.")
    elif "\x00" in inner:
        findings.mistake(at, "control-character", "The text in quotes holds a NUL character.")
    # Any other backslash stays: a pattern or a Windows path must not lose it.
    plain = _ESCAPE.sub(lambda found: _ESCAPED[found[1]], inner) if "\\" in inner else inner
    return Lexeme(LexemeKind.WORD, raw, plain, at, place)


def _word(raw: str, at: TextPosition, offset: int, findings: FindingLog) -> Lexeme:
    if len(raw) > MOST_WORD:
        findings.mistake(at, "too-long", f"A word has at most {MOST_WORD:,} characters.")
    elif not raw.isprintable():
        # Such as a no-break space out of a web page, which looks like the end of the word.
        hidden = next(each for each in raw if not each.isprintable())
        findings.mistake(
            at,
            "control-character",
            f"The word holds the invisible character U+{ord(hidden):04X}; type a space, or quote it.",
        )
    return Lexeme(LexemeKind.WORD, raw, raw, at, offset)


def _closed(raw: str) -> bool:
    found = _STRING.fullmatch(raw)
    return found is not None and found[2] is not None


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place + 1
