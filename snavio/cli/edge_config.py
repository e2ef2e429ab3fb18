"""`snavio edge config`: a Hookaidofile is formatted, checked, and compared with another one.

Never writes a file that it could not read whole, and never prints a credential or an expanded value.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from snavio.cli.edge_files import read_file, replace_file
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.output import aside
from snavio.cli.render import one_line, show
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.edge.compiling import Compilation
    from snavio.edge.findings import Finding
    from snavio.edge.tree import DirectiveBlock

MOST_FILE: Final = 65_536
"""Bytes of a file that `{file.PATH}` brings in."""


class OutputFormat(StrEnum):
    """The form of the result."""

    TEXT = "text"
    JSON = "json"


Hookaidofile = Annotated[
    Path,
    typer.Option("--config", "-c", help="The Hookaidofile."),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="How the result is printed.")]
HERE: Final = Path("Hookaidofile")

config: Final = CommandGroup(
    "Format, check and compare Hookaidofiles; docs/hookaidofile.md has every directive.",
    examples=(
        "snavio edge config validate --config ./Hookaidofile --format json",
        "snavio edge config fmt --write",
        "snavio edge config diff Hookaidofile.old Hookaidofile",
    ),
)


@config.command()
def fmt(
    config: Hookaidofile = HERE,
    write: Annotated[
        bool, typer.Option("--write", "-w", help="Write the file in place of printing it.")
    ] = False,
) -> None:
    """Print a Hookaidofile in its one form: two spaces, one directive per line, every comment kept.

    Formatting changes no value and no quote, and a formatted file formats to itself. A file with mistakes of form
    is left alone, with exit code 1.

    \b
    Examples:
      snavio edge config fmt > Hookaidofile.new
      snavio edge config fmt --config ./Hookaidofile --write
    """
    from snavio.edge.formatting import formatted

    data = read_file(config)
    text = formatted(_tree(config, data))
    if not write:
        typer.echo(text, nl=False)
    elif text.encode() != data:
        replace_file(config, text)


@config.command()
def validate(
    config: Hookaidofile = HERE,
    output: Format = OutputFormat.TEXT,
    untrusted: Annotated[
        bool,
        typer.Option(
            "--untrusted",
            help="Expand no placeholder: for a file of somebody else, or without its environment.",
        ),
    ] = False,
) -> None:
    """Check a Hookaidofile: every mistake at once, with its line, its column, and what was probably meant.

    Exit code 0 when it can be used, 1 when it has mistakes.

    Placeholders such as `{env.NAME}` are expanded from this
    environment; secrets behind `env:`, `file:` and `vault:` are not read. Parts that this version does not carry
    out are checked like all others, and named at the end.

    \b
    Examples:
      snavio edge config validate
      snavio edge config validate --config ./Hookaidofile --format json
      snavio edge config validate --untrusted
    """
    from snavio.edge.compiling import compile_text
    from snavio.edge.placeholders import Surroundings, TextTrust

    found = compile_text(
        read_file(config),
        surroundings=Surroundings(os.environ, read_value),
        trust=TextTrust.CANDIDATE if untrusted else TextTrust.TRUSTED,
    )
    if output is OutputFormat.JSON:
        show(_document(found), json=True)
    else:
        show(None, *_lines(config, found), json=False)
    if not found.ok:
        raise typer.Exit(ExitCode.REFUSED)


@config.command()
def diff(
    before: Annotated[Path, typer.Argument(help="The file as it was.")],
    after: Annotated[Path, typer.Argument(help="The file as it is to be.")],
    output: Format = OutputFormat.TEXT,
) -> None:
    """Compare two Hookaidofiles by route and directive, and say which changes a reload brings into force.

    Layout, comments and short forms are no difference. `[live]` is in force after a reload, `[restart]` after a
    restart. Credentials are named and not shown. Exit code 0 when nothing differs, 1 when something does, 2 when a
    file has mistakes.

    \b
    Examples:
      snavio edge config diff Hookaidofile.old Hookaidofile
      snavio edge config diff /etc/edge/Hookaidofile ./Hookaidofile --format json
    """
    from snavio.edge.diffing import differences
    from snavio.edge.findings import BadHookaidofile, FindingLog
    from snavio.edge.parsing import parse

    trees = []
    for path in (before, after):
        findings = FindingLog()
        try:
            tree = parse(read_file(path), findings)
        except OSError as error:
            raise BadRequest(f"{path} cannot be read: {error.strerror}.", reason="file-unreadable") from None
        if tree is None or findings.mistakes:
            raise BadHookaidofile(findings.mistakes, name=str(path), left_out=findings.left_out)
        trees.append(tree)
    changes = differences(*trees)
    rows = [
        {
            "change": each.kind.value,
            "path": list(each.path),
            "before": each.before or None,
            "after": each.after or None,
            "reload": each.reload.value,
            "line": each.at.line,
        }
        for each in changes
    ]
    said = [one_line(str(each), most=0) for each in changes] or ["Nothing differs."]
    show({"changes": rows}, *said, json=output is OutputFormat.JSON)
    if changes:
        raise typer.Exit(ExitCode.REFUSED)


def _tree(path: Path, data: bytes) -> DirectiveBlock:
    """The tree of a file without mistakes of form; ends with exit code 1 otherwise."""
    from snavio.edge.findings import FindingLog
    from snavio.edge.parsing import parse

    findings = FindingLog()
    tree = parse(data, findings)
    if tree is None or findings.mistakes:
        for each in findings.mistakes:
            aside(one_line(f"{path}:{each}", most=0))
        raise typer.Exit(ExitCode.REFUSED)
    return tree


def _document(found: Compilation) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "errors": [each.document() for each in found.mistakes],
        "warnings": [each.document() for each in found.warnings],
        "left_out": found.left_out,
        "routes": len(found.plan.routes) if found.plan else None,
        "fingerprint": found.plan.fingerprint if found.plan else None,
        "not_running": [
            {"part": each.part.value, "directives": each.directives, "line": each.first_line}
            for each in found.dormant
        ],
    }


def _lines(path: Path, found: Compilation) -> list[str]:
    def said(kind: str, one: Finding) -> str:
        return one_line(f"{path}:{one.at}: {kind}{str(one).partition(': ')[2]}", most=0)

    count = len(found.mistakes) + found.left_out
    mistakes = "1 mistake" if count == 1 else f"{count} mistakes"
    ending = f"{path} can be used." if found.ok else f"{path} has {mistakes}."
    if found.plan is not None:
        number = len(found.plan.routes)
        ending = f"{path} can be used: {number} {'route' if number == 1 else 'routes'}."
    parts = [f"{each.part.value} (from line {each.first_line})" for each in found.dormant]
    return [
        *(said("", each) for each in found.mistakes),
        *(said("warning: ", each) for each in found.warnings),
        *([f"and {found.left_out} more."] if found.left_out else []),
        ending,
        *([f"Checked, and not carried out by this version: {', '.join(parts)}."] if parts else []),
    ]


def read_value(path: str) -> str:
    """The text of a small regular file; a pipe or a device would never end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError
        data = file.read(MOST_FILE + 1)
    if len(data) > MOST_FILE:
        raise ValueError
    return data.decode()
