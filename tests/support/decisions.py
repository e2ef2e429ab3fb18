"""Functions for stores that ask a function what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def always(value: Value) -> Callable[[object], Value]:
    """Write `value`, whatever is there."""
    return lambda _: value


def unless_there(value: Value) -> Callable[[Value | None], Value]:
    """Write `value` where there is none yet."""
    return lambda before: before or value
