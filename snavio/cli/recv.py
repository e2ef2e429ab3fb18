"""`snavio recv`: takes commands from a target's queue, shows them, and acknowledges them or gives them back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.installation import InstallationOptions
from snavio.cli.options import As
from snavio.cli.output import line
from snavio.cli.render import one_line, payload_document, payload_text, picked
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.launch.installation import Installation
    from snavio.sdk import Command

# Messages held without an ack; a consumer keeps no more leases than this.
MOST_HELD = 2000


def recv(
    target: Annotated[str, typer.Argument(help="Whose commands, such as discord-bot.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until Ctrl-C.")] = False,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Acknowledge, or only look and give back.")
    ] = True,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many.")] = None,
    wait: Annotated[
        str, typer.Option(metavar="<duration>", help="End when nothing came for so long.")
    ] = "2s",
    actor: As = "bot",
    here: InstallationOptions,
) -> None:
    """Receive the commands of a target, and acknowledge them.

    Ends when nothing has come for a while; `--follow` goes on until Ctrl-C. What is looked at with `--no-ack` is
    given back at the end, and counts as one attempt.

    \b
    Examples:
      snavio recv discord-bot                  everything that waits
      snavio recv discord-bot --follow         and what comes
      snavio recv discord-bot --no-ack --max 1 look at the next one
      snavio recv discord-bot --json | jq .payload
    """
    from snavio.cli.actor import act_as
    from snavio.clock import SystemClock

    installation = here.attach()
    who = act_as(actor, installation.mesh, now_unix_ns=SystemClock().unix_ns())
    limit = (most or 0) if ack else min(most or MOST_HELD, MOST_HELD)
    patience = None if follow else read_span(wait, option="--wait", least_s=0.1)
    receiving = _receive(here, installation, who, target, most=limit, ack=ack, patience=patience)
    received = asyncio.run(receiving)
    if not received and not here.json and not follow:
        line(f"Nothing waits in {who.topic(target)}.")


async def _receive(
    here: InstallationOptions,
    installation: Installation,
    who: Actor,
    target: str,
    *,
    most: int,
    ack: bool,
    patience: float | None,
) -> int:
    from snavio.cli.actor import require_serving
    from snavio.sdk import Consumer

    mesh = installation.mesh
    await require_serving("mailbox", mesh, who)
    received = 0
    held: list[Command] = []
    async with Consumer(
        mailbox=mesh.mailbox,
        topic=who.topic(target),
        certificates=who.certificates,
        max_unsettled=min(most, MOST_HELD) or MOST_HELD,
        trust_domain=mesh.trust_domain,
    ) as consumer:
        try:
            while not most or received < most:
                try:
                    async with asyncio.timeout(patience):
                        command = await anext(consumer)
                except TimeoutError:
                    break
                received += 1
                here.show(_document(command), _sentence(command))
                if ack:
                    await command.ack()
                else:
                    held.append(command)
        finally:
            for command in held:
                await command.nack(delay_s=0, reason="only looked at")
    return received


def _sentence(command: Command) -> str:
    text = payload_text(command.payload, len(command.payload))
    again = f"  attempt {command.attempt}" if command.attempt > 1 else ""
    shown = f"{command.timestamp[11:23]}  {command.source}  {command.name}{again}  {text}"
    return one_line(shown, most=0)


def _document(command: Command) -> dict[str, Any]:
    about = picked(command, "command_id", "source", "target", "name", "timestamp", "attempt", "content_type")
    return about | payload_document(command.payload)
