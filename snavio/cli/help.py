"""Draws `--help`: prose that fills the terminal, examples as they are typed, options and commands in panels.

Never imports rich or the module of a command: `snavio --help` is what a newcomer waits for first.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

WIDEST: Final = 120
_BOLD, _CYAN, _DIM, _END = "\033[1m", "\033[1;36m", "\033[2m", "\033[0m"
_RANGES: Final = ((r"(\S+)<=x<=([^;\]]+)", r"\1 to \2"), (r"x>=([^;\]]+)", r"at least \1"))

Row = tuple[str, str]


def print_help(command: Any, ctx: Any) -> None:
    """Write the help page of a command or a group to standard output."""
    width = min(WIDEST, shutil.get_terminal_size().columns)
    lines = "\n".join(_page(command, ctx, width, _Style(coloured=_coloured())))
    sys.stdout.write(lines + "\n")
    sys.stdout.flush()


def flowing(text: str) -> list[str]:
    """The paragraphs of a help text: prose as one line each, examples (after `\\b`) with their own lines."""
    paragraphs = inspect.cleandoc(text).partition("\f")[0].split("\n\n")
    return [
        each.removeprefix("\b\n") if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs
    ]


def summary(text: str) -> str:
    """The first paragraph of a help text, as one line."""
    return flowing(text)[0]


class _Style:
    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_END}" if self._coloured and text else text


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _page(command: Any, ctx: Any, width: int, style: _Style) -> Iterator[str]:
    usage = command.get_usage(ctx).removeprefix("Usage: ")
    yield ""
    yield f" {style(_BOLD, 'Usage:')} {style(_BOLD, usage)}"
    yield ""
    for place, paragraph in enumerate(flowing(command.help or "")):
        for line in _wrapped(paragraph, width - 2):
            yield f" {line if place == 0 else style(_DIM, line)}"
        yield ""
    arguments, options = _parameters(command, ctx)
    panels = [("Arguments", arguments), ("Options", options), *_commands(command, ctx)]
    for title, rows in panels:
        if rows:
            # Commands of one page share a column, so that their panels read as one list.
            names = [name for _, some in panels[2:] for name, _ in some] if title not in _OWN else ()
            yield from _panel(title, rows, width, style, names=names)
    if command.epilog:
        yield ""
        for line in _wrapped(command.epilog, width - 2):
            yield f" {line}"


_OWN: Final = ("Arguments", "Options")


def _wrapped(paragraph: str, width: int) -> list[str]:
    """Prose at this width; what has lines of its own keeps them, for they are typed as they stand."""
    if "\n" in paragraph:
        return paragraph.split("\n")
    return textwrap.wrap(paragraph, width, break_on_hyphens=False, break_long_words=False)


def _parameters(command: Any, ctx: Any) -> tuple[list[Row], list[Row]]:
    found: dict[str, list[Row]] = {"argument": [], "option": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        names, text = record
        for form, words in _RANGES:
            text = re.sub(rf"(?<=\[|\s){form}(?=[;\]])", words, text)
        if param.param_type_name == "argument":
            # Its name says what it is; that it is a text says nothing.
            names = names.partition(" <")[0]
        for alias in [name for name in param.opts if name.startswith("--")][1:]:
            names = names.replace(f", {alias}", "")
        names = re.sub(r"<list\[(\w+)\]>", r"<\1>...", names)
        found[param.param_type_name].append((names.replace(" range>", ">").rstrip(), _one_space(text)))
    return found["argument"], found["option"]


def _commands(command: Any, ctx: Any) -> list[tuple[str, list[Row]]]:
    panels: dict[str, list[Row]] = {}
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        below = command.get_command(ctx, name)
        if below is not None and not below.hidden:
            panel = getattr(below, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, summary(below.short_help or below.help or "")))
    return list(panels.items())


def _panel(
    title: str, rows: Sequence[Row], width: int, style: _Style, *, names: Iterable[str]
) -> Iterator[str]:
    # Long option names stand on a line of their own rather than push all explanations to the edge.
    most = max(12, (width - 6) * 2 // 5)
    column = min(most, max(len(name) for name in (*names, *(name for name, _ in rows))))
    inner = width - 4
    yield style(_DIM, f"╭─ {title} {'─' * (width - len(title) - 5)}╮")
    side = style(_DIM, "│")
    for name, explained in rows:
        lines = textwrap.wrap(explained, inner - column - 2, break_on_hyphens=False) or [""]
        labels = [name, *[""] * len(lines)]
        if len(name) > column:
            yield f"{side} {style(_CYAN, name)}{' ' * (inner - len(name))} {side}"
            labels[0] = ""
        for label, line in zip(labels, lines, strict=False):
            text = f"{' ' * (column - len(label))}  {line.ljust(inner - column - 2)}"
            yield f"{side} {style(_CYAN, label)}{text} {side}"
    yield style(_DIM, f"╰{'─' * (width - 2)}╯")


def _one_space(text: str) -> str:
    return " ".join(text.split())
