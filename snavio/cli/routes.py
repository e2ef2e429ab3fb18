"""`snavio routes`: how the queues are that routes lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Target
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.render import AGE, NUMBER, Record, Row, Table, TableColumn, one_line, time_text
from snavio.errors import NotFound

if TYPE_CHECKING:
    from snavio.v1.registry_pb2 import RouteHealth

routes = CommandGroup(
    "See how the queues of routes are: what waits, for how long, who receives, and what is wrong.",
    examples=("snavio routes ls --unhealthy", "snavio routes show discord-bot"),
)
WELL = ("healthy", "unknown")


@routes.command("ls")
def list_routes(
    *,
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Of this tenant's targets.")] = "",
    unhealthy: Annotated[bool, typer.Option("--unhealthy", help="Only those that are not well.")] = False,
    caller: Caller,
) -> None:
    """Every queue that routes lead to, as it was at the last look.

    \b
    Examples:
      snavio routes ls --unhealthy
      snavio routes ls --as acme-ci --json | jq '.routes[] | {target, status}'
    """
    from snavio.clock import SystemClock

    found = caller.ask(lambda client: client.route_health(tenant=tenant, unhealthy=unhealthy))
    now = SystemClock().unix_ns()
    rows = [_document(each, now) for each in found]
    caller.show(
        {"routes": rows},
        Table(
            (
                "target",
                "queue",
                "status",
                TableColumn("depth", kind=NUMBER),
                TableColumn("leased", "inflight", NUMBER),
                TableColumn("dead", kind=NUMBER),
                TableColumn("oldest", "oldest_s", AGE),
                TableColumn("received", "received_s", AGE),
                TableColumn("why", lambda row: one_line("; ".join(row["evidence"]), 80)),
            ),
            rows,
            none="Every route is well." if unhealthy else "There are no routes yet.",
            style=_style,
        ),
    )


@routes.command()
def show(target: Target, *, caller: Caller) -> None:
    """The queues of one target, with the evidence. Exit code 1 if one of them is not well.

    \b
    Examples:
      snavio routes show discord-bot
      snavio routes show discord-bot --json | jq '.queues[0].evidence'
    """
    from snavio.clock import SystemClock

    found = caller.ask(lambda client: client.route_health(target=target))
    if not found:
        raise NotFound(
            f"No route leads to {target[:128]}, or it is another tenant's.", reason="unknown-target"
        )
    rows = [_document(each, SystemClock().unix_ns()) for each in found]
    caller.show({"queues": rows}, *(_record(row) for row in rows))
    if any(row["status"] not in WELL for row in rows):
        raise typer.Exit(ExitCode.REFUSED)


@routes.command("dead")
def dead_letters(
    target: Target,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
    caller: Caller,
) -> None:
    """The dead letters of a target's Redis stream, oldest first; `snavio queue` has the mailbox's.

    \b
    Examples:
      snavio routes dead discord-bot --as acme-ci
    """
    found = caller.ask(lambda client: client.dead_letters(target, limit=limit))
    rows = [
        {
            "letter_id": each.letter_id,
            "reason": each.reason,
            "attempts": each.attempts,
            "source": each.source or None,
            "command": each.name or None,
            "command_id": each.command_id or None,
            "died": time_text(each.died_unix_ns) if each.died_unix_ns else None,
        }
        for each in found
    ]
    columns = (TableColumn("letter", "letter_id"), "reason", "attempts", "source", "command", "died")
    caller.show({"letters": rows}, Table(columns, rows, none=f"{target} has no dead letters in Redis."))


@routes.command()
def redrive(
    target: Target,
    ids: Annotated[list[str], typer.Argument(metavar="LETTER...", help="Ids, as `routes dead` shows them.")],
    *,
    caller: Caller,
) -> None:
    """Put dead letters back at the end of their Redis stream, as new.

    \b
    Examples:
      snavio routes redrive discord-bot 1763500000000-0
    """
    moved = caller.ask(lambda client: client.redrive(target, ids))
    caller.show({"moved": moved}, f"{moved} of {len(ids)} are at the end of the queue of {target}.")


def _document(health: RouteHealth, now_unix_ns: int) -> dict[str, Any]:
    received = health.last_received_unix_ns
    return {
        "tenant": health.tenant,
        "target": health.target,
        "commands": list(health.name),
        "topic": health.topic,
        "queue": {1: "mailbox", 2: "redis", 3: "sqs"}.get(health.queue_kind, str(health.queue_kind)),
        "status": health.status,
        "evidence": list(health.evidence),
        "since": time_text(health.since_unix_ns) if health.since_unix_ns else None,
        "looked": time_text(health.looked_unix_ns) if health.looked_unix_ns else None,
        "depth": health.depth,
        "inflight": health.inflight,
        "oldest_s": health.oldest_ms / 1e3 if health.depth and health.oldest_ms else None,
        "oldest_estimated": health.oldest_estimated,
        "dead": health.dead if health.HasField("dead") else None,
        "received_s": (now_unix_ns - received) / 1e9 if received else None,
        "receiver": health.last_receiver or None,
        "expected_drain_seconds": health.expected_drain_seconds,
    }


def _record(row: Row) -> Record:
    age = None if row["oldest_s"] is None else f"{row['oldest_s']:.0f} s"
    estimate = " (an estimate)" if row["oldest_estimated"] and age else ""
    received = None if row["received_s"] is None else f"{row['received_s']:.0f} s ago"
    by = f" by {row['receiver']}" if received and row["receiver"] else ""
    return Record(
        [
            ("queue", f"{row['queue']} {row['topic']}"),
            ("commands", ", ".join(row["commands"])),
            ("status", row["status"]),
            *(("why", words) for words in row["evidence"]),
            ("since", row["since"]),
            ("last look", row["looked"]),
            ("waits", f"{row['depth']} messages, {row['inflight']} of them leased"),
            ("oldest", f"{age or 'none'}{estimate}, expected within {row['expected_drain_seconds']} s"),
            ("dead letters", row["dead"]),
            ("last received", f"{received or 'not seen'}{by}"),
        ]
    )


def _style(row: Row) -> str:
    return {"healthy": "", "unknown": "dim", "slow": "yellow", "growing": "yellow"}.get(row["status"], "red")
