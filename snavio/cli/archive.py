"""`snavio archive`: what Relay has archived, whether it can be believed, and questions to it in SQL."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.archive_folder import archive_folder
from snavio.cli.caller import OperatorCaller
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import aside, console, fancy, line, print_json
from snavio.cli.platform_keys import platform_keys
from snavio.errors import BadRequest, SnavioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snavio.config import MeshSettings
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
    Path | None,
    typer.Option("--dir", help="Folder of the archive, if not the installation's.", show_default=False),
]


@archive.command()
def ls(folder: Folder = None, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """What the archive holds, hour by hour, as its manifests tell.

    \b
    Examples:
      snavio archive ls
      snavio archive ls --json | jq .events
    """
    found = _hours(_place(folder, state_dir, config))
    total = {"events": sum(hour["events"] for hour in found), "bytes": sum(hour["bytes"] for hour in found)}
    if json:
        print_json({"hours": found, **total})
        return
    if not found:
        line("The archive is empty: Relay writes a minute after the first event at the latest.")
        return
    out = console()
    if not fancy(out):
        for hour in found:
            line(f"{hour['hour']}: {hour['events']} events in {hour['files']} files, {hour['bytes']} bytes")
    else:
        from rich.table import Table

        table = Table("hour of export (UTC)", "files", "events", "bytes", "per event", "processes")
        for hour in found:
            each = f"{hour['bytes'] / hour['events']:.1f}" if hour["events"] else "-"
            table.add_row(
                hour["hour"],
                f"{hour['files']:,}",
                f"{hour['events']:,}",
                f"{hour['bytes']:,}",
                each,
                ", ".join(hour["instances"]),
            )
        out.print(table)
    line(f"{total['events']:,} events, {total['bytes']:,} bytes.")


@archive.command()
def verify(
    folder: Folder = None, state_dir: StateDir = None, config: Config = None, json: Json = False
) -> None:
    """Check every manifest's signature and every file's hash and rows, with the keys that Signer gives.

    Exit code 0 when all of it is good, 1 when something is not, 3 when Signer cannot be reached.

    \b
    Examples:
      snavio archive verify
      snavio archive verify --json | jq '.findings[] | {problem, path}'
    """
    from snavio.telemetry.archive_inspection import check, hours, lasting, overlaps
    from snavio.telemetry.missing_events import missing

    mesh, certificates = OperatorCaller(state_dir, config).attached()
    place = mesh.archive() if folder is None else _place(folder, state_dir, config)
    keys = asyncio.run(_keys(mesh, certificates))
    found = list(hours(place))
    findings = [finding for hour in found for finding in check(place, hour, keys)] + overlaps(found)
    findings = lasting(place, findings + missing(place, found), now_unix_ns=time.time_ns())
    files = sum(len(hour.files) for hour in found)
    events = sum(file.stretch.rows for hour in found for file in hour.files)
    if json:
        print_json({"files": files, "events": events, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            line(f"{finding.problem}: {finding.path}: {finding.detail}")
        if findings:
            line(f"{len(findings)} findings in {files:,} files.")
        else:
            line(f"All good: {files:,} files, {events:,} events.")
    if findings:
        raise typer.Exit(ExitCode.REFUSED)


@archive.command()
def query(  # noqa: PLR0917
    sql: Annotated[str, typer.Argument(help="One SELECT over the view `events`.")],
    folder: Folder = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Count also what no known key has signed; asks no Signer.")
    ] = False,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Ask the archive in SQL (DuckDB); it only reads. The columns are in docs/telemetry.md; sum `count`, not rows.

    Only files count that were signed and are as they were signed; Signer has the keys, so the mesh must run (else exit
    code 3). `--unverified` asks nobody and counts every file that can be read. Standard error names what was left out.
    Write "at" in quotes: the word is DuckDB's own.

    \b
    Examples:
      snavio archive query "SELECT reason, sum(count) FROM events GROUP BY 1"
      snavio archive query "SELECT max(skew_seconds) FROM events" --json
    """
    from snavio.telemetry.archive_query import ask

    place = _place(folder, state_dir, config)
    keys = None if unverified else _keys_of_signer(state_dir, config)
    answer = ask(place, sql, keys=keys)
    for finding in answer.left_out:
        aside(f"left out, {finding.problem}: {finding.path}: {finding.detail}")
    if json:
        if len(set(answer.columns)) < len(answer.columns):
            raise BadRequest(
                "Two columns have the same name, and one would hide the other: name them apart with AS.",
                reason="bad-question",
            )
        rows = [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]
        print_json({"columns": answer.columns, "rows": rows, "more": answer.more})
        return
    _print(answer)


def _keys_of_signer(state_dir: Path | None, config: Path | None) -> Sequence[VerifyingKey]:
    try:
        mesh, certificates = OperatorCaller(state_dir, config).attached()
        return asyncio.run(_keys(mesh, certificates))
    except SnavioError as error:
        # Whoever wrote into the archive must not be believed because Signer is away for a moment.
        aside("Without Signer's keys nothing is counted; --unverified counts all that can be read.")
        raise error from None


def _print(answer: QueryResult) -> None:
    out = console()
    names = [_shown(name) for name in answer.columns]
    rows = [[_shown(value) for value in row] for row in answer.rows]
    if not fancy(out):
        line("\t".join(names))
        for row in rows:
            line("\t".join(row))
    else:
        from rich.table import Table
        from rich.text import Text

        # As text: rich would take what is in brackets for its own words.
        table = Table()
        for name in names:
            table.add_column(Text(name))
        for row in rows:
            table.add_row(*map(Text, row))
        out.print(table)
    if answer.more:
        line(f"There are more than {len(rows):,} rows; the rest is not shown.")


def _place(folder: Path | None, state_dir: Path | None, config: Path | None) -> Path:
    from snavio.launch.installation import find

    if folder is None:
        return find(state_dir=state_dir, config=config).mesh.archive()
    return archive_folder(folder)


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


async def _keys(mesh: MeshSettings, certificates: Path) -> Sequence[VerifyingKey]:
    async with platform_keys(mesh, certificates) as keys:
        return await keys.ever()


def _plain(value: Any) -> Any:
    """As JSON can tell it: ids as UUIDs, other bytes as hex, numbers of more than 64 bits as text."""
    match value:
        case bytes():
            return _text(value)
        case int() if not -(1 << 63) <= value < 1 << 64:
            return str(value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {_text(key): _plain(one) for key, one in value.items()}
    return value


def _shown(value: Any) -> str:
    # Names come from producers: what moves a cursor or colours a terminal is not shown.
    return "".join(letter if letter.isprintable() else "�" for letter in _text(value))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        import uuid

        return str(uuid.UUID(bytes=value)) if len(value) == 16 else value.hex()
    return str(value)
