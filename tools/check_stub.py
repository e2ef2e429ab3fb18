"""Holds `snavio/_native.pyi` and the built library to the same names and parameters; lists where they part.

Never trusts either side: what only one of them knows is a fault.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# One parameter as both sides can tell it: its name, how it is passed, and whether it may be left out.
Parameter = tuple[str, str, bool]
# `None` for what has no parameters to compare: constants and properties.
Surface = dict[str, tuple[str, tuple[Parameter, ...] | None]]

_PASSED = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either way",
    inspect.Parameter.KEYWORD_ONLY: "by keyword",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def declared(stub: str) -> Surface:
    """Names and signatures that the stub declares."""
    surface: Surface = {}
    for node in ast.parse(stub).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                surface[name] = ("constant", None)
            case ast.FunctionDef(name=name):
                surface[name] = ("function", _declared_parameters(node, skip_self=False))
            case ast.ClassDef(name=name):
                surface[name] = ("class", None)
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        surface[f"{name}.{member.name}"] = _declared_member(member)
    return surface


def _declared_member(member: ast.FunctionDef) -> tuple[str, tuple[Parameter, ...] | None]:
    decorators = {decorator.id for decorator in member.decorator_list if isinstance(decorator, ast.Name)}
    if "property" in decorators:
        return "property", None
    static = "staticmethod" in decorators
    return "static method" if static else "method", _declared_parameters(member, skip_self=not static)


def _declared_parameters(function: ast.FunctionDef, *, skip_self: bool) -> tuple[Parameter, ...]:
    named = function.args
    plain = [(arg.arg, "positional") for arg in named.posonlyargs] + [
        (arg.arg, "either way") for arg in named.args
    ]
    required = len(plain) - len(named.defaults)
    parameters = [(name, passed, position >= required) for position, (name, passed) in enumerate(plain)]
    if skip_self:
        parameters = parameters[1:]
    parameters += [
        (arg.arg, "by keyword", default is not None)
        for arg, default in zip(named.kwonlyargs, named.kw_defaults, strict=True)
    ]
    return tuple(parameters)


def built(module: ModuleType) -> Surface:
    """Names and signatures that the library has."""
    surface: Surface = {}
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value):
            surface[name] = ("class", None)
            surface |= {f"{name}.{member}": found for member, found in _built_members(value).items()}
        elif callable(value):
            surface[name] = ("function", _built_parameters(value, skip_self=False))
        else:
            surface[name] = ("constant", None)
    return surface


def _built_members(owner: type) -> Surface:
    members: Surface = {}
    if "__new__" in vars(owner):
        members["__init__"] = ("method", _built_parameters(owner, skip_self=False))
    for name, value in vars(owner).items():
        # What every object has needs no word in a stub; of the rest, single underscores are private.
        if (
            name in dir(object)
            or name == "__module__"
            or (name.startswith("_") and not name.startswith("__"))
        ):
            continue
        if inspect.isdatadescriptor(value):
            members[name] = ("property", None)
        elif isinstance(value, staticmethod):
            members[name] = ("static method", _built_parameters(value.__func__, skip_self=False))
        else:
            members[name] = ("method", _built_parameters(value, skip_self=True))
    return members


def _built_parameters(function: Any, *, skip_self: bool) -> tuple[Parameter, ...] | None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None
    parameters = [
        (parameter.name, _PASSED[parameter.kind], parameter.default is not inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return tuple(parameters[1:] if skip_self else parameters)


def differences(stub: Surface, library: Surface) -> list[str]:
    """One line per name on which the two do not agree."""
    faults = [f"{name}: in the stub, not in the library" for name in stub.keys() - library.keys()]
    faults += [f"{name}: in the library, not in the stub" for name in library.keys() - stub.keys()]
    for name in stub.keys() & library.keys():
        (said, expected), (kind, parameters) = stub[name], library[name]
        if said != kind:
            faults.append(f"{name}: a {said} in the stub, a {kind} in the library")
        elif expected is not None and parameters is None:
            faults.append(f"{name}: the library gives no text signature")
        elif expected != parameters:
            faults.append(f"{name}: {_shown(expected)} in the stub, {_shown(parameters)} in the library")
    return sorted(faults)


def _shown(parameters: tuple[Parameter, ...] | None) -> str:
    words = (
        f"{name} {passed}{' with default' if optional else ''}" for name, passed, optional in parameters or ()
    )
    return f"({', '.join(words)})"


def main() -> None:
    """Exit with a list when the stub and the library differ."""
    sys.path.insert(0, str(ROOT))
    stub = declared((ROOT / "snavio" / "_native.pyi").read_text())
    faults = differences(stub, built(importlib.import_module("snavio._native")))
    if faults:
        sys.exit("\n".join(["snavio/_native.pyi and the library differ:", *faults]))


if __name__ == "__main__":
    main()
