"""Finds single commands in the archive: what became of one, and those that went by a right after its end.

Never counts a file that the given keys do not verify, and never shows one tenant another's command.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import ArchiveFinding
from snavio.telemetry.archive_query import ask
from snavio.telemetry.schema import DELIVERED, EXECUTED_AFTER_REVOCATION

MOST_COMMANDS: Final = 10_000
EARLIER_NS: Final = 3600 * 1_000_000_000
LATER_NS: Final = 24 * 3600 * 1_000_000_000
"""Time from the making of its id in which a command is looked for first."""
COMMAND_COLUMNS: Final = (
    "event", "at", "instance", "source", "target", "command_name", "reason", "path", "dispatch_latency_ms",
    "key_version", "retry_after_ms", "detail",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """Rows by column, and what of the archive was left out."""

    rows: tuple[dict[str, Any], ...]
    more: bool
    left_out: tuple[ArchiveFinding, ...]


def command(
    archive: Path, command_id: uuid.UUID, *, keys: Sequence[VerifyingKey] | None, tenant: str = ""
) -> Found:
    """The events of one command, oldest first; with `tenant`, only those of its sources."""
    columns = ", ".join(f'"{name}"' for name in COMMAND_COLUMNS)
    own = f"AND starts_with(source, '{_text(tenant)}/')" if tenant else ""
    question = f"SELECT {columns} FROM events WHERE command_id = unhex('{command_id.hex}') {own} ORDER BY \"at\", seq"  # noqa: S608 quoted
    found = Found((), False, ())
    for within in (_around(command_id), None):
        found = _found(archive, question, keys, within)
        if found.rows or (within is None):
            break
    return found


def after_revocation(
    archive: Path, target: str, *, keys: Sequence[VerifyingKey] | None, source: str = ""
) -> Found:
    """Commands to a target that went by a right after its end, oldest first, with when it ended."""
    own = f"AND source = '{_text(source)}'" if source else ""
    # What is told counts commands that were settled at one moment; `at` of each of them is that moment.
    question = f"""
        WITH told AS (
            SELECT DISTINCT source, target, command_name, acl_revocation_timestamp AS ended,
                   epoch_us(acl_revocation_timestamp) + round(stale_duration_seconds * 1e6)::BIGINT AS settled
            FROM events WHERE event = '{EXECUTED_AFTER_REVOCATION}' AND target = '{_text(target)}' {own}
        )
        SELECT events.command_id, events.source, events.target, events.command_name, events."at",
               told.ended AS right_ended_at, (epoch_us(events."at") - epoch_us(told.ended)) / 1e6 AS late_s,
               events.acl_version
        FROM events JOIN told ON events.source = told.source AND events.target = told.target
             AND events.command_name = told.command_name AND abs(epoch_us(events."at") - told.settled) <= 1
        WHERE events.event = '{DELIVERED}' ORDER BY events."at", events.seq
    """  # noqa: S608 quoted
    return _found(archive, question, keys, None)


def _found(
    archive: Path, question: str, keys: Sequence[VerifyingKey] | None, within: tuple[int, int] | None
) -> Found:
    since, until = within if within is not None else (None, None)
    answer = ask(archive, question, limit=MOST_COMMANDS, keys=keys, since_unix_ns=since, until_unix_ns=until)
    rows = tuple(dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    return Found(rows, answer.more, answer.left_out)


def _around(command_id: uuid.UUID) -> tuple[int, int] | None:
    """The time in which a command of this id was sent, if the id says so."""
    if command_id.version != 7:
        return None
    made_ns = (command_id.int >> 80) * 1_000_000
    return made_ns - EARLIER_NS, made_ns + LATER_NS


def _text(words: str) -> str:
    return words.replace("'", "''")
