"""Every command of `snavio`, with the words that `--help` says about them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from snavio.cli.access import access
from snavio.cli.acl import acl
from snavio.cli.archive import archive
from snavio.cli.backup import backup, restore
from snavio.cli.bans import bans
from snavio.cli.bench import bench
from snavio.cli.caps import caps
from snavio.cli.certs import certs
from snavio.cli.config import config_app
from snavio.cli.demo import demo
from snavio.cli.doctor import doctor
from snavio.cli.enroll import enroll
from snavio.cli.exits import MEANINGS
from snavio.cli.explain import explain
from snavio.cli.freeze import freeze, unfreeze
from snavio.cli.help import Taught
from snavio.cli.keys import keys
from snavio.cli.meter import meter
from snavio.cli.queue import queue
from snavio.cli.recv import recv
from snavio.cli.register import register, try_
from snavio.cli.send import send
from snavio.cli.serve import serve, version
from snavio.cli.snapshot import snapshot
from snavio.cli.spark import spark
from snavio.cli.status import status
from snavio.cli.store import store
from snavio.cli.up import down, up

EPILOG: Final = (
    "Exit codes: "
    + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items())
    + ". SNAVIO_DEBUG=1 shows tracebacks."
)

app: Final = typer.Typer(
    name="snavio",
    cls=Taught,
    help="Run a command-delivery mesh, send commands through it, and see what becomes of them.\n\n"
    "\b\nExamples:\n  snavio up                                              in one terminal\n"
    "  snavio send discord-bot notify-user --payload hello    in another\n"
    "  snavio recv discord-bot",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _about(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show what is installed, and exit.", callback=_tell_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


RUN, USE, LOOK = "Run a mesh", "Use it", "Look at it"
app.command(rich_help_panel=RUN)(up)
app.command(rich_help_panel=RUN)(down)
app.command(rich_help_panel=RUN)(demo)
app.command(rich_help_panel=RUN)(serve)
app.command(rich_help_panel=RUN)(backup)
app.command(rich_help_panel=RUN)(restore)
app.add_typer(store, name="store", cls=Taught, rich_help_panel=RUN)
app.command(rich_help_panel=USE)(send)
app.command(rich_help_panel=USE)(recv)
app.command(rich_help_panel=USE)(register)
app.command("try", rich_help_panel=USE)(try_)
app.add_typer(acl, name="acl", cls=Taught, rich_help_panel=USE)
app.add_typer(access, name="access", cls=Taught, rich_help_panel=USE)
app.command(rich_help_panel=USE)(enroll)
app.add_typer(keys, name="keys", cls=Taught, rich_help_panel=USE)
app.add_typer(certs, name="certs", cls=Taught, rich_help_panel=USE)
app.add_typer(caps, name="caps", cls=Taught, rich_help_panel=USE)
app.command(rich_help_panel=USE)(freeze)
app.command(rich_help_panel=USE)(unfreeze)
app.command(rich_help_panel=LOOK)(status)
app.command(rich_help_panel=LOOK)(explain)
app.add_typer(bans, name="bans", cls=Taught, rich_help_panel=LOOK)
app.add_typer(queue, name="queue", cls=Taught, rich_help_panel=LOOK)
app.add_typer(snapshot, name="snapshot", cls=Taught, rich_help_panel=LOOK)
app.add_typer(archive, name="archive", cls=Taught, rich_help_panel=LOOK)
app.add_typer(meter, name="meter", cls=Taught, rich_help_panel=LOOK)
app.add_typer(spark, name="spark", cls=Taught, rich_help_panel=LOOK)
app.command(rich_help_panel=LOOK)(bench)
app.add_typer(config_app, cls=Taught, rich_help_panel=LOOK)
app.command(rich_help_panel=LOOK)(doctor)
app.command(rich_help_panel=LOOK)(version)
