"""A dataclass that was made lean is told from one of the standard library by nothing but the time it took."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.lean_dataclasses import lean_dataclasses

VALUES = st.one_of(
    st.integers(-2, 2), st.text(max_size=2), st.none(), st.just(math.nan), st.tuples(st.integers(0, 1))
)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True, "kw_only": True},
    {"frozen": True, "order": True},
    {"eq": False},
    {"unsafe_hash": True},
]


def made(options: dict[str, Any], names: tuple[str, ...]) -> type:
    return dataclasses.make_dataclass(
        "Made",
        [(name, Any, dataclasses.field(compare=name != "c", repr=name != "d")) for name in names],
        **options,
    )


def lean(options: dict[str, Any], names: tuple[str, ...]) -> type:
    with lean_dataclasses():
        return made(options, names)


def heard(question: Callable[[], Any]) -> Any:
    """The answer, or the error in its own words."""
    try:
        return question()
    except Exception as error:
        return type(error), str(error)


def answers(kind: type, one: dict[str, Any], two: dict[str, Any]) -> list[Any]:
    a, b = kind(**one), kind(**two)
    named = next(iter(one), "a")

    def assign() -> Any:
        setattr(a, named, 7)
        return repr(a)

    def delete() -> Any:
        delattr(a, named)
        return sorted(name for name in one if hasattr(a, name))

    return [
        repr(a),
        a == b,
        a == copy.copy(a),
        a.__eq__(object()),
        heard(lambda: hash(a) == hash(a)),
        heard(lambda: a < b),
        heard(lambda: a >= b),
        heard(lambda: hash(a)) if "__hash__" in vars(kind) else None,
        heard(assign),
        heard(delete),
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@given(data=st.data())
def test_a_lean_dataclass_answers_as_one_of_the_standard_library(
    options: dict[str, Any], data: st.DataObject
) -> None:
    names = tuple("abcd"[: data.draw(st.integers(0, 4))])
    one = {name: data.draw(VALUES) for name in names}
    two = {name: data.draw(st.one_of(st.just(one[name]), VALUES)) for name in names}
    assert answers(lean(options, names), one, two) == answers(made(options, names), one, two)


def test_a_dataclass_that_holds_itself_can_be_shown() -> None:
    kind = lean({}, ("a",))
    held = kind(a=None)
    held.a = held
    assert repr(held) == "Made(a=...)"


def test_a_lean_dataclass_can_be_pickled_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with lean_dataclasses():
        kind = dataclasses.make_dataclass("Lean", [("a", int)], frozen=True, slots=True)
    kind.__module__ = __name__
    monkeypatch.setattr(sys.modules[__name__], "Lean", kind, raising=False)
    assert pickle.loads(pickle.dumps(kind(1))) == kind(1)
    assert dataclasses.replace(kind(1), a=2) == kind(2)


def test_nothing_stays_changed_afterwards() -> None:
    before = vars(dataclasses).copy()
    with pytest.raises(RuntimeError), lean_dataclasses():
        assert vars(dataclasses) != before
        raise RuntimeError
    assert vars(dataclasses) == before


def test_another_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vars(dataclasses).copy()
    monkeypatch.setattr(sys, "version_info", (3, 12, 0, "final", 0))
    with lean_dataclasses():
        assert vars(dataclasses) == before
