"""Descriptions of every setting as values: for the manual, for `snavio config show`, and for error messages.

Never discloses more of a secret than its name.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from snavio.config.sections import Form, Section

# `type` is also a field below, and there it would hide the builtin.
_Class = type
MASK = "********"
_FORMS: dict[type, Form] = {
    bool: Form("true or false", "true or false"),
    int: Form("whole number", "a whole number"),
    float: Form("number", "a number"),
    str: Form("text", "text"),
    Path: Form("path", "a path in quotes"),
}
_UNITS: dict[str, tuple[tuple[int, str], ...]] = {
    "_ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")),
    "_s": ((86_400, "d"), (3600, "h"), (60, "min")),
    "_bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
}


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """One key. `default` is None where nothing is set; `bounds` is empty where there are none."""

    section: str
    key: str
    type: str
    default: bool | int | float | str | None
    description: str
    bounds: str
    wants: str
    """Completes "must be …": `a whole number from 1000 to 600000`."""
    kind: _Class
    """The Python type of the value, without `None`."""
    secret: bool

    @property
    def default_toml(self) -> str:
        """The default as written in the file."""
        return toml_value(self.default)

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return f"SNAVIO_{self.section}__{self.key}".upper()

    def in_words(self, number: Any) -> str:
        """The number in a larger unit, such as `12 h`; empty where none fits."""
        if isinstance(number, bool) or not isinstance(number, int | float) or number <= 0:
            return ""
        for ending, units in _UNITS.items():
            if self.key.endswith(ending):
                return next((f"{number / size:g} {unit}" for size, unit in units if number % size == 0), "")
        return ""


@dataclass(frozen=True, slots=True)
class SectionDescription:
    """One section and its keys, in the order of the manual."""

    name: str
    description: str
    keys: tuple[KeyDescription, ...]


def describe(sections: Mapping[str, type[Section]]) -> tuple[SectionDescription, ...]:
    """Descriptions of all keys of these sections."""
    return tuple(
        SectionDescription(
            name,
            inspect.getdoc(model) or "",
            tuple(describe_key(name, key, field) for key, field in model.model_fields.items()),
        )
        for name, model in sections.items()
    )


def describe_key(section: str, key: str, field: FieldInfo) -> KeyDescription:
    """One key of a section."""
    kind, metadata = _unwrapped(field)
    form = next((mark for mark in metadata if isinstance(mark, Form)), _FORMS.get(kind) or _form(kind))
    secret = issubclass(kind, SecretStr | SecretBytes)
    bounds = " ".join(_bounds(metadata))
    return KeyDescription(
        section=section,
        key=key,
        type=form.kind,
        default=plain(field.default, secret=secret),
        description=field.description or "",
        bounds=bounds,
        wants=f"{form.words} {bounds}".strip(),
        kind=kind,
        secret=secret,
    )


def plain(value: Any, *, secret: bool = False) -> bool | int | float | str | None:
    """A setting's value as TOML and JSON can represent it; secrets masked."""
    if value is None:
        return None
    if secret:
        return MASK
    return value if isinstance(value, bool | int | float | str) else str(value)


def toml_value(value: Any) -> str:
    """A plain value as TOML text; an unset value is the empty text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    # TOML's basic strings escape as JSON's do, except DEL, which JSON leaves bare and TOML does not allow.
    return json.dumps(value or "", ensure_ascii=False).replace("\x7f", "\\u007f")


def _form(kind: type) -> Form:
    return Form(kind.__name__, f"of the type {kind.__name__}")


def _unwrapped(field: FieldInfo) -> tuple[type, list[Any]]:
    """The type behind `| None` and `Annotated`, and the annotations found on the way."""
    kind: Any = field.annotation
    metadata = list(field.metadata)
    while True:
        if get_origin(kind) in (Union, types.UnionType):
            (kind,) = (arm for arm in get_args(kind) if arm is not types.NoneType)
        elif get_origin(kind) is Annotated:
            kind, *marks = get_args(kind)
            metadata += marks
        else:
            return kind, metadata


def _bounds(metadata: list[Any]) -> Iterator[str]:
    low = next((mark for mark in metadata if isinstance(mark, Ge | Gt)), None)
    high = next((mark for mark in metadata if isinstance(mark, Le | Lt)), None)
    match low, high:
        case Ge(ge=least), Le(le=most):
            yield f"from {toml_value(least)} to {toml_value(most)}"
            return
        case Ge(ge=least), _:
            yield f"of at least {toml_value(least)}"
        case Gt(gt=limit), _:
            yield f"above {toml_value(limit)}"
    if high is not None:
        yield "and" if low is not None else "of"
        yield f"at most {toml_value(high.le)}" if isinstance(high, Le) else f"less than {toml_value(high.lt)}"
