"""`snavio store`: whether the stores of an installation are whole, and what can be kept of a damaged one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.installation import InstallationOptions
from snavio.cli.render import Table, TableColumn

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.launch.rescue import RescuedStore

store = CommandGroup(
    "Check the stores of an installation, and rescue a damaged one when there is no backup.",
    examples=(
        "snavio store check",
        "snavio store rescue",
    ),
)
MOST_ROWS = 20


@store.command()
def check(here: InstallationOptions) -> None:
    """Read every store through: logs, pages, rows, payloads, keys.

    A running mesh goes on meanwhile. Exit code 1 when something is damaged.

    \b
    Examples:
      snavio store check
      snavio store check --json | jq '.stores[] | select(.whole | not)'
    """
    from snavio.launch.rescue import check as look

    found = look(here.find().mesh.state_dir)
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
    columns = (
        "store",
        "file",
        TableColumn("state", lambda row: "whole" if row["whole"] else "damaged"),
        TableColumn("found", lambda row: "; ".join(row["faults"]) or row["note"]),
    )
    table = Table(columns, stores, style=lambda row: "" if row["whole"] else "red")
    here.show({"stores": stores}, table)
    if any(one.faults for one in found):
        raise typer.Exit(ExitCode.REFUSED)


@store.command()
def rescue(here: InstallationOptions) -> None:
    """Make damaged stores open again, and say exactly what is gone. The mesh is stopped.

    A backup is better: `snavio restore`. The files as they were stay aside, with a report of every row.

    \b
    Examples:
      snavio down; snavio store rescue
      snavio store rescue --json | jq '.stores[].rows'
    """
    from snavio.clock import SystemClock
    from snavio.launch.rescue import rescue_all

    done, aside = rescue_all(here.find().state, clock=SystemClock())
    stores = [
        {"store": one.name, "steps": one.steps, "rows": [row.told() for row in one.lost]} for one in done
    ]
    here.show({"stores": stores, "aside": str(aside) if done else None}, *_rescued(done, aside))


def _rescued(done: Sequence[RescuedStore], aside: Path) -> Iterator[str]:
    if not done:
        yield "Every store is whole: nothing was changed."
        return
    for one in done:
        yield from (f"{one.name}  {step}" for step in one.steps)
        for (table, fate), number in Counter((row.table, row.fate) for row in one.lost).items():
            yield f"  {table}: {number} rows {fate}"
        for told in (row.told() for row in one.lost[:MOST_ROWS]):
            yield f"    {told['fate']}  {told['table']}  {told['key']}"
        if len(one.lost) > MOST_ROWS:
            yield f"    and {len(one.lost) - MOST_ROWS} more"
    yield f"The files as they were, and a report of every row: {aside}"
