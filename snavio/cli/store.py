"""`snavio store`: whether the stores of an installation are whole, and what can be kept of a damaged one."""

from __future__ import annotations

from collections import Counter

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import console, fancy, line, print_json

store = CommandGroup(
    "Check the stores of an installation, and rescue a damaged one when there is no backup.",
    examples=(
        "snavio store check",
        "snavio store rescue",
    ),
)
MOST_ROWS = 20


@store.command()
def check(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Read every store through: logs, pages, rows, payloads, keys.

    A running mesh goes on meanwhile. Exit code 1 when something is damaged.

    \b
    Examples:
      snavio store check
      snavio store check --json | jq '.stores[] | select(.whole | not)'
    """
    from snavio.launch.installation import find
    from snavio.launch.rescue import check as look

    found = look(find(state_dir=state_dir, config=config).mesh.state_dir)
    if json:
        stores = [
            {
                "store": one.name,
                "file": one.place,
                "whole": not one.faults,
                "faults": one.faults,
                "note": one.unknown,
            }
            for one in found
        ]
        print_json({"stores": stores})
    elif fancy(out := console()):
        from rich.table import Table

        table = Table("store", "file", "state", "found", box=None)
        for one in found:
            state = "[red]damaged[/]" if one.faults else "[green]whole[/]"
            table.add_row(one.name, one.place, state, "; ".join(one.faults) or one.unknown)
        out.print(table)
    else:
        for one in found:
            line(
                "  ".join([one.name, "damaged" if one.faults else "whole", *one.faults, one.unknown]).rstrip()
            )
    if any(one.faults for one in found):
        raise typer.Exit(ExitCode.REFUSED)


@store.command()
def rescue(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Make damaged stores open again, and say exactly what is gone. The mesh is stopped.

    A backup is better: `snavio restore`. The files as they were stay aside, with a report of every row.

    \b
    Examples:
      snavio down; snavio store rescue
      snavio store rescue --json | jq '.stores[].rows'
    """
    from snavio.clock import SystemClock
    from snavio.launch.installation import find
    from snavio.launch.rescue import rescue_all

    done, aside = rescue_all(find(state_dir=state_dir, config=config).state, clock=SystemClock())
    if json:
        stores = [
            {"store": one.name, "steps": one.steps, "rows": [row.told() for row in one.lost]} for one in done
        ]
        print_json({"stores": stores, "aside": str(aside) if done else None})
        return
    if not done:
        line("Every store is whole: nothing was changed.")
        return
    for one in done:
        for step in one.steps:
            line(f"{one.name}  {step}")
        for (table, fate), number in Counter((row.table, row.fate) for row in one.lost).items():
            line(f"  {table}: {number} rows {fate}")
        for row in one.lost[:MOST_ROWS]:
            told = row.told()
            line(f"    {told['fate']}  {told['table']}  {told['key']}")
        if len(one.lost) > MOST_ROWS:
            line(f"    and {len(one.lost) - MOST_ROWS} more")
    line(f"The files as they were, and a report of every row: {aside}")
