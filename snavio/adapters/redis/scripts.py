"""The Lua scripts that Redis runs: files beside this one.

Never composed of values from outside: those are arguments.
"""

from __future__ import annotations

from importlib import resources


def script(*names: str) -> str:
    """The scripts of these names, one after the other."""
    folder = resources.files(__package__)
    return "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in names)
