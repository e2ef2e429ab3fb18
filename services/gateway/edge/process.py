"""The arguments of an edge process, and its life.

Never a secret among the arguments, which every user of the machine can read.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final

import uvloop

from services.gateway.edge.app import EdgeApp
from services.gateway.edge.settings import EdgeSettings
from snavio.clock import SystemClock
from snavio.edge.findings import BadHookaidofile
from snavio.host.process import USAGE_ERROR, follow_parent, serve, start_failure
from snavio.telemetry.logs import configure

BAD_FILE: Final = 1
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    settings = _parsed(arguments)
    configure(service="edge", level=_LEVELS[settings.log_level])
    follow_parent()
    try:
        return int(uvloop.run(serve("edge", lambda: EdgeApp(settings, SystemClock(), dict(os.environ)))))
    except BadHookaidofile as error:
        sys.stderr.write(f"edge: {error}\n")
        return BAD_FILE
    except Exception as error:
        if (said := start_failure(error)) is None:
            raise
        sys.stderr.write(f"edge: {said}\n")
        return USAGE_ERROR
    finally:
        if settings.pid_file is not None:
            settings.pid_file.unlink(missing_ok=True)


def _parsed(arguments: list[str] | None) -> EdgeSettings:
    parser = argparse.ArgumentParser(
        prog="python -m services.gateway.edge", description="Runs the edge of one tenant."
    )
    for name in ("config", "state", "certificates", "principal"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("tenant", "mailbox", "signer", "shield", "registry", "trust-domain"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--pid-file", type=Path, default=None)
    parser.add_argument("--log-level", choices=tuple(_LEVELS), default="info")
    return EdgeSettings(**vars(parser.parse_args(arguments)))
