"""The table of directives, from which parser, formatter, checks, comparison, reload and manual derive.

Never says the same twice: a directive that has no row here does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from snavio.edge.table import TABLE


class ReloadClass(Enum):
    """When a change of a directive is in force."""

    LIVE = "live"
    RESTART = "restart"


class Dialect(Enum):
    """The files that a directive may come from: the reference's, those of the public program, or ours alone."""

    REFERENCE = "reference"
    EXTENDED = "extended"
    SNAVIO = "snavio"


class EdgePart(Enum):
    """The part of the edge that carries a directive out."""

    INGRESS = "ingress"
    PULL = "pull"
    DELIVERY = "delivery"
    MANAGEMENT = "management"


RUNNING: Final[frozenset[EdgePart]] = frozenset({EdgePart.INGRESS, EdgePart.PULL})
"""The parts that this version carries out; directives of the others are read, checked and compared."""

FILE: Final = "file"
ROUTE_BLOCK: Final = "route"
ANY, PATH, MATCHER = "*", "/", "@"
_ARGUMENT: Final = re.compile(r"(?:(\w+)=)?(?:(\w+):)?(\w+|\([^()]+\))(?:\[([^\]]+)\])?([?*+]?)")


@dataclass(frozen=True, slots=True)
class DirectiveArgument:
    """One place for a word: `kind` names a row of `kinds.py`, or lists the words that are permitted."""

    kind: str
    label: str
    choices: tuple[str, ...] = ()
    bounds: str = ""
    keyword: str = ""
    """The word that stands before it, for arguments in any order."""
    required: bool = True
    many: bool = False

    def __str__(self) -> str:
        shown = "|".join(self.choices) if self.choices else f"<{self.label}>"
        shown = f"{self.keyword} {shown}" if self.keyword else shown
        shown = f"{shown} …" if self.many else shown
        return shown if self.required else f"[{shown}]"


@dataclass(frozen=True, slots=True, eq=False)
class Directive:
    """One row of the table; each exists once."""

    block: str
    """The block that it stands in."""
    name: tuple[str, ...]
    """Its words; `/`, `@` and `*` stand for a path, a matcher's name and any word, which are its first values."""
    arguments: tuple[DirectiveArgument, ...]
    opens: str
    """The block that it opens, or empty."""
    default: str
    sentence: str
    repeatable: bool
    closed: bool
    """It may stand without its block."""
    reload: ReloadClass
    dialect: Dialect
    part: EdgePart
    means: tuple[str, str] | None
    """The long form: the directive in whose place it stands, and the one inside of it that takes the value."""
    refused: str
    """The sentence with which it is refused, or empty."""
    key: str
    """Its name as one text, such as `auth hmac`."""
    patterns: tuple[DirectiveArgument, ...]
    """The words of its name that are values."""
    positional: tuple[DirectiveArgument, ...]
    """All values without a keyword, those of the name included."""
    keywords: Mapping[str, DirectiveArgument]
    """The others, by their keyword."""

    @property
    def canonical(self) -> str:
        """The key of the long form."""
        return self.means[0] if self.means else self.key

    @property
    def usage(self) -> str:
        """Its syntax."""
        shown = {ANY: "<name>", PATH: "<path>", MATCHER: "@<name>"}
        words = [shown.get(word, word) for word in self.name] + [str(each) for each in self.arguments]
        if self.opens:
            words.append("[{ … }]" if self.closed else "{ … }")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class LanguageBlock:
    """A block, and the rows of what may stand in it."""

    name: str
    sentence: str
    rows: tuple[Directive, ...]
    by_first: dict[str, tuple[Directive, ...]]
    """By the first word of the name, longest name first."""

    def named(self, key: str) -> Directive:
        """The row with that key."""
        return next(row for row in self.rows if row.key == key)

    def starters(self) -> tuple[str, ...]:
        """Words that a directive of this block may begin with."""
        return tuple(word for word in self.by_first if word not in (ANY, PATH, MATCHER))

    def candidates(self, text: str, *, bare: bool) -> tuple[Directive, ...]:
        """Rows that may begin with this word. A word in quotes is no name, though it may be a path or a value."""
        if bare and (rows := self.by_first.get(text)):
            return rows
        if text.startswith("/") and (rows := self.by_first.get(PATH)):
            return rows
        if bare and text.startswith("@") and (rows := self.by_first.get(MATCHER)):
            return rows
        return self.by_first.get(ANY, ())


_PATTERNS: Final = {
    ANY: DirectiveArgument("name", "name"),
    PATH: DirectiveArgument("route", "path"),
    MATCHER: DirectiveArgument("matcher", "name"),
}


def _arguments(text: str) -> tuple[DirectiveArgument, ...]:
    found = []
    for word in text.split():
        parsed = _ARGUMENT.fullmatch(word)
        if parsed is None:
            raise ValueError(f"The table of directives has an argument that nobody can read: {word}")
        keyword, label, kind, bounds, count = parsed.groups()
        choices = tuple(kind[1:-1].split("|")) if kind.startswith("(") else ()
        found.append(
            DirectiveArgument(
                "choice" if choices else kind,
                label or (kind if not choices else "choice"),
                choices=choices,
                bounds=bounds or "",
                keyword=keyword or "",
                required=count in ("", "+"),
                many=count in ("*", "+"),
            )
        )
    return tuple(found)


def _row(block: str, line: str) -> Directive:
    name, arguments, opens, default, marks, sentence = (each.strip() for each in line.split(" | "))
    words = marks.split()
    known, parts = _arguments(arguments if arguments != "-" else ""), name.split()
    patterns = tuple(_PATTERNS[each] for each in parts if each in _PATTERNS)
    values = dict(word.split("=", 1) for word in words if "=" in word)
    means = values.get("means")
    outer, _, inner = (means or "").rpartition(".")
    return Directive(
        block=block,
        name=tuple(parts),
        arguments=known,
        opens=opens if opens != "-" else "",
        default=default if default != "-" else "",
        sentence=sentence,
        repeatable="many" in words,
        closed="closed" in words,
        reload=ReloadClass.RESTART if "restart" in words else ReloadClass.LIVE,
        dialect=next((each for each in Dialect if each.value in words), Dialect.REFERENCE),
        part=next((each for each in EdgePart if each.value in words), EdgePart.INGRESS),
        means=(outer.replace("_", " ") if outer else name, inner) if means else None,
        refused=sentence if "refused" in words else "",
        key=name,
        patterns=patterns,
        positional=(*patterns, *(each for each in known if not each.keyword)),
        keywords=MappingProxyType({each.keyword: each for each in known if each.keyword}),
    )


def _blocks() -> dict[str, LanguageBlock]:
    found: dict[str, LanguageBlock] = {}
    for section in TABLE.strip().split("\n\n"):
        title, *lines = section.splitlines()
        name, _, sentence = title.strip("[]").partition(": ")
        rows = tuple(_row(name, line) for line in lines)
        firsts: dict[str, tuple[Directive, ...]] = {}
        for row in sorted(rows, key=lambda each: -len(each.name)):
            firsts[row.name[0]] = (*firsts.get(row.name[0], ()), row)
        found[name] = LanguageBlock(name, sentence, rows, firsts)
    return found


LANGUAGE: Final = _blocks()
"""Every block by its name."""
