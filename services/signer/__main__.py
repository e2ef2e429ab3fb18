"""The Signer process; `init` prepares a state folder and ends, `join-token` lets one more instance join the mesh."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from snavio.imports import lean_imports

with lean_imports():
    from services.signer.app import SignerApp
    from services.signer.bootstrap import prepare
    from services.signer.settings import SignerSettings
    from snavio.clock import SystemClock
    from snavio.config import load
    from snavio.domain.identity import MESH_SERVICES
    from snavio.host.process import USAGE_ERROR, run, start_failure
    from snavio.telemetry.logs import configure


def init(arguments: list[str]) -> int:
    """Prepare the state folder; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m services.signer init", description="Makes the CA and certificates that are missing."
    )
    parser.add_argument("--config", type=Path, default=None, help="path of snavio.toml")
    parser.add_argument(
        "--restored", action="store_true", help="the state folder came from a backup: readers start again"
    )
    parsed = parser.parse_args(arguments)
    configure(service="signer")
    try:
        mesh, settings = load(SignerSettings, "signer", config=parsed.config)
        made = asyncio.run(prepare(mesh, settings, clock=SystemClock(), restored=parsed.restored))
    except Exception as error:
        if (said := start_failure(error)) is None:
            raise
        sys.stderr.write(f"signer init: {said}\n")
        return USAGE_ERROR
    sys.stdout.write(f"prepared {mesh.state_dir}: {len(made)} certificates made\n")
    return 0


def join_token(arguments: list[str]) -> int:
    """Print or write join tokens, which the Signer that runs here makes; returns the exit code."""
    from services.signer.join_token import make_join_tokens, write_token

    services = sorted(MESH_SERVICES - {"signer"})
    parser = argparse.ArgumentParser(
        prog="python -m services.signer join-token",
        description="Makes tokens with which one new instance of a service each gets its first certificate, once.",
        epilog="The new machine has its token in a file, [mesh] join_token names that file, [mesh] enrolment is "
        "Signer's address for newcomers, and the service joins when it starts.",
    )
    parser.add_argument(
        "services", nargs="+", choices=services, metavar="SERVICE", help=f"of {', '.join(services)}"
    )
    parser.add_argument("--config", type=Path, default=None, help="path of snavio.toml")
    parser.add_argument("--ttl-s", type=int, default=3600, help="seconds until they end (default: 3600)")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="write <folder>/<service>.token instead of printing; none is replaced",
    )
    parsed = parser.parse_args(arguments)
    configure(service="signer")
    try:
        mesh, _ = load(SignerSettings, "signer", config=parsed.config)
        wanted = [
            name
            for name in parsed.services
            if parsed.out is None or not (parsed.out / f"{name}.token").exists()
        ]
        tokens = asyncio.run(make_join_tokens(mesh, wanted, ttl_s=parsed.ttl_s))
        for name, token in zip(wanted, tokens, strict=True):
            if parsed.out is None:
                sys.stdout.write(f"{token}\n")
            else:
                write_token(parsed.out / f"{name}.token", token)
    except Exception as error:
        if (said := start_failure(error)) is None:
            raise
        sys.stderr.write(f"signer join-token: {said}\n")
        return USAGE_ERROR
    return 0


COMMANDS = {"init": init, "join-token": join_token}

if __name__ == "__main__":
    words = sys.argv[1:]
    command = COMMANDS.get(words[0]) if words else None
    sys.exit(command(words[1:]) if command is not None else run("signer", SignerSettings, SignerApp, words))
