"""Placeholders inside of one value: `{$NAME}`, `{$NAME:default}`, `{env.NAME}`, `{file.PATH}` and `{vars.NAME}`.

Never expands the text of somebody who may not read this machine's files and variables, and never expands what an
expansion brought in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from snavio.edge.findings import FindingLog, TextPosition, closest_word, quoted
from snavio.edge.lexer import Lexeme

MOST_EXPANDED: Final = 65_536
"""Characters of one value: variables that double each other would fill the memory."""

_PLACEHOLDER: Final = re.compile(r"\{(\$|env\.|file\.|vars\.)([^{}]*+)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")


class TextTrust(Enum):
    """The origin of a text: the operator's own file, or a candidate that somebody sent."""

    TRUSTED = "trusted"
    CANDIDATE = "candidate"


def _no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the values of placeholders come from. `read_file` raises OSError or ValueError."""

    environment: Mapping[str, str] = field(default_factory=dict)
    read_file: Callable[[str], str] = _no_file


@dataclass(frozen=True, slots=True)
class Expansion:
    """A value with its placeholders replaced. `known` is False when they had to stay."""

    text: str
    known: bool = True
    replaced: bool = False


class Expander:
    """Expands the values of one file."""

    def __init__(
        self,
        trust: TextTrust,
        surroundings: Surroundings,
        findings: FindingLog,
    ) -> None:
        self._trust = trust
        self._surroundings = surroundings
        self._findings = findings
        self._sources: dict[str, Lexeme] = {}
        self._vars: dict[str, Expansion] = {}

    def define(self, variables: Mapping[str, Lexeme]) -> None:
        """Take the `vars` of the file, each after those that it uses; a circle is a mistake."""
        self._sources = dict(variables)
        waiting = {name: set(_uses(word.text)) & set(variables) for name, word in variables.items()}
        users: dict[str, list[str]] = {}
        for name, uses in waiting.items():
            for used in uses:
                users.setdefault(used, []).append(name)
        ready = [name for name, uses in waiting.items() if not uses]
        while ready:
            name = ready.pop()
            self._vars[name] = self.expand(variables[name])
            for user in users.get(name, ()):
                waiting[user].discard(name)
                if not waiting[user]:
                    ready.append(user)
        for name, uses in waiting.items():
            if uses:
                self._findings.mistake(
                    variables[name].at,
                    "vars-cycle",
                    f"`{name}` stands in a circle of `vars`, or uses one, by way of `{min(uses)}`.",
                )
                self._vars[name] = Expansion("", known=False)

    def expand(self, word: Lexeme) -> Expansion:
        """The value of a word."""
        text = word.text
        if "{" not in text or not (found := list(_PLACEHOLDER.finditer(text))):
            return Expansion(text)
        if self._trust is TextTrust.CANDIDATE:
            # Whoever sends a candidate would read our environment and files in the answer.
            return Expansion(text, known=False)
        parts: list[str] = []
        place = length = 0
        for each in found:
            value = self._value(each[1], each[2], word.at)
            if value is None:
                return Expansion("", known=False, replaced=True)
            parts += [text[place : each.start()], value]
            length += len(parts[-1]) + len(parts[-2])
            if length > MOST_EXPANDED:
                break
            place = each.end()
        parts.append(text[place:])
        if length + len(parts[-1]) > MOST_EXPANDED:
            self._findings.mistake(
                word.at,
                "expansion-too-long",
                f"The value is longer than {MOST_EXPANDED:,} characters once it is expanded.",
            )
            return Expansion("", known=False, replaced=True)
        return Expansion("".join(parts), replaced=True)

    def _value(self, scheme: str, name: str, at: TextPosition) -> str | None:
        match scheme:
            case "vars.":
                return self._variable(name, at)
            case "file.":
                return self._file(name, at)
        default: str | None = None
        if scheme == "$":
            name, colon, rest = name.partition(":")
            default = rest if colon else None
        if not _VARIABLE.fullmatch(name):
            return self._mistake(
                at, "bad-placeholder", f"{quoted(name)} is no name of an environment variable."
            )
        value = self._surroundings.environment.get(name, default)
        if value is None:
            return self._mistake(
                at,
                "variable-not-set",
                f"The environment variable `{name}` is not set; `{{${name}:value}}` gives a default.",
            )
        return value

    def _variable(self, name: str, at: TextPosition) -> str | None:
        known = self._vars.get(name)
        if known is not None:
            return known.text if known.known else None
        meant = closest_word(name, self._sources)
        return self._mistake(at, "unknown-variable", f"`vars` has no {quoted(name)}.", meant)

    def _file(self, path: str, at: TextPosition) -> str | None:
        if not path:
            return self._mistake(at, "bad-placeholder", "A path follows `{file.`.")
        try:
            return self._surroundings.read_file(path).rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
            return self._mistake(at, "file-unreadable", f"The file {quoted(path)} cannot be read: {why}.")

    def _mistake(self, at: TextPosition, reason: str, sentence: str, suggestion: str = "") -> str | None:
        self._findings.mistake(at, reason, sentence, suggestion)
        return None


def _uses(text: str) -> list[str]:
    return [each[2] for each in _PLACEHOLDER.finditer(text) if each[1] == "vars."]
