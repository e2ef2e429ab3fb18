"""Shared bounds as rows: which tenant uses how much of its share.

Never computes: what is shown was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from snavio.cli.output import short
from snavio.cli.render import Block, Kind, Row, Table, TableColumn
from snavio.launch.share_readings import ShareReading

MOST_HOLDINGS = 30
NEARLY_FULL = 0.8
SHORT = Kind(short, right=True)


def share_blocks(reading: ShareReading) -> Iterator[Block]:
    """The tenants that are next to their share, and every bound as a whole."""
    held: list[dict[str, Any]] = [asdict(each) | {"part": each.part} for each in reading.holdings]
    yield Table(
        (
            TableColumn("tenant", lambda row: row["tenant"] or "(mesh)"),
            "service",
            "bound",
            TableColumn("used", kind=SHORT),
            TableColumn("share", kind=SHORT),
            TableColumn("part", kind=Kind("{:.1%}".format, right=True)),
        ),
        held[:MOST_HOLDINGS],
        none=f"{reading.tenant or 'No tenant'} holds nothing of any bound.",
        style=_style,
    )
    if len(held) > MOST_HOLDINGS:
        yield f"and {len(held) - MOST_HOLDINGS} more with less of theirs"
    yield Table(
        (
            "service",
            "bound",
            TableColumn("used", kind=SHORT),
            TableColumn("of", "total", SHORT),
            TableColumn("reserve", kind=SHORT),
            TableColumn("a tenant", "per_tenant", SHORT),
            TableColumn("refused", kind=SHORT),
        ),
        [asdict(each) for each in reading.bounds],
        style=lambda row: "" if row["used"] else "dim",
    )


def _style(row: Row) -> str:
    return "red" if row["part"] >= 1 else "yellow" if row["part"] >= NEARLY_FULL else ""
