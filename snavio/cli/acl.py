"""`snavio acl`: who may send what, who could, and which rights came and went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Command, Reason, Right, Target, read_source
from snavio.cli.group import CommandGroup
from snavio.cli.installation import MeshOptions
from snavio.cli.render import Table, TableColumn, picked, time_text
from snavio.cli.right_terms import Life, OwnProfile, read_life, read_profile
from snavio.cli.times import TIME_HELP, Period, read_past
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.v1.registry_pb2 import AclEntry

acl = CommandGroup(
    "See, grant and revoke the rights of sources, now and in the past.",
    examples=(
        "snavio acl ls --target discord-bot",
        "snavio acl grant acme/billing discord-bot notify-user",
        "snavio acl diff --since 2h",
    ),
)


@acl.command("ls")
def list_rights(
    *,
    target: Annotated[str, typer.Option(help="Rights to this target.")] = "",
    source: Annotated[str, typer.Option(help="Rights of this source.")] = "",
    caller: Caller,
) -> None:
    """The rights of a target or of a source, as they are now.

    \b
    Examples:
      snavio acl ls --target discord-bot
      snavio acl ls --source acme/billing --json
    """
    if not target and not source:
        raise BadRequest("Name whose rights: --target discord-bot, --source acme/billing, or both.")
    asked = read_source(source, option="--source") if source else ""
    found = caller.ask(lambda client: client.access(target=target, source=asked))
    rights = [_right(one) for one in found.acl]
    own = tuple(column for column in ("profile", "until") if any(right[column] for right in rights))
    caller.show(
        {"version": found.version, "rights": rights, "more": found.more},
        Table(("source", "target", "command", *own), rights, none="No rights."),
        "And more; name both --source and --target to see fewer." if found.more else None,
    )


@acl.command()
def grant(
    right: Right,
    *,
    span: Life = "",
    profile: OwnProfile = "",
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Let a source send a command to a target that you own.

    Without --for the right lasts until it is revoked, and without --profile it is as sensitive as its route; granting
    it again sets both anew.

    \b
    Examples:
      snavio acl grant acme/billing discord-bot notify-user --reason "ticket 17"
      snavio acl grant rival/shop discord-bot notify-user --for 2h
    """
    ttl, own = read_life(span), read_profile(profile)
    done = caller.ask(lambda client: client.grant(*right.triple, profile=own, ttl_seconds=ttl, reason=reason))
    words = "may now send" if done.changed else "may already send"
    until = f" for {span}" if span else ""
    caller.wrote(f"{right.source} {words} {right.command} to {right.target}{until}.", done)


def _right(one: AclEntry) -> dict[str, Any]:
    from snavio.v1.registry_pb2 import Profile as Wire

    return {
        **picked(one, "source", "target"),
        "command": one.name,
        "profile": Wire.Name(one.profile).removeprefix("PROFILE_").lower() if one.profile else None,
        "until": time_text(one.expires_unix_ns) if one.expires_unix_ns else None,
    }


@acl.command()
def revoke(right: Right, *, reason: Reason = "", caller: Caller) -> None:
    """Take that right away; the log keeps when and why.

    \b
    Examples:
      snavio acl revoke acme/billing discord-bot notify-user -r "contract ended"
    """
    done = caller.ask(lambda client: client.revoke(*right.triple, reason=reason))
    words = "may no longer send" if done.changed else "had no right to send"
    caller.wrote(f"{right.source} {words} {right.command} to {right.target}.", done)


@acl.command()
def diff(
    *,
    period: Period,
    target: Annotated[str, typer.Option(help="Only this target.")] = "",
    caller: Caller,
) -> None:
    """Which rights came and went between two times; what came and went again in between is left out.

    \b
    Examples:
      snavio acl diff --since 2h
      snavio acl diff --since 2026-01-01 --until 2026-02-01 --target discord-bot
    """
    from snavio.clock import SystemClock

    now = SystemClock().unix_ns()
    if not period.since:
        raise BadRequest(
            "Say from when: --since 2h, or a time such as 2026-01-31T12:00:00Z.", reason="bad-time"
        )
    start, end = period.read_past(now_unix_ns=now)
    found = caller.ask(lambda client: client.acl_diff(start or 0, end or 0, target=target))
    rows = [
        {
            "change": "granted" if moved.granted else "revoked",
            "source": moved.acl.source,
            "target": moved.acl.target,
            "command": moved.acl.name,
            "version": moved.version,
            "at": time_text(moved.at_unix_ns),
            "by": moved.actor or None,
            "reason": moved.reason or None,
        }
        for moved in found.difference
    ]
    caller.show(
        {"from_version": found.from_version, "to_version": found.to_version, "differences": rows}
        | {"more": found.more},
        Table(
            ("change", "source", "target", "command", "at", "by", "reason"),
            rows,
            none="No right came or went.",
            style=lambda row: "green" if row["change"] == "granted" else "red",
        ),
        "And more; a shorter period or --target shows fewer." if found.more else None,
    )


@acl.command()
def at(
    target: Target,
    command: Command,
    when: Annotated[str, typer.Argument(help=f"At this time: {TIME_HELP}")] = "now",
    *,
    caller: Caller,
) -> None:
    """List the sources that could send a command at a time, from the log.

    \b
    Examples:
      snavio acl at discord-bot notify-user 2026-01-31T12:00:00Z
      snavio acl at discord-bot notify-user 2h --json
    """
    from snavio.clock import SystemClock

    at_ns = 0 if when == "now" else read_past(when, now_unix_ns=SystemClock().unix_ns(), option="WHEN")
    found = caller.ask(lambda client: client.access_at(target, command, at_ns))
    sources = [
        {
            "source": access.acl.source,
            "since": time_text(access.since_unix_ns),
            "version": access.version,
            "by": access.actor or None,
            "reason": access.reason or None,
            "suspended": access.suspended,
        }
        for access in found.access
    ]
    state = TableColumn("state", lambda row: "suspended" if row["suspended"] else "allowed")
    caller.show(
        {"version": found.version, "routed": found.routed, "sources": sources, "more": found.more},
        None if found.routed else f"There was no route for {command} of {target}, so nothing could be sent.",
        Table(("source", "since", state, "by", "reason"), sources, none="No source had the right."),
    )


@acl.command("after-revocation")
def after_revocation(
    target: Target,
    source: Annotated[str, typer.Option(help="Only commands of this source.")] = "",
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder of the archive, if not the installation's.")
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Count also what no known key has signed; asks no Signer.")
    ] = False,
    *,
    here: MeshOptions,
) -> None:
    """List the commands that went by a right after it had ended, by id, from the archive.

    Such a command was dispatched while a revocation was on its way, within the bound of the right's profile;
    `snavio.command.executed_after_acl_revoked` counts them. What was sent in the last minutes may not be there yet.

    \b
    Examples:
      snavio acl after-revocation discord-bot
      snavio acl after-revocation discord-bot --source acme/billing --json
    """
    from snavio.cli.archive import archive_keys, archive_place, plain
    from snavio.cli.output import aside
    from snavio.telemetry.archive_lookup import after_revocation as look

    asked = read_source(source, option="--source") if source else ""
    place = archive_place(folder, here)
    found = look(place, target, keys=None if unverified else archive_keys(here), source=asked)
    for finding in found.left_out:
        aside(f"left out, {finding.problem}: {finding.path}: {finding.detail}")
    rows = [{name: plain(value) for name, value in row.items()} for row in found.rows]
    caption = f"{len(rows):,} commands to {target} went by a right after its end."
    caller_sees = [
        {**row, "right": f"{row['source']} {row['command_name']}", "late": f"{row['late_s']:.3f} s"}
        for row in rows
    ]
    here.show(
        {"target": target, "commands": rows, "more": found.more},
        Table(
            ("command_id", "right", TableColumn("ended", "right_ended_at"), "late"),
            caller_sees,
            none=f"No command to {target} went by a right after its end.",
        ),
        caption if rows else None,
        "And more; --source shows fewer." if found.more else None,
    )
