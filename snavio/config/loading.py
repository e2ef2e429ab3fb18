"""Validates a configuration: returns settings, or reports every mistake at once.

Never fills in a value that the operator misspelled, and never starts with an unsafe value that was not confirmed by its
second setting.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from snavio.config.describe import KeyDescription, describe_key, plain
from snavio.config.mistakes import BadConfiguration, Mistake, SettingLocation, closest
from snavio.config.safety import unsafe
from snavio.config.sections import MeshSettings, S, Section
from snavio.config.sources import GivenSettings, gather, variable_name

_SHOWN_CHARACTERS = 60
# What TOML can bring for each kind of value. A text that merely looks like a number is a mistake in a file; in
# the environment there is nothing but text.
_FROM_TOML: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    Path: (str,),
}


class Setting(NamedTuple):
    """A value in force. `origin` is `default`, `<file>:<line>` or `environment`; secrets are masked."""

    value: bool | int | float | str | None
    origin: str


# Keys of earlier versions: an operator who upgrades reads where the bound went, not that it was never there.
_REMOVED: Final = {
    ("signer", "listen"): "it is [mesh] signer_listen now, as for every service. Move the line there.",
    ("registry", "listen"): "it is [mesh] registry_listen now, as for every service. Move the line there.",
    (
        "shield",
        "streams_per_source",
    ): "streams are bounded per tenant by [mesh] tenant_share_percent. Remove the line.",
    ("shield", "nonce_share_per_source"): (
        "nonces are shared by tenants, by [mesh] tenant_share_percent. Remove the line."
    ),
}


def load(
    section: type[S], name: str, *, config: Path | None, environment: Mapping[str, str] = os.environ
) -> tuple[MeshSettings, S]:
    """The `[mesh]` section and the one called `name`, validated together; BadConfiguration lists every mistake."""
    chosen = validate_all(config, {name: section}, environment=environment)
    mesh, own = chosen["mesh"], chosen[name]
    assert isinstance(mesh, MeshSettings)
    assert isinstance(own, section)
    return mesh, own


def validate_all(
    config: Path | None, sections: Mapping[str, type[Section]], *, environment: Mapping[str, str] = os.environ
) -> dict[str, Section]:
    """`[mesh]` and every one of `sections`; BadConfiguration lists every mistake in any of them."""
    return _judge(gather(config, environment), {"mesh": MeshSettings, **sections})


def effective(
    config: Path | None, sections: Mapping[str, type[Section]], *, environment: Mapping[str, str] = os.environ
) -> dict[str, dict[str, Setting]]:
    """Every setting in force and where it comes from; BadConfiguration if there is a mistake."""
    given = gather(config, environment)
    chosen = _judge(given, {"mesh": MeshSettings, **sections})
    return {
        name: {
            key: Setting(
                plain(getattr(settings, key), secret=describe_key(name, key, field).secret),
                given.place(name, key).origin,
            )
            for key, field in type(settings).model_fields.items()
        }
        for name, settings in chosen.items()
    }


def _judge(given: GivenSettings, models: Mapping[str, type[Section]]) -> dict[str, Section]:
    mistakes = list(given.mistakes)
    chosen: dict[str, Section] = {}
    for name, model in models.items():
        wrong, values = _sift(name, given, models)
        settings = _validated(name, model, values, given, wrong)
        mistakes += wrong
        if settings is not None:
            chosen[name] = settings
    # A part of the file that could not be read may hold the confirming setting: demanding it then would mislead. A
    # [mesh] that contradicts itself is no section, and was reported.
    if given.complete and "mesh" in chosen:
        mistakes += unsafe(chosen, given.place)
    if mistakes:
        raise BadConfiguration(mistakes)
    return chosen


def _sift(
    name: str, given: GivenSettings, models: Mapping[str, type[Section]]
) -> tuple[list[Mistake], dict[str, Any]]:
    """Mistakes that are found before values are validated (unknown keys, wrong types), and the remaining values."""
    wrong, values = [], {}
    fields = models[name].model_fields
    for key, value in given.values.get(name, {}).items():
        place = given.place(name, key)
        if key not in fields:
            wrong.append(Mistake(place, _unknown(name, key, place, models), name, key))
        elif place.variable or _may_be(value, (described := describe_key(name, key, fields[key])).kind):
            values[key] = value
        else:
            wrong.append(Mistake(place, _wrong(described, value), name, key))
    return wrong, values


def _validated(
    name: str, model: type[Section], values: dict[str, Any], given: GivenSettings, wrong: list[Mistake]
) -> Section | None:
    """The section without its invalid values, so that its other values can be validated further."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    if faults[0]["type"] == "contradiction":
        # With one value left out, the other side of the contradiction would be a default that the operator did not set.
        if not wrong:
            key = str(faults[0]["ctx"]["key"])
            sentence = f"[{name}] {faults[0]['ctx']['sentence']}"
            wrong.append(Mistake(_either(given, name, key), sentence, name, key))
        return None
    left = dict(values)
    for key in {str(fault["loc"][0]): None for fault in faults}:
        described = describe_key(name, key, model.model_fields[key])
        wrong.append(Mistake(given.place(name, key), _wrong(described, left.pop(key)), name, key))
    return _validated(name, model, left, given, wrong)


def _either(given: GivenSettings, name: str, key: str) -> SettingLocation:
    """The place of a key, or of its section where only the other key of a contradiction was given."""
    place = given.place(name, key)
    return place if place != SettingLocation() else given.place(name)


def _may_be(value: Any, kind: type) -> bool:
    allowed = _FROM_TOML.get(kind)
    # bool is an int in Python, but `window_ms = true` is not a number in a file.
    return allowed is None or (isinstance(value, allowed) and (kind is bool or not isinstance(value, bool)))


def _wrong(described: KeyDescription, value: Any) -> str:
    sentence = f"[{described.section}] {described.key} must be {described.wants}"
    return f"{sentence}." if described.secret else f"{sentence}, and is {_shown(value)}."


def _shown(value: Any) -> str:
    if isinstance(value, str):
        short = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return f"the text {json.dumps(short, ensure_ascii=False)}" if value else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, datetime.date | datetime.time):
        return "a date or time"
    return str(value)


def _unknown(name: str, key: str, place: SettingLocation, models: Mapping[str, type[Section]]) -> str:
    sentence = f"[{name}] has no key {key!r}"
    if (instead := _REMOVED.get((name, key))) is not None:
        return f"{sentence} any more; {instead}"
    meant = closest(key, models[name].model_fields)
    elsewhere = [other for other, model in models.items() if key in model.model_fields]
    if elsewhere:
        right = variable_name(elsewhere[0], key) if place.variable else f"[{elsewhere[0]}]"
        return f"{sentence}; it belongs to {right}."
    if meant is None:
        return f"{sentence}."
    return f"{sentence}; did you mean {variable_name(name, meant) if place.variable else repr(meant)}?"
