"""Native objects whose calls panic as a test tells them: each raises the class that a panic crosses the seam as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from snavio import _native
from snavio.errors import NativeFault

_WRAPPED = ("Ledger", "Judgement", "Plan", "Arbitration", "Sending")


def panicking(*_given: Any, **_named: Any) -> Any:
    """A panic."""
    raise _class_of_a_panic()("on purpose")


@cache
def _class_of_a_panic() -> type[NativeFault]:
    """As a real one tells; one is enough, since each writes a backtrace."""
    try:
        _native.panic_for_test(False)
    except NativeFault as fault:
        return type(fault)
    raise AssertionError("it did not panic")


@dataclass
class Panics:
    """`names` says which calls panic, such as `Ledger.merge`; `met` counts them."""

    names: set[str] = field(default_factory=set)
    met: int = 0

    def wrap(self, real: Any) -> Any:
        """`real`, or what stands for it."""
        return Double(real, self) if type(real).__name__ in _WRAPPED else real

    def check(self, name: str) -> None:
        if name in self.names:
            self.met += 1
            panicking()

    def function(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the seam."""

        def call(*given: Any, **named: Any) -> Any:
            self.check(name)
            return self.wrap(real(*map(bare, given), **named))

        return call


class Double:
    """Stands for a native object, or for a class with its static methods."""

    def __init__(self, real: Any, panics: Panics, name: str = "") -> None:
        self._real = real
        self._panics = panics
        self._name = name or type(real).__name__

    def __getattr__(self, name: str) -> Any:
        full = f"{self._name}.{name}"
        value = getattr(type(self._real), name, None)
        if callable(value) or callable(getattr(self._real, name)):
            return self._panics.function(full, getattr(self._real, name))
        self._panics.check(full)
        return self._panics.wrap(getattr(self._real, name))


def bare(value: Any) -> Any:
    """The object that a double stands for."""
    return value._real if isinstance(value, Double) else value
