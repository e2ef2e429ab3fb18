"""Options that belong together, as one value: a command names the group and gets it filled.

Never changes what a person types: each field of a group is an option of the command, spelled and explained once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for typer: every parameter whose type is a dataclass becomes the fields of that dataclass.

    A field may be such a group itself. What a command and its groups take under one name is one option.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    shown: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command).parameters.values():
        group = hints[parameter.name]
        if dataclasses.is_dataclass(group):
            groups[parameter.name] = group
            for option in _options(group):
                shown.setdefault(option.name, option)
        else:
            shown[parameter.name] = parameter.replace(annotation=group)
    if not groups:
        return command
    own = hints.keys() & shown.keys()

    @functools.wraps(command)
    def run(**given: Any) -> None:
        filled = {name: _filled(group, given) for name, group in groups.items()}
        command(**{name: value for name, value in given.items() if name in own}, **filled)

    # Typer asks both of them. Keyword only, because a group may stand before an option without a default.
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown.values()]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(kinds[field.name]):
            yield from _options(kinds[field.name])
            continue
        required = field.default is dataclasses.MISSING
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if required else field.default,
            annotation=kinds[field.name],
        )


def _filled(group: Any, given: dict[str, Any]) -> Any:
    """A group of what was given."""
    kinds = get_type_hints(group, include_extras=True)
    said = {
        field.name: _filled(kinds[field.name], given)
        if dataclasses.is_dataclass(kinds[field.name])
        else given[field.name]
        for field in dataclasses.fields(group)
    }
    return group(**said)
