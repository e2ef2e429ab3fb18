"""Shared bounds for people: which tenant uses how much of its share.

Never computes: what is shown was read.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from snavio.cli.output import short
from snavio.launch.share_readings import Holding, ShareReading

MOST_HOLDINGS = 30
NEARLY_FULL = 0.8


def shares_view(reading: ShareReading) -> RenderableType:
    """The tenants that are next to their share, and every bound as a whole."""
    return Group(_holdings(reading), Text(), _bounds(reading))


def share_lines(reading: ShareReading) -> list[str]:
    """The same as plain lines."""
    lines = [
        f"{_name(each)} {each.service} {each.bound} {each.used} of {each.share}"
        for each in reading.holdings[:MOST_HOLDINGS]
    ] or [_nothing(reading)]
    lines += [
        f"all {each.service} {each.bound} {each.used} of {each.total}, refused {each.refused}"
        for each in reading.bounds
    ]
    return lines


def _nothing(reading: ShareReading) -> str:
    return f"{reading.tenant or 'No tenant'} holds nothing of any bound."


def _holdings(reading: ShareReading) -> RenderableType:
    holdings = reading.holdings
    if not holdings:
        return Text(_nothing(reading))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("tenant", "service", "bound"):
        table.add_column(name)
    for name in ("used", "share", "part"):
        table.add_column(name, justify="right")
    for each in holdings[:MOST_HOLDINGS]:
        style = "red" if each.part >= 1 else "yellow" if each.part >= NEARLY_FULL else ""
        table.add_row(
            _name(each),
            each.service,
            each.bound,
            short(each.used),
            short(each.share),
            Text(f"{each.part:.1%}", style),
        )
    if len(holdings) > MOST_HOLDINGS:
        table.add_row(f"and {len(holdings) - MOST_HOLDINGS} more with less of theirs", style="dim")
    return table


def _bounds(reading: ShareReading) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("service", "bound"):
        table.add_column(name)
    for name in ("used\nby all", "bound\nfor all", "reserve", "share of\na tenant", "refused"):
        table.add_column(name, justify="right")
    for each in reading.bounds:
        numbers = (each.used, each.total, each.reserve, each.per_tenant, each.refused)
        table.add_row(each.service, each.bound, *map(short, numbers), style="" if each.used else "dim")
    return table


def _name(holding: Holding) -> str:
    return holding.tenant or "(mesh)"
