"""Standard output of commands: rich on a wide enough terminal, plain lines everywhere else.

Never writes anything but JSON to stdout under `--json`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

NARROW_COLUMNS: Final = 72


def quiet_logs() -> None:
    """Keep the library's log off the terminal, and off stdout always; SNAVIO_DEBUG=1 shows it on stderr."""
    import structlog

    level = "debug" if os.environ.get("SNAVIO_DEBUG") else "critical"
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            # The default would print the locals of every frame, and among them are secrets.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def console() -> Console:
    """Standard output as rich sees it; never highlights by guessing."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def fancy(out: Console) -> bool:
    """True when tables and a live screen can be read: a terminal, with colour allowed, and wide enough."""
    return out.is_terminal and not os.environ.get("NO_COLOR") and out.width >= NARROW_COLUMNS


def print_json(document: Any) -> None:
    """One JSON document on one line."""
    import orjson

    sys.stdout.write(orjson.dumps(document, default=str).decode() + "\n")
    sys.stdout.flush()


def line(text: str = "") -> None:
    """One plain line, seen at once even through a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def aside(text: str) -> None:
    """One plain line beside the answer, on standard error."""
    sys.stderr.write(text + "\n")


def program() -> str:
    """The name of this program as typed from here, for suggested commands."""
    here = Path(sys.argv[0])
    found = shutil.which("snavio")
    if here.name != "snavio" or (found is not None and Path(found).resolve() == here.resolve()):
        return "snavio" if found or here.name == "snavio" else f"{Path(sys.executable).name} -m snavio.cli"
    try:
        return str(here.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(here)


def count(number: float) -> str:
    """12,345 · 0.4 · 7: as many digits as help."""
    return f"{number:,.1f}" if 0 < number < 10 and number != int(number) else f"{number:,.0f}"


def short(number: int) -> str:
    """12,345 · 1.23 M · 68.7 G: at most seven characters, for tables that must fit."""
    if number < 1_000_000:
        return f"{number:,}"
    size, unit = next(
        (size, unit)
        for size, unit in ((1e6, "M"), (1e9, "G"), (1e12, "T"))
        if number < 999.5 * size or unit == "T"
    )
    return f"{number / size:.3g} {unit}"


def micros(us: int) -> str:
    """A duration of microseconds in the unit that reads best."""
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1000:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


def ago(seconds: float) -> str:
    """A longer duration, in at most two units."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def megabytes(size: int) -> str:
    """A size in MB."""
    return f"{size / 1e6:.0f} MB"
