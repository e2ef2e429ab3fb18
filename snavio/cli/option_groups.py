"""Options that belong together, as one value: a command names the group and gets it filled.

Never changes what a person types: each field of a group is an option of the command, spelled and explained once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for typer: every parameter whose type is a dataclass becomes the fields of that dataclass."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = hints[parameter.name]
        if not dataclasses.is_dataclass(group):
            shown.append(parameter.replace(annotation=group))
            continue
        groups[parameter.name] = group
        kinds = get_type_hints(group, include_extras=True)
        shown += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=kinds[field.name],
            )
            for field in dataclasses.fields(group)
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            said = {field.name: given.pop(field.name) for field in dataclasses.fields(group)}
            given[name] = group(**said)
        command(**given)

    # Typer asks both of them. Keyword only, because a group may stand before an option without a default.
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run
