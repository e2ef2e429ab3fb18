"""`snavio access`: ask a target's owner for a right, and answer requests for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Reason, Right
from snavio.cli.group import CommandGroup
from snavio.cli.render import Table, picked
from snavio.cli.right_terms import Life, OwnProfile, read_life, read_profile
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.v1.registry_pb2 import AccessRequest

access = CommandGroup(
    "Ask a target's owner for a right, and answer requests for one.",
    examples=(
        "snavio access request acme/billing discord-bot notify-user -r 'receipts'",
        "snavio access ls acme",
        "snavio access grant acme/billing discord-bot notify-user",
    ),
)


@access.command()
def request(
    right: Right,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="What it is wanted for.")],
    caller: Caller,
) -> None:
    """Ask for one of your services to be let in.

    \b
    Examples:
      snavio access request acme/billing discord-bot notify-user -r "receipts"
    """
    done = caller.ask(lambda client: client.request_access(*right.triple, reason=reason))
    words = "Asked" if done.changed else "Asked before"
    caller.wrote(f"{words}: the owner of {right.target} decides.", done)


@access.command("ls")
def list_requests(
    tenant: Annotated[str, typer.Argument(help="The tenant; your own if not given.")] = "",
    *,
    caller: Caller,
) -> None:
    """List the rights that are asked of a tenant's targets, and those that it asks for.

    \b
    Examples:
      snavio access ls acme
      snavio access ls --as acme-ci --json | jq '.incoming[]'
    """
    if not tenant and caller.by is None:
        raise BadRequest(
            "An operator has no tenant: name one, as in `snavio access ls acme`, or act as one with --as."
        )
    whom = tenant or "you"
    found = caller.ask(lambda client: client.access_requests(tenant))
    incoming = [_document(one) for one in found.incoming]
    outgoing = [_document(one) for one in found.outgoing]
    columns = ("state", "source", "target", "command", "reason", "answer")
    caller.show(
        {"incoming": incoming, "outgoing": outgoing},
        Table(columns, incoming, title=f"Asked of {whom}:", none=f"Asked of {whom}: nothing."),
        Table(columns, outgoing, title=f"Asked by {whom}:", none=f"Asked by {whom}: nothing."),
    )


@access.command()
def grant(
    right: Right,
    *,
    span: Life = "",
    profile: OwnProfile = "",
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Grant what was asked for; the right is written in the same step.

    \b
    Examples:
      snavio access grant acme/billing discord-bot notify-user
      snavio access grant rival/shop discord-bot notify-user --for 7d
    """
    ttl, own = read_life(span), read_profile(profile)
    done = caller.ask(
        lambda client: client.answer_access(
            *right.triple, grant=True, profile=own, ttl_seconds=ttl, reason=reason
        )
    )
    until = f" for {span}" if span else ""
    caller.wrote(f"Granted: {right.source} may send {right.command} to {right.target}{until}.", done)


@access.command()
def decline(right: Right, *, reason: Reason = "", caller: Caller) -> None:
    """Decline what was asked for.

    \b
    Examples:
      snavio access decline acme/billing discord-bot notify-user -r "too many"
    """
    done = caller.ask(lambda client: client.answer_access(*right.triple, grant=False, reason=reason))
    caller.wrote(f"Declined: {right.source} gets no right to {right.command}.", done)


def _document(asked: AccessRequest) -> dict[str, Any]:
    from snavio.v1.registry_pb2 import RequestState

    return {
        **picked(asked, "source", "target", "reason", "requested_by", "answer"),
        "command": asked.name,
        # A right that was revoked since, or has ended, is not what a reader of "granted" would expect.
        "state": "ended"
        if asked.right_ended
        else RequestState.Name(asked.state).removeprefix("REQUEST_STATE_").lower(),
    }
