"""`snavio logs`: what a service of the mesh on this machine has logged, from the state folder.

Never asks the service: its log is there when it cannot answer any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from snavio.cli.options import Config, StateDir
from snavio.cli.output import line
from snavio.cli.render import one_line
from snavio.errors import BadRequest, StateError

PAUSE_SECONDS = 0.2
BLOCK = 64 << 10
MOST_BYTES = 64 << 20


def logs(
    service: Annotated[
        str,
        typer.Argument(metavar="SERVICE", help="Such as shield; of several instances, shield-2."),
    ],
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="The last so many.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until Ctrl-C.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Show what a service of the mesh on this machine has logged.

    The logs stand in the state folder, also after the mesh was stopped. A mesh on other machines logs there.

    \b
    Examples:
      snavio logs shield
      snavio logs registry -n 200 | grep warning
      snavio logs mailbox --follow
    """
    from snavio.launch.installation import find

    folder = find(state_dir=state_dir, config=config).mesh.state_dir / "logs"
    path = _log(folder, service)
    try:
        with path.open("rb") as file:
            for text in _last(file, lines):
                _print(text)
            while follow:
                text = file.readline()
                if text:
                    _print(text)
                else:
                    time.sleep(PAUSE_SECONDS)
                    _begin_again(file)
    except KeyboardInterrupt:
        return
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}.") from None


def _log(folder: Path, service: str) -> Path:
    """The log of a service; BadRequest with the names that there are. Never a path that was typed."""
    there = sorted(path.stem for path in folder.glob("*.log")) if folder.is_dir() else []
    if service in there:
        return folder / f"{service}.log"
    have = (
        f"there are {', '.join(there)}"
        if there
        else "no mesh has run on it yet. Services log where they run; `--state-dir` names the mesh's folder"
    )
    raise BadRequest(f"{folder} has no log of {service!r}: {have}.", reason="no-log")


def _last(file: BinaryIO, count: int) -> Iterator[bytes]:
    """The last `count` lines, read from the end: a log of gigabytes must not be read for fifty lines."""
    end = file.seek(0, os.SEEK_END)
    start, tail = end, b""
    while start and tail.count(b"\n") <= count and end - start < MOST_BYTES:
        size = min(BLOCK, start)
        start -= size
        file.seek(start)
        tail = file.read(size) + tail
    file.seek(end)
    yield from tail.splitlines()[-count:] if count else ()


def _begin_again(file: BinaryIO) -> None:
    """From the start, when the file was emptied."""
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)


def _print(text: bytes) -> None:
    line(one_line(text.decode(errors="replace"), most=0))
