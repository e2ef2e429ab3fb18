"""`snavio recv`: takes commands from a target's queue, shows them, and acknowledges them or gives them back."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.options import As, Config, Context, Json, StateDir
from snavio.cli.output import line, print_json
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.launch.installation import Installation
    from snavio.sdk import Command

# Messages held without an ack; a consumer keeps no more leases than this.
MOST_HELD = 2000


def recv(
    target: Annotated[str, typer.Argument(help="Whose commands, such as discord-bot.", show_default=False)],
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until Ctrl-C.")] = False,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Acknowledge, or only look and give back.")
    ] = True,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many.")] = None,
    wait: Annotated[
        str, typer.Option(metavar="<duration>", help="End when nothing came for so long.")
    ] = "2s",
    actor: As = None,
    state_dir: StateDir = None,
    config: Config = None,
    context: Context = None,
    json: Json = False,
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
    from snavio.launch.installation import attach

    installation = attach(state_dir=state_dir, config=config, context=context)
    who = act_as(actor, installation, default="bot", now_unix_ns=SystemClock().unix_ns())
    limit = (most or 0) if ack else min(most or MOST_HELD, MOST_HELD)
    patience = None if follow else read_span(wait, option="--wait", least_s=0.1)
    received = asyncio.run(
        _receive(installation, who, target, most=limit, ack=ack, patience=patience, json=json)
    )
    if not received and not json and not follow:
        line(f"Nothing waits in {who.topic(target)}.")


async def _receive(
    installation: Installation,
    who: Actor,
    target: str,
    *,
    most: int,
    ack: bool,
    patience: float | None,
    json: bool,
) -> int:
    from snavio.cli.actor import ready_for
    from snavio.sdk import Consumer

    mesh = installation.mesh
    await ready_for("mailbox", mesh, who)
    received = 0
    held: list[Command] = []
    async with Consumer(
        mailbox=mesh.mailbox,
        topic=who.topic(target),
        certificates=who.certificates,
        signer=mesh.signer if who.principal is not None else None,
        principal_certificates=who.principal,
        source=who.identity.source if who.principal is not None else "",
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
                print_json(_document(command)) if json else line(_sentence(command))
                if ack:
                    await command.ack()
                else:
                    held.append(command)
        finally:
            for command in held:
                await command.nack(delay_s=0, reason="only looked at")
    return received


def _sentence(command: Command) -> str:
    try:
        text = command.payload.decode()
    except UnicodeDecodeError:
        text = f"({len(command.payload)} bytes)"
    # Control characters of a stranger's payload must not reach the terminal.
    shown = "".join(letter if letter.isprintable() else "�" for letter in text.rstrip("\n"))
    again = f"  attempt {command.attempt}" if command.attempt > 1 else ""
    return f"{command.timestamp[11:23]}  {command.source}  {command.name}{again}  {shown}"


def _document(command: Command) -> dict[str, Any]:
    try:
        payload = {"payload": command.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(command.payload).decode()}
    return {
        "command_id": command.command_id,
        "source": command.source,
        "target": command.target,
        "name": command.name,
        "timestamp": command.timestamp,
        "attempt": command.attempt,
        "content_type": command.content_type,
        **payload,
    }
