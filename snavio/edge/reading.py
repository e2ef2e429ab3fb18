"""Turns the tree into typed values: placeholders expanded, every word checked by its kind, short forms made long.

Never stops at a mistake: a value that cannot be read is None, and what depends on it is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from snavio.edge.findings import FindingLog, TextPosition, closest_word
from snavio.edge.kinds import KINDS, BadValue, count, shown
from snavio.edge.language import LANGUAGE, Directive, DirectiveArgument
from snavio.edge.lexer import Lexeme
from snavio.edge.placeholders import Expander
from snavio.edge.tree import DirectiveBlock, Statement

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(slots=True)
class ReadBlock:
    """The directives of a block by their long form."""

    name: str
    at: TextPosition
    directives: dict[str, list[ReadDirective]] = field(default_factory=dict)

    def all(self, key: str) -> list[ReadDirective]:
        """Every directive with that key, in order."""
        return self.directives.get(key, [])

    def one(self, key: str) -> ReadDirective | None:
        """The directive with that key."""
        found = self.directives.get(key)
        return found[0] if found else None

    def value(self, key: str) -> Any:
        """The value of a directive; its default when it is not there; None when it could not be read."""
        found = self.one(key)
        return (found.values[0] if found.values else None) if found else default_of(self.name, key)

    def given(self, key: str) -> Any:
        """The value of a directive; None when it is not there."""
        found = self.one(key)
        return found.values[0] if found and found.values else None

    def many(self, key: str) -> tuple[Any, ...]:
        """The values of every directive with that key, one after another."""
        return tuple(value for each in self.all(key) for value in each.values if value is not None)

    def inner(self, key: str) -> ReadBlock | None:
        """The block of a directive."""
        found = self.one(key)
        return found.block if found else None

    def place(self, key: str) -> TextPosition:
        """The place of a directive, or of the block."""
        found = self.one(key)
        return found.at if found else self.at


@dataclass(slots=True)
class ReadDirective:
    """A directive in its long form."""

    row: Directive
    at: TextPosition
    values: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    block: ReadBlock | None = None
    known: bool = True
    """All of its values could be read."""
    places: tuple[TextPosition, ...] = ()


class TreeReader:
    """Reads one file. `opaque` is set when a placeholder had to stay."""

    def __init__(self, expander: Expander, findings: FindingLog) -> None:
        self._expander = expander
        self._findings = findings
        self.opaque: list[TextPosition] = []

    def file(self, tree: DirectiveBlock) -> ReadBlock:
        """The whole file; its variables first, because everything else may use them."""
        variables: dict[str, Lexeme] = {}
        for statement in tree.statements:
            if statement.row.key == "vars" and statement.block:
                for each in statement.block.statements:
                    if len(each.words) < 2:
                        continue
                    if each.words[0].text in variables:
                        self._findings.mistake(
                            each.at, "duplicate", f"`{each.words[0].text}` is in `vars` twice."
                        )
                    variables[each.words[0].text] = each.words[1]
        self._expander.define(variables)
        return self.block(tree, TextPosition())

    def block(self, block: DirectiveBlock, at: TextPosition) -> ReadBlock:
        """One block, with all below it."""
        found = ReadBlock(block.name, at)
        for statement in block.statements:
            self._add(found, statement)
        self._refuse_repeats(found)
        return found

    def _add(self, into: ReadBlock, statement: Statement) -> None:
        row = statement.row
        values, named, places, known = self._values(statement)
        below = self.block(statement.block, statement.at) if statement.block else None
        if row.means is None:
            read = ReadDirective(row, statement.at, values, named, below, known, places)
            into.directives.setdefault(row.key, []).append(read)
            return
        outer, inner = row.means
        outer_row = LANGUAGE[row.block].named(outer)
        merged = into.one(outer)
        if merged is None:
            merged = ReadDirective(outer_row, statement.at, block=ReadBlock(outer_row.opens, statement.at))
            into.directives[outer] = [merged]
        target = merged.block
        if target is None:
            return
        if statement.values:
            inner_row = LANGUAGE[outer_row.opens].named(inner)
            target.directives.setdefault(inner, []).append(
                ReadDirective(inner_row, statement.at, values, named, None, known, places)
            )
        for key, directives in (below.directives if below else {}).items():
            target.directives.setdefault(key, []).extend(directives)
        self._refuse_repeats(target)

    def _refuse_repeats(self, block: ReadBlock) -> None:
        for key, directives in block.directives.items():
            if len(directives) > 1 and not directives[0].row.repeatable:
                for each in directives[1:]:
                    self._findings.mistake(
                        each.at,
                        "duplicate",
                        f"`{key}` is there twice; the first stands in line {directives[0].at.line}.",
                    )

    def _values(
        self, statement: Statement
    ) -> tuple[tuple[Any, ...], Mapping[str, Any], tuple[TextPosition, ...], bool]:
        row, known = statement.row, True
        plain: list[Any] = []
        places: list[TextPosition] = []
        named: dict[str, Any] = {}
        kinds = row.positional
        for keyword, word in statement.values:
            if keyword:
                named[keyword] = self._value(row.keywords[keyword], word)
                known = known and named[keyword] is not _UNREAD
                continue
            argument = kinds[min(len(plain), len(kinds) - 1)]
            plain.append(self._value(argument, word))
            places.append(word.at)
            known = known and plain[-1] is not _UNREAD
        return (
            tuple(None if each is _UNREAD else each for each in plain),
            {key: None if each is _UNREAD else each for key, each in named.items()} if named else _NONE,
            tuple(places),
            known,
        )

    def _value(self, argument: DirectiveArgument, word: Lexeme) -> Any:
        expansion = self._expander.expand(word)
        if not expansion.known:
            if not expansion.replaced:
                self.opaque.append(word.at)
            return _UNREAD
        try:
            return convert(argument, expansion.text)
        except BadValue as error:
            if error.reason == "literal-reference" and expansion.replaced:
                return expansion.text  # It came out of a variable: nobody reads it in the file.
            # What came out of a variable is shown to nobody, also not in a better form.
            meant = "" if expansion.replaced else error.suggestion
            if argument.choices:
                meant = closest_word(expansion.text, argument.choices)
            self._findings.mistake(word.at, error.reason, f"{shown(argument.kind, word.raw)} {error}.", meant)
            return _UNREAD


class _Unread:
    """The value of a word that could not be read."""


_UNREAD: Final = _Unread()


def convert(argument: DirectiveArgument, text: str) -> Any:
    """The typed value of a text; raises BadValue."""
    if argument.choices:
        if text not in argument.choices:
            raise BadValue(f"must be one of {', '.join(f'`{each}`' for each in argument.choices)}")
        return text
    if argument.kind == "count":
        return count(text, argument.bounds)
    return KINDS[argument.kind](text)


@cache
def default_of(block: str, key: str) -> Any:
    """The typed default of a directive with one value; None when it has none."""
    row = LANGUAGE[block].named(key)
    if not row.default or row.arguments[0].many:
        return None
    return convert(row.arguments[0], row.default)


@cache
def named_defaults(block: str, key: str) -> Mapping[str, Any]:
    """The typed defaults of a directive whose values have keywords, such as `retry`."""
    row = LANGUAGE[block].named(key)
    words = iter(row.default.split())
    known = row.keywords
    return MappingProxyType({word: convert(known[word], next(words)) for word in words if word in known})
