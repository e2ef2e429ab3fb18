"""`snavio doctor`: looks at everything that can stand in the way, and says what to do about it."""

from __future__ import annotations

import asyncio
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import console, fancy
from snavio.cli.render import show

if TYPE_CHECKING:
    from snavio.launch.health import HealthFinding


def doctor(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Check toolchain, native library, state folder, disk, certificates, ports, services and clock.

    Each line says ok, or what to do. Exit code 1 when something is to do.

    \b
    Examples:
      snavio doctor
      snavio doctor --json | jq '.findings[] | select(.good | not)'
    """
    from snavio.clock import SystemClock
    from snavio.launch.health import examine
    from snavio.launch.installation import find

    installation = find(state_dir=state_dir, config=config)

    async def look() -> list[HealthFinding]:
        findings = []
        async for finding in examine(installation, clock=SystemClock()):
            findings.append(finding)
            if not json:
                _show(finding)
        return findings

    findings = asyncio.run(look())
    good = all(finding.good for finding in findings)
    show({"good": good, "findings": [asdict(finding) for finding in findings]}, json=json)
    if not good:
        raise typer.Exit(ExitCode.REFUSED)


def _show(finding: HealthFinding) -> None:
    out = console()
    mark, style = ("ok", "green") if finding.good else ("!!", "bold red")
    text = finding.found if finding.good else f"{finding.found.rstrip('.')}. {finding.advice}"
    rows = textwrap.wrap(text, max(30, out.width - 20), break_on_hyphens=False) or [""]
    out.print(f"{mark}  ", style=style if fancy(out) else None, end="")
    out.print(f"{finding.name:<15} {rows[0]}", markup=False)
    for row in rows[1:]:
        out.print(f"{'':<19} {row}", markup=False)
