"""Makes dataclasses without compiling five functions for each: a process that starts has a hundred and fifty of them.

The standard library writes source for every method of every dataclass and compiles it, which was a quarter of a
service's start. Here only `__init__` is compiled; the others are closures over the names of the fields and do the same.
Never more than an optimisation: on another Python than the one it was written for, everything is as it always was.
"""

# The names of functions and arguments are the standard library's.
# ruff: noqa: A002, N807

from __future__ import annotations

import contextlib
import dataclasses
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_WRITTEN_FOR: Final = (3, 11)
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@contextlib.contextmanager
def lean_dataclasses() -> Iterator[None]:
    """Classes that are made inside are made lean."""
    if sys.version_info[:2] != _WRITTEN_FOR:
        yield
        return
    lean = {
        "_repr_fn": _repr_fn,
        "_cmp_fn": _cmp_fn,
        "_hash_fn": _hash_fn,
        "_frozen_get_del_attr": _frozen_get_del_attr,
    }
    usual = {name: getattr(dataclasses, name) for name in lean}
    for name, function in lean.items():
        setattr(dataclasses, name, function)
    try:
        yield
    finally:
        for name, function in usual.items():
            setattr(dataclasses, name, function)


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    # A tuple all the same: its elements are compared by identity first.
    return lambda of: tuple(getattr(of, name) for name in names)


def _repr_fn(fields: Sequence[dataclasses.Field[Any]], globals: Any) -> Any:
    names = [field.name for field in fields]

    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({values})"

    return dataclasses._recursive_repr(__repr__)  # type: ignore[attr-defined]


def _cmp_fn(name: str, op: str, self_tuple: str, other_tuple: str, globals: Any) -> Any:
    # The names come as the source of a tuple: `(self.a,self.b,)`.
    get = _getter([part.removeprefix("self.") for part in self_tuple.strip("()").split(",") if part])
    compared = _OPERATORS[op]

    def compare(self: Any, other: Any) -> Any:
        return compared(get(self), get(other)) if other.__class__ is self.__class__ else NotImplemented

    compare.__name__ = name
    return compare


def _hash_fn(fields: Sequence[dataclasses.Field[Any]], globals: Any) -> Any:
    get = _getter([field.name for field in fields])

    def __hash__(self: Any) -> int:
        return hash(get(self))

    return __hash__


def _frozen_get_del_attr(cls: Any, fields: Sequence[dataclasses.Field[Any]], globals: Any) -> Any:
    names = frozenset(field.name for field in fields)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
