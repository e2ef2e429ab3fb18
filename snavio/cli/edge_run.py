"""`snavio edge run`: a Hookaidofile runs, in the mesh of a context or with all that it needs on this machine.

Never starts anything for a file with mistakes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from snavio.cli.edge_config import HERE, Hookaidofile
from snavio.cli.edge_files import read_file
from snavio.cli.exits import ExitCode
from snavio.cli.options import Context as ContextOption
from snavio.cli.output import aside, line
from snavio.cli.render import one_line
from snavio.errors import BadRequest, StateError

if TYPE_CHECKING:
    from snavio.edge.plan import EdgePlan
    from snavio.launch.edge_process import EdgeLaunch
    from snavio.launch.installation import Installation

MOST_DOTENV: Final = 1 << 20
_DOTENV_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


class LogLevel(StrEnum):
    """The least severity of the log."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    OFF = "off"


def run(
    config: Hookaidofile = HERE,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="<folder>",
            help="Folder of the messages and everything else that is kept, when no context is joined.",
            show_default=False,
        ),
    ] = None,
    pid_file: Annotated[
        Path | None, typer.Option("--pid-file", help="Write this process's id there.", show_default=False)
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Reload when the file changes, as on SIGHUP.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", help="In place of the file's `runtime_log`.", show_default=False),
    ] = None,
    dotenv: Annotated[
        Path | None,
        typer.Option(
            "--dotenv",
            help="Variables for `env:` and `{env.NAME}`; those that are set stay.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
) -> None:
    """Run a Hookaidofile until Ctrl-C; SIGHUP reads it again, all or nothing.

    With `--context`, SNAVIO_CONTEXT or a context in use, the edge joins that mesh as a service of its tenant. Without
    one, or with `--db`, it starts what it needs on this machine: messages then lie in that folder, by default .snavio.

    Exit code 1 for a file with mistakes, 2 for anything else that keeps it from starting, 0 when it was ended.

    \b
    Examples:
      snavio edge run
      snavio edge run --config ./Hookaidofile --watch --dotenv ./.env
      snavio edge run --db /var/lib/edge --pid-file /run/edge.pid
    """
    if dotenv is not None:
        read_dotenv(dotenv)
    plan = compiled_plan(config)
    level = (
        log_level
        or LogLevel(plan.observability.runtime_log.level if plan.observability.runtime_log else "info")
    ).value
    installation = installation_of(db, context)
    if installation.context is not None:
        from snavio.edge.overview import overview

        launch = _joined(installation, plan, config, watch=watch, level=level)
        line(f"edge of {launch.tenant} joins the mesh of the context {installation.context.name}")
        for each in overview(plan):
            line(each)
        _become(launch, pid_file)
    from snavio.cli.edge_all_in_one import AllInOne

    asyncio.run(AllInOne(installation, plan, config, pid_file=pid_file, watch=watch, log_level=level).run())


def read_dotenv(path: Path) -> None:
    """Set the variables of a file, where they are not set; BadRequest names the line that cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_DOTENV + 1).decode("utf-8")
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.", reason="file-unreadable") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is no text.", reason="file-unreadable") from None
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _DOTENV_LINE.fullmatch(stripped)
        if found is None:
            # The line may hold half of a secret: its number is enough.
            raise BadRequest(f"{path}:{number}: no `NAME=value`.", reason="bad-dotenv")
        name, value = found[1], found[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        elif " #" in value:
            value = value.partition(" #")[0].rstrip()
        os.environ.setdefault(name, value)


def compiled_plan(path: Path) -> EdgePlan:
    """The compiled file; ends with exit code 1 when it has mistakes."""
    from snavio.cli.edge_config import read_value
    from snavio.edge.compiling import compile_text
    from snavio.edge.placeholders import Surroundings

    try:
        data = read_file(path)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be read: {error.strerror}. `snavio edge init` writes one to begin with.",
            reason="file-unreadable",
        ) from None
    found = compile_text(data, surroundings=Surroundings(os.environ, read_value))
    for each in found.mistakes:
        aside(one_line(f"{path}:{each}", most=0))
    if found.left_out:
        aside(f"and {found.left_out} more.")
    for each in found.warnings:
        aside(one_line(f"{path}:{each.at}: warning: {str(each).partition(': ')[2]}", most=0))
    if found.plan is None:
        raise typer.Exit(ExitCode.REFUSED)
    return found.plan


def installation_of(db: Path | None, context: str | None) -> Installation:
    """The mesh to join, or the folder to start one on."""
    from snavio.launch.installation import find, of_context
    from snavio.sdk.context import chosen

    if db is not None:
        if context is not None:
            raise BadRequest(
                "--db starts a mesh here, and --context joins another: give one of them.", reason="two-meshes"
            )
        if db.is_file():
            raise StateError(
                f"{db} is a file; --db names the folder in which everything is kept.", reason="not-a-folder"
            )
        return find(state_dir=db, config=None)
    named = chosen(context)
    return find(state_dir=None, config=None) if named is None else of_context(named)


def _joined(
    installation: Installation, plan: EdgePlan, config: Path, *, watch: bool, level: str
) -> EdgeLaunch:
    from snavio.domain.identity import IdentityKind, parse_identity
    from snavio.launch.edge_process import EdgeLaunch
    from snavio.rpc.renewal import Leaf

    context = installation.context
    assert context is not None
    who = parse_identity(Leaf.in_folder(context.identity).spiffe_id, trust_domain=context.trust_domain)
    if who.kind is not IdentityKind.PRINCIPAL:
        raise BadRequest(
            f"The context {context.name} is that of {who}; an edge runs under a principal of its tenant.",
            reason="wrong-context",
        )
    if plan.tenant not in (context.tenant, "edge"):
        raise BadRequest(
            f"{config} is of the tenant {plan.tenant}, and the context {context.name} of {context.tenant}.",
            reason="wrong-tenant",
        )
    return EdgeLaunch(
        config=config.absolute(),
        tenant=context.tenant,
        state=context.home / "edge",
        # Apart from the identity: a principal and a service of one name would lie in one folder.
        certificates=context.home / "edge" / "certs",
        principal=context.identity,
        mesh=installation.mesh,
        watch=watch,
        log_level=level,
    )


def _become(launch: EdgeLaunch, pid_file: Path | None) -> None:
    """Become the edge: same process, same signals."""
    from snavio.extras import require_mesh

    require_mesh()
    write_pid(pid_file)
    # A hang-up between here and its handler must not end it; the file is read after that anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdout.flush()
    words = launch.command() + ([f"--pid-file={pid_file.absolute()}"] if pid_file is not None else [])
    os.execve(sys.executable, words, launch.environment(follow=False))  # noqa: S606


def write_pid(path: Path | None) -> None:
    if path is None:
        return
    try:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(f"{os.getpid()}\n")
        fresh.replace(path)
    except OSError as error:
        raise StateError(
            f"--pid-file {path} cannot be written: {error.strerror}.", reason="pid-file"
        ) from None
