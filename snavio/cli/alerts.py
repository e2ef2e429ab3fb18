"""`snavio alerts`: what tenants and operators were told, what nobody took, and the channels that alerts go by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.render import AGE, CLIPPED, NUMBER, Row, Table, TableColumn, time_text
from snavio.cli.times import read_end
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.admin.alerts import AlertClient
    from snavio.config import MeshSettings
    from snavio.v1.relay_pb2 import Alert

alerts = CommandGroup(
    "See what was told to whom, acknowledge it, and try and mute the channels of alerts.",
    examples=("snavio alerts ls", "snavio alerts ls --unrouted", "snavio alerts test oncall --tenant acme"),
)
NOBODY = "Nothing was told to anybody."
Channel = Annotated[str, typer.Argument(help="Name of the channel, such as oncall.")]
Tenant = Annotated[
    str,
    typer.Option("--tenant", "-t", help="Whose; the certificate's tenant, or the operators', if not given."),
]


@alerts.command("ls")
def list_alerts(
    *,
    tenant: Annotated[
        str, typer.Option("--tenant", "-t", help="Of this tenant; an operator sees all without it.")
    ] = "",
    unrouted: Annotated[
        bool,
        typer.Option("--unrouted", help="Only those that no channel took: somebody has to look at them."),
    ] = False,
    only_open: Annotated[bool, typer.Option("--open", help="Only those that nobody acknowledged.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="At most so many.")] = 50,
    caller: Caller,
) -> None:
    """Alerts, newest first: what happened, how often, and if somebody was told.

    \b
    Examples:
      snavio alerts ls --open
      snavio alerts ls --unrouted --json | jq '.alerts[].tenant'
    """
    from snavio.clock import SystemClock

    found = caller.ask_client(
        _client,
        lambda client: client.alerts(tenant, unrouted=unrouted, only_open=only_open, limit=limit),
    )
    now = SystemClock().unix_ns()
    rows = [_document(each, now) for each in found.alert]
    caller.show(
        {"alerts": rows, "more": found.more},
        Table(
            (
                TableColumn("alert", "alert_id"),
                TableColumn("tenant", lambda row: row["tenant"] or "(operators)"),
                "event",
                TableColumn("reason", kind=CLIPPED),
                TableColumn("count", kind=NUMBER),
                TableColumn("age", "age_s", AGE),
                TableColumn("state", _state),
            ),
            rows,
            none="No alert fits." if unrouted or only_open else NOBODY,
            style=_style,
        ),
        "There are older ones; --limit shows more." if found.more else "",
    )


@alerts.command()
def ack(
    ids: Annotated[list[str], typer.Argument(metavar="ALERT...", help="Ids, as `alerts ls` shows them.")],
    *,
    caller: Caller,
) -> None:
    """Acknowledge alerts: somebody looks after what they tell. Later occurrences are told as before.

    \b
    Examples:
      snavio alerts ack 01a1f1e5-6673-72d9-928b-a26fcf206be3
    """
    acked = caller.ask_client(_client, lambda client: client.ack(ids))
    caller.show({"acked": acked}, f"{acked} of {len(ids)} acknowledged; the others were, or are not yours.")


@alerts.command()
def test(channel: Channel, *, tenant: Tenant = "", caller: Caller) -> None:
    """Send a test by a channel, the way that alerts go, and say what came of it.

    \b
    Examples:
      snavio alerts test oncall --as acme-ci
      snavio alerts test operator-webhook
    """
    told = caller.ask_client(_client, lambda client: client.test(channel, tenant=tenant))
    document = {
        "channel": channel,
        "delivered": told.delivered,
        "reason": told.reason or None,
        "detail": told.detail or None,
        "latency_ms": round(told.latency_ms, 1),
    }
    outcome = (
        f"{channel} took it in {told.latency_ms:.0f} ms."
        if told.delivered
        else f"{channel} did not take it ({told.reason}): {told.detail}"
    )
    caller.show(document, outcome)
    if not told.delivered:
        raise typer.Exit(ExitCode.REFUSED)


@alerts.command()
def mute(
    event: Annotated[
        str,
        typer.Argument(help="The event, such as snavio.route.health; without it, what is muted is shown."),
    ] = "",
    *,
    until: Annotated[
        str, typer.Option("--until", metavar="<time>", help="A duration such as 2h, or a time to come.")
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Deliver them again.")] = False,
    tenant: Tenant = "",
    caller: Caller,
) -> None:
    """Keep alerts of one event from being delivered for a while; they are kept and can be listed.

    Invalid commands, dropped telemetry and keys that end soon cannot be muted.

    \b
    Examples:
      snavio alerts mute snavio.route.health --until 2h
      snavio alerts mute snavio.route.health --off
      snavio alerts mute
    """
    from snavio.clock import SystemClock

    if event and bool(until) == off:
        raise BadRequest("Say --until <time>, or --off.", reason="bad-time")
    now = SystemClock().unix_ns()
    end = read_end(until, now_unix_ns=now, option="--until") if until else 0
    found = caller.ask_client(_client, lambda client: client.mute(event, tenant=tenant, until_unix_ns=end))
    rows = [
        {"event": each.event, "until": time_text(each.until_unix_ns), "by": each.by} for each in found.mute
    ]
    caller.show({"muted": rows}, Table(("event", "until", "by"), rows, none="Nothing is muted."))


@alerts.command()
def secret(channel: Channel, *, tenant: Tenant = "", caller: Caller) -> None:
    """Make a new signing secret of a webhook, and show it this once.

    The receiver verifies with it that an alert is the mesh's, as Standard Webhooks says. The secret before it counts
    for another day.

    \b
    Examples:
      snavio alerts secret oncall --as acme-ci
    """
    made = caller.ask_client(_client, lambda client: client.rotate_secret(channel, tenant=tenant))
    until = time_text(made.previous_until_unix_ns) if made.previous_until_unix_ns else None
    after = f"The one before counts until {until}." if until else "It is the first one."
    caller.show(
        {"channel": channel, "secret": made.secret, "previous_until": until},
        made.secret,
        f"Keep it: it is not shown again. {after}",
    )


def _document(alert: Alert, now_unix_ns: int) -> dict[str, Any]:
    return {
        "alert_id": alert.alert_id,
        "tenant": alert.tenant or None,
        "event": alert.event,
        "reason": alert.reason,
        "summary": alert.summary,
        "critical": alert.critical,
        "count": alert.count,
        "total": alert.total,
        "update": alert.update,
        "created": time_text(alert.created_unix_ns),
        "first": time_text(alert.first_unix_ns),
        "last": time_text(alert.last_unix_ns),
        "age_s": max(0.0, (now_unix_ns - alert.created_unix_ns) / 1e9),
        "sample": dict(sorted(alert.sample.items())),
        "state": alert.state,
        "why": alert.why or None,
        "acked_by": alert.acked_by or None,
        "channels": [
            {
                "channel": each.channel,
                "state": each.state,
                "attempts": each.attempts,
                "error": each.error or None,
            }
            for each in alert.channel
        ],
    }


def _state(row: Row) -> str:
    words = row["state"] if not row["why"] or row["state"] == "muted" else f"{row['state']}: {row['why']}"
    return f"{words}, acknowledged" if row["acked_by"] else words


def _style(row: Row) -> str:
    if row["acked_by"]:
        return "dim"
    return "red" if row["state"] == "unrouted" else "yellow" if row["critical"] else ""


def _client(mesh: MeshSettings, certificates: Path) -> AlertClient:
    from snavio.admin.alerts import AlertClient

    return AlertClient(mesh.relay, certificates=certificates, trust_domain=mesh.trust_domain)
