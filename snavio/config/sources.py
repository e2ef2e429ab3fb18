"""The values of the file and of the environment, each with its place.

Never validates a value; reports text that cannot be parsed, and values under no known section.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snavio.config.mistakes import Mistake, SettingLocation, closest
from snavio.config.sections import SECTIONS
from snavio.config.toml_lines import Spot, spots

ENVIRONMENT_PREFIX = "SNAVIO_"
# A configuration is some kilobytes; a larger file is refused instead of being read whole.
MAX_FILE_BYTES = 1 << 20
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(slots=True)
class GivenSettings:
    """Values by section and key. `complete` is false when a part of the file could not be read."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    places: dict[tuple[str, ...], SettingLocation] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    complete: bool = True

    def place(self, section: str, key: str = "") -> SettingLocation:
        """The place of a key; of its section, or nowhere, if the key is not given."""
        found = self.places.get((section, key)) if key else self.places.get((section,))
        return found or SettingLocation()


def gather(config: Path | None, environment: Mapping[str, str]) -> GivenSettings:
    """The file's values, overridden by the environment's."""
    given = GivenSettings()
    if config is not None:
        _read_file(config, given)
    _read_environment(environment, given)
    return given


def _read_file(config: Path, given: GivenSettings) -> None:
    text = _text(config, given)
    document = _document(text, config, given) if text is not None else None
    if text is None or document is None:
        given.complete = False
        return
    for spot in spots(text):
        place = SettingLocation(config, spot.line, spot.column)
        given.places.setdefault(spot.path[:1], place)
        given.places.setdefault(spot.path[:2], place)
    for name, value in document.items():
        place = given.place(name)
        if isinstance(value, dict) and name in SECTIONS:
            given.values[name] = value
        elif isinstance(value, dict) or (isinstance(value, list) and name not in SECTIONS):
            meant = closest(name, SECTIONS)
            hint = f"did you mean [{meant}]?" if meant else f"there are {_listed(SECTIONS)}."
            given.mistakes.append(Mistake(place, f"[{name}] is not a section; {hint}", name))
        elif isinstance(value, list):
            given.mistakes.append(
                Mistake(place, f"[{name}] is one section, written in single brackets.", name)
            )
        else:
            sentence = f"{name!r} stands outside of any section; put it below a line such as [mesh]."
            given.mistakes.append(Mistake(place, sentence, key=name))


def _text(config: Path, given: GivenSettings) -> str | None:
    where = SettingLocation(config)
    try:
        with config.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        given.mistakes.append(Mistake(where, "this file does not exist."))
    except IsADirectoryError:
        given.mistakes.append(Mistake(where, "this is a folder; give the path of the file in it."))
    except OSError as error:
        given.mistakes.append(Mistake(where, f"this file cannot be read: {error.strerror}."))
    else:
        if len(content) > MAX_FILE_BYTES:
            given.mistakes.append(Mistake(where, "this file is over 1 MiB, so it is hardly a configuration."))
            return None
        try:
            # Some editors begin a file with a mark that TOML does not know; lines end as tomllib sees them.
            return content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            column = error.start - content.rfind(b"\n", 0, error.start)
            given.mistakes.append(
                Mistake(SettingLocation(config, line, column), "this is not UTF-8; save the file as such.")
            )
    return None


def _document(text: str, config: Path, given: GivenSettings) -> dict[str, Any] | None:
    """The parsed file. A key that is set twice is reported and left out, so that the rest can be validated."""
    while True:
        try:
            return tomllib.loads(text)
        except RecursionError:
            given.mistakes.append(Mistake(SettingLocation(config), "values are nested too deeply."))
            return None
        except tomllib.TOMLDecodeError as error:
            said, line, column = _position(str(error), text)
            first, again = _repeated(text, line, column)
            if first is None or again is None:
                sentence = f"this is not TOML: {_explain(said)}. Nothing else in the file was read."
                given.mistakes.append(Mistake(SettingLocation(config, line, column), sentence))
                return None
            place = SettingLocation(config, again.line, again.column)
            name = ".".join(again.path)
            if again.header:
                sentence = f"[{name}] begins a second time; it began in line {first.line}. Join the two."
                given.mistakes.append(Mistake(place, f"{sentence} Nothing else in the file was read.", name))
                return None
            section, _, key = name.rpartition(".")
            named = f"[{section}] {key}" if section else repr(key)
            sentence = f"{named} is set twice; it was set in line {first.line}."
            given.mistakes.append(Mistake(place, sentence, section, key))
            # Blank, not gone: what follows keeps its line and column.
            text = (
                text[: again.start] + re.sub(r"[^\n]", " ", text[again.start : again.end]) + text[again.end :]
            )


def _position(message: str, text: str) -> tuple[str, int, int]:
    match = _POSITION.search(message)
    said = _POSITION.sub("", message)
    if match is not None and match.group(1):
        return said, int(match.group(1)), int(match.group(2))
    return said, text.rstrip("\n").count("\n") + 1, len(text.rstrip("\n").rpartition("\n")[2]) + 1


def _explain(said: str) -> str:
    """tomllib's message, with the usual cause where the message does not name it."""
    usual = {
        "Invalid value": "no value can be read here; text stands in quotes, and it is true and false in lower case",
        "Invalid statement": "neither a [section] nor key = value nor a comment begins here",
        "Expected newline or end of document after a statement": "something follows the value; a comment "
        "begins with #, and text stands in quotes",
    }
    return usual.get(said, said[:1].lower() + said[1:])


def _repeated(text: str, line: int, column: int) -> tuple[Spot | None, Spot | None]:
    """The first and second statement of one name, if the second is the one at the position."""
    offset = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    seen: dict[tuple[tuple[str, ...], bool], Spot] = {}
    for spot in spots(text):
        first = seen.setdefault((spot.path, spot.header), spot)
        if first is not spot and spot.start <= offset <= spot.end:
            return first, spot
    return None, None


def _read_environment(environment: Mapping[str, str], given: GivenSettings) -> None:
    taken: dict[tuple[str, str], str] = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or "__" not in variable:
            continue
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        place = SettingLocation(variable=variable)
        if section not in SECTIONS:
            meant = closest(section, SECTIONS)
            hint = (
                f"did you mean {variable_name(meant, key)}?" if meant else f"there are {_listed(SECTIONS)}."
            )
            given.mistakes.append(Mistake(place, f"there is no section [{section}]; {hint}", section, key))
        elif (section, key) in taken:
            sentence = f"this sets [{section}] {key}, and so does {taken[section, key]}; unset one."
            given.mistakes.append(Mistake(place, sentence, section, key))
        else:
            taken[section, key] = variable
            given.values.setdefault(section, {})[key] = environment[variable]
            given.places[section, key] = place


def variable_name(section: str, key: str) -> str:
    """The variable that overrides a key."""
    return f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"[{name}]" for name in names[:-1]) + f" and [{names[-1]}]"
