"""How `--help` looks: text that fills the terminal, examples as they are typed, and options that say what they take.

Never takes a square bracket for markup: an example is shown as it is to be typed.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.markup import escape
from typer import Exit
from typer.core import TyperGroup


class Taught(TyperGroup):
    """A group whose commands, and itself, can be read at any width, and by whoever stops reading early."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        """As typer does; here `--help` is written."""
        _teach(self)
        with quiet_pipe():
            return super().make_context(*words, **more)

    def invoke(self, ctx: Any) -> Any:
        """As typer does; here a command writes."""
        with quiet_pipe():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, readable."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            _teach(found)
            # The option is made when it is first asked for, and kept.
            _name_what_is_taken([*found.params, found.get_help_option(ctx)])
        return found

    def get_params(self, ctx: Any) -> Any:
        """The options of the group itself."""
        params = super().get_params(ctx)
        _name_what_is_taken(params)
        return params


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End well when whoever read us, such as `head`, has seen enough: typer would call that a failure."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        # Rich, where it is rich that writes, has made a failure of it already.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # Python flushes once more at exit, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(0) from None


def _teach(command: Any) -> None:
    if command.help and not getattr(command, "taught", False):
        command.help = escape(flowing(command.help))
        command.taught = True


def flowing(text: str) -> str:
    """`text` with its paragraphs as one line each, for the terminal to wrap; examples keep their lines."""
    first, *rest = inspect.cleandoc(text).partition("\f")[0].split("\n\n")
    paragraphs = [each.removeprefix("\b\n") if each.startswith("\b") else _joined(each) for each in rest]
    if rest and rest[0].startswith("\b"):
        # Typer strips the indent of what follows the first line behind the summary; this one is empty, and not shown.
        paragraphs[0] = "\n" + paragraphs[0]
    return "\n\n".join([_joined(first), *paragraphs])


def _joined(paragraph: str) -> str:
    return paragraph.replace("\n", " ")


def _name_what_is_taken(params: list[Any]) -> None:
    """Flags take nothing, so nothing stands behind them; arguments are called as the documentation calls them."""
    for param in params:
        if param is None or param.metavar is not None:
            continue
        if param.param_type_name == "argument":
            if param.nargs == 1:
                param.metavar = str(param.name).upper()
        elif param.is_flag:
            param.metavar = ""
