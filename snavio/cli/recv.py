"""`snavio recv`: takes commands from a target's queue, shows them, and acknowledges them or gives them back."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from snavio.cli.installation import MeshOptions
from snavio.cli.options import As
from snavio.cli.output import line
from snavio.cli.render import one_line, payload_document, payload_text, picked
from snavio.cli.times import read_span
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.launch.installation import Installation
    from snavio.sdk import Command

# Messages held without an ack; a consumer keeps no more leases than this.
MOST_HELD = 2000
FIELDS: Final = (
    "command_id",
    "source",
    "target",
    "name",
    "timestamp",
    "attempt",
    "content_type",
    "payload",
    "payload_base64",
)
STANDSTILLS = {
    "leased": "another consumer holds every message",
    "delayed": "every message is delayed",
    "retries": "too many messages are being retried, and no new one comes before some of them end",
    "tenant-share": "the tenant's share of message ranges in memory is used up",
    "memory": "the limit of batches in memory is reached",
}


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
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="<text>",
            help="Print each so, such as '{command_id} {payload}'.",
        ),
    ] = "",
    actor: As = None,
    here: MeshOptions,
) -> None:
    """Receive the commands of a target, and acknowledge them.

    Ends when nothing has come for a while; `--follow` goes on until Ctrl-C. What is looked at with `--no-ack` is
    given back at the end, and counts as one attempt. `--format` knows the fields of `--json`; a payload is printed as
    it came, so that it can be piped, and only on a terminal without control characters.

    \b
    Examples:
      snavio recv discord-bot                  everything that waits
      snavio recv discord-bot --follow         and what comes
      snavio recv discord-bot --no-ack --max 1 look at the next one
      snavio recv discord-bot --json | jq .payload
      snavio recv discord-bot --format '{payload}' > payloads.txt
    """
    from snavio.cli.actor import act_as
    from snavio.clock import SystemClock

    printing = _printer(form, here)
    installation = here.attach()
    who = act_as(actor, installation, default="bot", now_unix_ns=SystemClock().unix_ns())
    limit = (most or 0) if ack else min(most or MOST_HELD, MOST_HELD)
    patience = None if follow else read_span(wait, option="--wait", least_s=0.1)
    receiving = _receive(installation, who, target, most=limit, ack=ack, patience=patience, printing=printing)
    received, standstill = asyncio.run(receiving)
    if not received and not here.json and not form and not follow:
        topic = who.topic(target)
        why = STANDSTILLS.get(standstill)
        line(f"Nothing of {topic} can be received now: {why}." if why else f"Nothing waits in {topic}.")


async def _receive(
    installation: Installation,
    who: Actor,
    target: str,
    *,
    most: int,
    ack: bool,
    patience: float | None,
    printing: Callable[[Command], None],
) -> tuple[int, str]:
    """The number of commands that came, and the reason why nothing more did."""
    from snavio.cli.actor import ready_for
    from snavio.sdk import Consumer

    mesh = installation.mesh
    await ready_for("mailbox", mesh, who)
    await _require_target(installation, who, target)
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
                printing(command)
                if ack:
                    await command.ack()
                else:
                    held.append(command)
        finally:
            for command in held:
                await command.nack(delay_s=0, reason="only looked at")
    return received, consumer.standstill


def _printer(form: str, here: MeshOptions) -> Callable[[Command], None]:
    """The way in which a command is printed; BadRequest for a field that none has, before anything is received."""
    if not form:
        return lambda command: here.show(_document(command), _sentence(command))
    if here.json:
        raise BadRequest("Say the form once: --json or --format.", reason="bad-format")
    try:
        parts = list(Formatter().parse(form))
    except ValueError as error:
        raise BadRequest(f"--format: {error}.", reason="bad-format") from None
    for _, name, layout, conversion in parts:
        # A layout could ask for gigabytes of spaces, and an attribute for what is none of a command's.
        if name is not None and (name not in FIELDS or layout or conversion):
            raise BadRequest(
                f"--format: {{{name}}} must be one of {', '.join(FIELDS)}, without anything behind it.",
                reason="bad-format",
            )
    return lambda command: _write(parts, command)


def _write(parts: Sequence[tuple[str, str | None, str | None, str | None]], command: Command) -> None:
    document = _document(command)
    out = b""
    for text, name, _, _ in parts:
        out += text.encode()
        if name == "payload":
            out += command.payload
        elif name == "payload_base64":
            out += _base64(command.payload).encode()
        elif name is not None:
            out += str(document.get(name, "")).encode()
    if sys.stdout.isatty():
        out = one_line(out.decode(errors="replace"), most=0).encode()
    sys.stdout.buffer.write(out + b"\n")
    sys.stdout.flush()


async def _require_target(installation: Installation, who: Actor, target: str) -> None:
    """NotFound for a target that the tenant does not own: an empty queue would look as if nothing had been sent.

    Asked through the service's principal, or as the operator: a service reads nothing in the directory.
    """
    from snavio.cli.entry_access import entry_client
    from snavio.domain.directory.rules import require_target
    from snavio.errors import NotAllowed, NotFound, SnavioError

    name = who.topic(target).partition("/")[2]
    if "/" in name:
        return
    require_target(name, "TARGET")
    try:
        async with entry_client(installation.mesh, who.principal or installation.identity) as client:
            found = (await client.show("target", name)).value
        if found.tenant == who.identity.tenant:
            return
    except (NotAllowed, NotFound) as error:
        if error.reason not in ("not-owner", "unknown-target"):
            return
    except SnavioError:
        # What waits in the mailbox can be received while Registry is away.
        return
    raise NotFound(
        f"Tenant {who.identity.tenant} has no target {name!r}: check the spelling, or `snavio register` it.",
        reason="unknown-target",
    )


def _sentence(command: Command) -> str:
    text = payload_text(command.payload, len(command.payload))
    again = f"  attempt {command.attempt}" if command.attempt > 1 else ""
    shown = f"{command.timestamp[11:23]}  {command.source}  {command.name}{again}  {text}"
    return one_line(shown, most=0)


def _document(command: Command) -> dict[str, Any]:
    about = picked(command, "command_id", "source", "target", "name", "timestamp", "attempt", "content_type")
    return about | payload_document(command.payload)


def _base64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()
