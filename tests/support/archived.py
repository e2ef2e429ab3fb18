"""Asks the archive of a running mesh until it has what a test is about."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from snavio.telemetry import schema
from snavio.telemetry.archive_query import ask
from tests.support.mesh import DemoMesh

PATIENCE_S = 60.0
Row = dict[str, Any]


async def archived(mesh: DemoMesh, where: str) -> list[Row]:
    """Rows of the archive as it is now."""
    archive = mesh.processes.mesh.archive()
    answer = await asyncio.to_thread(ask, archive, f"SELECT * FROM events WHERE {where} ORDER BY seq")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


async def found(mesh: DemoMesh, where: str, *, enough: Callable[[list[Row]], bool] = bool) -> list[Row]:
    """Rows of the archive, as soon as there are enough of them."""
    async with asyncio.timeout(PATIENCE_S):
        while not enough(rows := await archived(mesh, where)):
            await asyncio.sleep(0.1)
    return rows


def fields(row: Row) -> Row:
    """The event's fields under the catalogue's names; none of them may be missing that must be there."""
    event = schema.BY_NAME[row["event"]]
    told = {name: row[column] for name, column in event.fields.items()}
    missing = [name for name, value in told.items() if value is None and name not in event.optional]
    assert missing == []
    return {name: value for name, value in told.items() if value is not None}


def in_archive(command_id: str) -> str:
    """Rows of one command."""
    return f"command_id = unhex('{uuid.UUID(command_id).hex}')"
