"""The tree of a Hookaidofile: statements with their words as they stand in the file, and every comment.

Never compares layout: two trees are equal when a formatter must write the same words and comments for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from snavio.edge.findings import TextPosition
from snavio.edge.language import Directive
from snavio.edge.lexer import Lexeme


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment with its `#`."""

    text: str
    blank_before: bool = field(compare=False, default=False)


@dataclass(frozen=True, slots=True)
class DirectiveBlock:
    """The text between two braces, or the whole file."""

    name: str
    statements: tuple[Statement, ...] = ()
    opening: str = ""
    """The comment beside the opening brace."""
    closing: tuple[Remark, ...] = ()
    """Comments after the last statement."""
    inline: bool = field(compare=False, default=False)
    """Both braces stand on one line."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One directive with its values."""

    row: Directive
    words: tuple[Lexeme, ...]
    """Its name and its values, in order."""
    values: tuple[tuple[str, Lexeme], ...]
    """Each value after the keyword that stands before it; the keyword is empty for most."""
    block: DirectiveBlock | None = None
    leading: tuple[Remark, ...] = ()
    trailing: str = ""
    blank_before: bool = field(compare=False, default=False)

    @property
    def at(self) -> TextPosition:
        """Of its first word."""
        return self.words[0].at
