"""`snavio doctor`: looks at everything that can stand in the way, and says what to do about it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.installation import InstallationOptions
from snavio.cli.render import Row, Table, TableColumn


def doctor(here: InstallationOptions) -> None:
    """Check toolchain, native library, state folder, disk, certificates, ports, services and clock.

    Each line says ok, or what to do. Exit code 1 when something is to do.

    \b
    Examples:
      snavio doctor
      snavio doctor --json | jq '.findings[] | select(.good | not)'
    """
    from snavio.clock import SystemClock
    from snavio.launch.health import examine

    async def look() -> list[dict[str, Any]]:
        return [asdict(finding) async for finding in examine(here.find(), clock=SystemClock())]

    findings = asyncio.run(look())
    good = all(finding["good"] for finding in findings)
    here.show(
        {"good": good, "findings": findings},
        Table(
            (
                TableColumn("", lambda row: "ok" if row["good"] else "!!"),
                "name",
                TableColumn("found", _found),
            ),
            findings,
            style=lambda row: "" if row["good"] else "bold red",
        ),
    )
    if not good:
        raise typer.Exit(ExitCode.REFUSED)


def _found(finding: Row) -> str:
    found: str = finding["found"]
    return found if finding["good"] else f"{found.rstrip('.')}. {finding['advice']}"
