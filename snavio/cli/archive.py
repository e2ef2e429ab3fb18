"""`snavio archive`: what Relay has archived, whether it can be believed, and questions to it in SQL."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.archive_folder import archive_folder
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.installation import InstallationOptions, MeshOptions
from snavio.cli.output import aside
from snavio.cli.platform_keys import platform_keys
from snavio.cli.render import LIST, NUMBER, Kind, Table, TableColumn, one_line
from snavio.cli.times import Period
from snavio.errors import BadRequest, SnavioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snavio.launch.installation import Installation
    from snavio.signed.verification import VerifyingKey
    from snavio.telemetry.archive_query import QueryResult

archive = CommandGroup(
    "See the telemetry that Relay has archived, check it, and query it in SQL.",
    examples=(
        "snavio archive ls",
        "snavio archive verify",
        'snavio archive query "SELECT event, sum(count) FROM events GROUP BY 1"',
    ),
)
Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the archive, if not the installation's.")
]


@archive.command()
def ls(folder: Folder = None, *, here: InstallationOptions) -> None:
    """List the hours of the archive, as its manifests tell.

    \b
    Examples:
      snavio archive ls
      snavio archive ls --json | jq .events
    """
    found = _hours(archive_place(folder, here))
    total = {"events": sum(hour["events"] for hour in found), "bytes": sum(hour["bytes"] for hour in found)}
    columns = (
        TableColumn("hour of export (UTC)", "hour"),
        TableColumn("files", kind=NUMBER),
        TableColumn("events", kind=NUMBER),
        TableColumn("bytes", kind=NUMBER),
        TableColumn("per event", lambda row: row["bytes"] / row["events"] if row["events"] else None, NUMBER),
        TableColumn("processes", "instances", LIST),
    )
    none = "The archive is empty: Relay writes a minute after the first event at the latest."
    here.show(
        {"hours": found, **total},
        Table(columns, found, none=none),
        f"{total['events']:,} events, {total['bytes']:,} bytes." if found else None,
    )


@archive.command()
def verify(folder: Folder = None, *, here: MeshOptions) -> None:
    """Check every manifest's signature and every file's hash and rows, with the keys that Signer gives.

    Exit code 0 when all of it is good, 1 when something is not, 3 when Signer cannot be reached.

    \b
    Examples:
      snavio archive verify
      snavio archive verify --json | jq '.findings[] | {problem, path}'
    """
    from snavio.telemetry.archive_inspection import check, hours, lasting, overlaps, retired
    from snavio.telemetry.missing_events import missing

    installation = here.attach()
    place = installation.mesh.archive() if folder is None else archive_folder(folder)
    keys = asyncio.run(_keys(installation))
    found = list(hours(place))
    findings = [finding for hour in found for finding in check(place, hour, keys)] + overlaps(found)
    notes, bad_notes = retired(place, keys)
    findings = lasting(place, findings + missing(place, found) + bad_notes, now_unix_ns=time.time_ns())
    files = sum(len(hour.files) for hour in found)
    events = sum(file.stretch.rows for hour in found for file in hour.files)
    here.show(
        {
            "files": files,
            "events": events,
            "retired": {
                "hours": len({note.folder for note in notes}),
                "events": sum(note.events for note in notes),
            },
            "findings": [asdict(finding) for finding in findings],
        },
        *(f"{finding.problem}: {finding.path}: {finding.detail}" for finding in findings),
        *(
            [
                f"{len({note.folder for note in notes}):,} hours went because of their age, as signed notes tell."
            ]
            if notes
            else []
        ),
        f"{len(findings)} findings in {files:,} files."
        if findings
        else f"All good: {files:,} files, {events:,} events.",
    )
    if findings:
        raise typer.Exit(ExitCode.REFUSED)


@archive.command()
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT over the view `events`.")],
    period: Period,
    folder: Folder = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Count also what no known key has signed; asks no Signer.")
    ] = False,
    *,
    here: MeshOptions,
) -> None:
    """Ask the archive in SQL (DuckDB); it only reads. The columns are in docs/telemetry.md; sum `count`, not rows.

    Only files count that were signed and are as they were signed; Signer has the keys, so the mesh must run (else exit
    code 3). `--unverified` counts every file that can be read. Standard error names what was left out.
    Write "at" in quotes: the word is DuckDB's own. With --since and --until only files
    of that range are read and hashed.

    \b
    Examples:
      snavio archive query "SELECT reason, sum(count) FROM events GROUP BY 1"
      snavio archive query --since 2h "SELECT sum(count) FROM events"
      snavio archive query "SELECT max(skew_seconds) FROM events" --json
    """
    from snavio.telemetry.archive_query import ask

    place = archive_place(folder, here)
    keys = None if unverified else archive_keys(here)
    since, until = period.read(now_unix_ns=time.time_ns())
    answer = ask(place, sql, keys=keys, since_unix_ns=since, until_unix_ns=until)
    for finding in answer.left_out:
        aside(f"left out, {finding.problem}: {finding.path}: {finding.detail}")
    if here.json and len(set(answer.columns)) < len(answer.columns):
        raise BadRequest(
            "Two columns have the same name, and one would hide the other: name them apart with AS.",
            reason="bad-question",
        )
    rows = [dict(zip(answer.columns, map(plain, row), strict=True)) for row in answer.rows]
    here.show(
        {"columns": answer.columns, "rows": rows, "more": answer.more},
        result_table(answer),
        f"There are more than {len(rows):,} rows; the rest is not shown." if answer.more else None,
    )


def archive_keys(here: MeshOptions) -> Sequence[VerifyingKey]:
    """Every key that ever signed manifests, from Signer; what to do without it is told."""
    try:
        return asyncio.run(_keys(here.attach()))
    except SnavioError as error:
        # Forged files in the archive must not be counted because Signer is unavailable for a moment.
        aside("Without Signer's keys nothing is counted; --unverified counts all that can be read.")
        raise error from None


def result_table(answer: QueryResult) -> Table:
    """The rows of an answer; away from a terminal with tabs between the columns, for other programs."""
    shown = Kind(_text)
    # By place, not by name: two columns may have the same.
    places = [str(place) for place in range(len(answer.columns))]
    columns = [
        TableColumn(one_line(name, most=0), place, shown)
        for name, place in zip(answer.columns, places, strict=True)
    ]
    rows = [dict(zip(places, row, strict=True)) for row in answer.rows]
    return Table(columns, rows, none="\t".join(column.title for column in columns), tabs=True)


def archive_place(folder: Path | None, here: InstallationOptions) -> Path:
    """The folder of the archive: `folder`, or the installation's."""
    return here.find().mesh.archive() if folder is None else archive_folder(folder)


def _hours(place: Path) -> list[dict[str, Any]]:
    from snavio.telemetry.archive_inspection import hours

    return [
        {
            "hour": hour.folder.removeprefix("telemetry/date=").replace("/hour=", " ") + ":00",
            "folder": hour.folder,
            "files": len(hour.files),
            "events": sum(file.stretch.rows for file in hour.files),
            "bytes": sum(file.size for file in hour.files),
            "instances": sorted({file.stretch.instance for file in hour.files}),
        }
        for hour in hours(place)
    ]


async def _keys(installation: Installation) -> Sequence[VerifyingKey]:
    async with platform_keys(installation) as keys:
        return await keys.ever()


def plain(value: Any) -> Any:
    """As JSON can tell it: ids as UUIDs, other bytes as hex, numbers of more than 64 bits as text."""
    match value:
        case bytes():
            return _text(value)
        case int() if not -(1 << 63) <= value < 1 << 64:
            return str(value)
        case list() | tuple():
            return [plain(one) for one in value]
        case dict():
            return {_text(key): plain(one) for key, one in value.items()}
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        import uuid

        return str(uuid.UUID(bytes=value)) if len(value) == 16 else value.hex()
    return str(value)
