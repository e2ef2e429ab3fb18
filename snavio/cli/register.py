"""`snavio register` and `snavio try`: say what the directory shall hold, and ask what a command would meet."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Reason, Right
from snavio.cli.exits import ExitCode
from snavio.cli.options import Json
from snavio.cli.output import aside, program
from snavio.cli.render import Block, show
from snavio.errors import SnavioError

if TYPE_CHECKING:
    from snavio.admin.directory import DirectoryClient
    from snavio.cli.registering import Registered
    from snavio.v1 import registry_pb2 as wire


def register(
    *,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="The registration, a TOML file.", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
    reason: Reason = "",
    caller: Caller,
    json: Json = False,
) -> None:
    """Register a tenant's services, targets, routes and rights from a file: all of it, or nothing.

    Prints what changes, then what a command of each source would meet. Registering the same file again changes
    nothing. What is in the directory and not in the file stays.

    More than 1,000 entries, or 50 queues that are not the mailbox's, are tried as a whole and then written in several
    calls. A failure among these tells what is written, and the same file registered again goes on from there.

    \b
    Examples:
      snavio register -f service.toml --dry-run
      snavio register -f service.toml --reason "billing goes live"
      snavio register -f service.toml --json | jq '.forecast[] | .passes'

    \b
    A file:
      tenant = "acme"
      principals = ["ci"]
      service = [{ name = "billing", principals = ["ci"] }]
      target = [{ name = "discord-bot" }]
      [[route]]
      target = "discord-bot"
      command = "notify-user"
      profile = "moderate"
      limit = { max = 1000, interval_seconds = 60, burst = 50 }
      [[acl]]
      source = "billing"
      target = "discord-bot"
      command = "notify-user"
    """
    from snavio.cli.registering import register as write
    from snavio.cli.registration import read_registration

    wanted = read_registration(file)
    answer = caller.ask(
        lambda client: write(
            client, wanted, reason=reason or f"snavio register {file.name}", dry_run=dry_run, say=aside
        )
    )
    said = _blocks(answer, dry_run=dry_run, left_out=len(wanted.triples) - len(answer.triples))
    show(_document(answer, dry_run=dry_run), *said, json=json)


def try_(
    right: Right,
    *,
    id_: Annotated[
        str,
        typer.Option(
            "--id", help="A command's id: what a strict route would make of it.", show_default=False
        ),
    ] = "",
    caller: Caller,
    json: Json = False,
) -> None:
    """Show what a command would meet, gate by gate, without sending one.

    Exit code 0 when it would be delivered, 1 when a gate refuses it; the first of them is named.

    \b
    Examples:
      snavio try acme/billing discord-bot notify-user
      snavio try acme/billing discord-bot notify-user --json | jq .failing_gate
      snavio try acme/billing discord-bot refund --id "$id"
    """
    from snavio.admin.explain import read_command_id

    command_id = read_command_id(id_) if id_ else ""
    from snavio.cli.directory_views import check_document, forecast, gate_lines

    def ask(client: DirectoryClient) -> Awaitable[wire.CheckResponse]:
        # Not the SDK's clock, which never goes back: what the machine says now is what its producers sign with.
        return client.check(*right.triple, caller_unix_ns=time.time_ns(), command_id=command_id)

    check = caller.ask(ask)
    health = caller.ask(lambda client: _health(client, right.target))
    queue = f"queue     {health.status}: {'; '.join(health.evidence)}" if health is not None else ""
    said: tuple[Block, ...] = (*gate_lines(check), queue, forecast(right.triple, check))
    told = None if health is None else {"status": health.status, "evidence": list(health.evidence)}
    show({**check_document(right.triple, check), "queue_health": told}, *said, json=json)
    if not check.passes:
        raise typer.Exit(ExitCode.REFUSED)


async def _health(client: DirectoryClient, target: str) -> wire.RouteHealth | None:
    """The health of the target's queue, if it is not well and the caller may know."""
    try:
        found = await client.route_health(target=target)
    except SnavioError:
        return (
            None  # Another tenant's, or a Registry that does not look yet: the gates are told all the same.
        )
    return next((each for each in found if each.status not in ("healthy", "unknown")), None)


def _blocks(answer: Registered, *, dry_run: bool, left_out: int) -> Iterator[Block]:
    from snavio.cli.directory_views import difference_lines, forecast

    yield from difference_lines(answer.difference)
    number = len(answer.difference)
    entries = f"{number:,} {'entry' if number == 1 else 'entries'}"
    calls = f", in {answer.parts} calls" if answer.parts > 1 else ""
    if not number:
        yield f"Nothing to change: the directory says all of it already (version {answer.version})."
    elif dry_run:
        yield f"{entries} would change{calls}; nothing was written."
    else:
        yield f"{entries} changed{calls}; the directory is at version {answer.version}."
    for born in answer.enrolment:
        if born.token:
            yield f"Tenant {born.tenant} is new. Its first principal enrols with this token, shown only now:"
            yield f"  {born.token}"
            yield f"  `{program()} enroll - --signer HOST:PORT --name NAME` reads it from standard input."
        else:
            yield (
                f"Tenant {born.tenant} is new: `snavio enroll --new-token --tenant {born.tenant}` lets its first "
                "principal in."
            )
    if answer.triples:
        yield "Commands" + (" would then meet:" if dry_run else " meet:")
    for triple, check in zip(answer.triples, answer.check, strict=True):
        yield forecast(triple, check)
    if left_out:
        yield f"  and {left_out} more; `snavio try` shows each."


def _document(answer: Registered, *, dry_run: bool) -> dict[str, Any]:
    from snavio.cli.directory_views import check_document, difference_document

    return {
        "dry_run": dry_run,
        "changed": answer.changed,
        "calls": answer.parts,
        "version": answer.version,
        "differences": [difference_document(difference) for difference in answer.difference],
        "forecast": [
            check_document(triple, check) for triple, check in zip(answer.triples, answer.check, strict=True)
        ],
        "enrolments": [
            {
                "tenant": born.tenant,
                "token": born.token or None,
                "expires_unix_ns": born.expires_unix_ns or None,
            }
            for born in answer.enrolment
        ],
    }
