"""Groups of commands: each command is loaded when it is called, and has help, suggestions and quiet pipes.

Never loads a command to list it: its name and its one line stand in a table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from snavio.cli.help import print_help
from snavio.cli.option_groups import grouped


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One row of a table of commands."""

    name: str
    place: str
    """`module:attribute` under `snavio.cli`: a function, or a `CommandGroup`."""
    summary: str
    """Its first line of help, which a test compares with the command itself."""
    panel: str | None = None
    logs: bool = True
    """The command runs code that logs, so the library's log has to be kept off the terminal."""


class Helpful:
    """Our help page, for commands and groups; typer prints its own in the same places."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the page."""
        print_help(self, ctx)

    def get_usage(self, ctx: Any) -> str:
        """The line of usage, with arguments as the documentation names them."""
        usage: str = super().get_usage(ctx)  # type: ignore[misc]
        return usage.replace("{", "").replace("}", "")

    def get_params(self, ctx: Any) -> Any:
        """Arguments and options, with names that say what they take."""
        return _named(super().get_params(ctx))  # type: ignore[misc]


class HelpfulCommand(Helpful, TyperCommand):
    """A command with our help page."""

    logs = True

    def invoke(self, ctx: Any) -> Any:
        """Run it, with the library's log kept off the terminal."""
        if self.logs:
            from snavio.cli.output import quiet_logs

            quiet_logs()
        return super().invoke(ctx)


class HelpfulGroup(Helpful, TyperGroup):
    """A group with our help page, which ends quietly when the reader of its output has gone."""

    entries: Sequence[CommandEntry] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in self.entries:
            self.commands[entry.name] = LazyCommand(entry)

    def make_context(self, *words: Any, **more: Any) -> Any:
        """As typer does; here `--help` is written."""
        with quiet_pipe():
            return super().make_context(*words, **more)

    def invoke(self, ctx: Any) -> Any:
        """As typer does; here a command writes."""
        with quiet_pipe():
            return super().invoke(ctx)


class LazyCommand(TyperCommand):
    """A command or group by name and summary; the module behind it is imported when it is called."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, short_help=entry.summary, rich_help_panel=entry.panel)
        self.entry = entry
        self._loaded: Any = None

    def load(self) -> Any:
        """The command itself."""
        if self._loaded is None:
            module, _, attribute = self.entry.place.partition(":")
            found = getattr(import_module(f"snavio.cli.{module}"), attribute)
            if not isinstance(found, typer.Typer):
                function, found = found, CommandGroup()
                found.command(self.entry.name)(function)
            self._loaded = typer.main.get_command(found)
            self._loaded.name = self.entry.name
            self._loaded.logs = self.entry.logs
        return self._loaded

    @property
    def commands(self) -> Any:
        """The commands of a group; AttributeError when it is a command."""
        return self.load().commands

    def make_context(self, *words: Any, **more: Any) -> Any:
        """A context of the command itself: what typer runs, and completes, is that one."""
        return self.load().make_context(*words, **more)


class CommandGroup(typer.Typer):
    """A typer application in our manner; a parameter of a command may be a group of options."""

    def __init__(self, about: str = "", *, examples: Sequence[str] = (), **settings: Any) -> None:
        shown = "\n".join(f"  {example}" for example in examples)
        settings = {"cls": HelpfulGroup, "add_completion": False, **settings}
        super().__init__(
            help=f"{about}\n\n\b\nExamples:\n{shown}" if about else None,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a command under `name`, by default the function's."""
        register = super().command(name, cls=HelpfulCommand, **settings)

        def decorate(function: Any) -> Any:
            register(grouped(function))
            return function

        return decorate


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End well when the reader, such as `head`, has seen enough: typer would call that a failure."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        # Rich, where it is rich that writes, has made a failure of it already.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # Python flushes once more at exit, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def _named(params: list[Any]) -> list[Any]:
    """Arguments called as the documentation calls them, and flags that take nothing."""
    for param in params:
        if param.param_type_name == "argument":
            param.metavar = param.metavar or str(param.name).upper()
        elif param.is_flag:
            param.metavar = ""
            # Typer imports pydantic to convert a flag that is None, as its own are: a fifth of a second.
            param.default = param.default or False
    return params
