"""`snavio send`: one command, or many of the same, signed and sent through the running mesh."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.installation import MeshOptions
from snavio.cli.options import As
from snavio.cli.output import count as number
from snavio.cli.output import micros
from snavio.cli.render import picked

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.cli.command_file import CommandLine
    from snavio.launch.installation import Installation
    from snavio.sdk import Outcome

MOST_SHOWN = 100
BATCH = 1000


def send(
    target: Annotated[str, typer.Argument(help="Who shall act, such as discord-bot.")] = "",
    name: Annotated[str, typer.Argument(help="What it shall do, such as notify-user.")] = "",
    *,
    payload: Annotated[str | None, typer.Option("--payload", "-p", help="The payload as text.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The payload from a file.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="The payload from standard input.")] = False,
    commands: Annotated[
        Path | None,
        typer.Option("--commands", help="Send each line of this file, a JSON object."),
    ] = None,
    command_id: Annotated[
        str,
        typer.Option("--id", help="The command's id: the same again is the same command."),
    ] = "",
    content_type: Annotated[str, typer.Option(help="Media type of the payload.")] = "",
    actor: As = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1_000_000, help="Send it so many times.")
    ] = 1,
    here: MeshOptions,
) -> None:
    """Send a signed command, and say what became of it.

    `delivered` means: on disk, in the target's queue. Anything else is a refusal with its reason, and exit code 1.
    A line of --commands may have target, name, payload (text, or any JSON), payload_base64, content_type and id;
    TARGET and NAME are those of lines that have none. With a mistake in it nothing of the file is sent.

    \b
    Examples:
      snavio send discord-bot notify-user --payload 'hello'
      snavio send discord-bot notify-user --file event.json
      date | snavio send discord-bot notify-user --stdin
      snavio send discord-bot notify-user -p hi --count 1000
      snavio send discord-bot notify-user -p hi --id "$id"
      snavio send --commands commands.jsonl
      snavio send discord-bot notify-user -p hi --as bot      refused: acl-deny
    """
    from snavio.cli.actor import act_as
    from snavio.cli.command_file import CommandLine, read_commands
    from snavio.clock import SystemClock
    from snavio.errors import BadRequest

    if commands is not None:
        if count > 1 or command_id or stdin or payload is not None or file is not None:
            raise BadRequest(
                "--commands has payloads and ids of its own: leave out --payload, --id, --count ..."
            )
        wanted = read_commands(commands, target=target, name=name, content_type=content_type)
        if not wanted:
            raise BadRequest(f"{commands} has no commands.", reason="bad-commands")
    else:
        if not (target and name):
            raise BadRequest("Say TARGET and NAME, or name a file with --commands.", reason="bad-field")
        if command_id and count > 1:
            raise BadRequest("--id names one command: leave --count out.", reason="bad-field")
        body = _payload(payload, file, stdin=stdin)
        wanted = [CommandLine(target, name, body, content_type, command_id)] * count
    installation = here.attach()
    who = act_as(actor, installation, default="billing", now_unix_ns=SystemClock().unix_ns())
    if commands is None:
        _check_names(target, name)
    outcomes: list[Outcome] = []
    began, interrupted = time.perf_counter(), False
    try:
        began = asyncio.run(_send(installation, who, wanted, outcomes))
    except KeyboardInterrupt:
        # Commands that were answered until then are on disk at the target, so they are reported.
        interrupted = True
    seconds = time.perf_counter() - began
    reasons = Counter(outcome.reason for outcome in outcomes)
    if len(wanted) == 1 and outcomes:
        said = [_sentence(outcomes[0], seconds)]
    else:
        said = [f"{reason}  {number(times)}" for reason, times in reasons.most_common()]
        said += _refused_lines(wanted, outcomes)
        total = number(len(wanted))
        of_all = f"{number(len(outcomes))} of {total}" if interrupted else total
        said.append(f"{of_all} commands in {micros(round(seconds * 1e6))}")
    about = {"source": who.identity.source} | ({} if commands else {"target": target, "name": name})
    document = _document(wanted, outcomes, reasons, seconds, **about)
    here.show(document, *said)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not all(outcome.delivered for outcome in outcomes):
        raise typer.Exit(ExitCode.REFUSED)


async def _send(
    installation: Installation, who: Actor, commands: list[CommandLine], outcomes: list[Outcome]
) -> float:
    """Send them, adding to `outcomes` in order as answers come; returns when the first was sent."""
    from snavio.cli.actor import ready_for
    from snavio.sdk import Producer

    mesh = installation.mesh
    await ready_for("shield", mesh, who)
    async with Producer(
        shield=mesh.shield,
        signer=mesh.signer,
        certificates=who.certificates,
        principal_certificates=who.principal,
        source=who.identity.source if who.principal is not None else "",
        trust_domain=mesh.trust_domain,
    ) as producer:
        began = time.perf_counter()
        for alike in _runs(commands):
            first = alike[0]
            if len(commands) > 1 and not first.command_id:
                outcomes += await producer.send_batch(
                    [(each.target, each.name, each.payload) for each in alike],
                    content_type=first.content_type,
                )
            else:
                # Those with an id of their own, together: their order among each other is not promised anyway.
                outcomes += await asyncio.gather(
                    *(
                        producer.send(
                            each.target,
                            each.name,
                            each.payload,
                            content_type=each.content_type,
                            command_id=each.command_id or None,
                        )
                        for each in alike
                    )
                )
        return began


def _runs(commands: list[CommandLine]) -> Iterator[list[CommandLine]]:
    """Commands in a row that one call can take, at most `BATCH`."""
    for _, alike in groupby(commands, key=lambda each: (bool(each.command_id), each.content_type)):
        run = list(alike)
        for first in range(0, len(run), BATCH):
            yield run[first : first + BATCH]


def _refused_lines(commands: list[CommandLine], outcomes: list[Outcome]) -> list[str]:
    from snavio.cli.command_file import MOST_TOLD

    refused = [
        f"line {each.line}: {outcome.reason}  {outcome.command_id}"
        for each, outcome in zip(commands, outcomes, strict=False)
        if each.line and not outcome.delivered
    ]
    more = [f"and {len(refused) - MOST_TOLD} more lines"] if len(refused) > MOST_TOLD else []
    return [*refused[:MOST_TOLD], *more]


def _check_names(target: str, name: str) -> None:
    """The rules that Shield holds, said in words before anything is signed."""
    from snavio.domain.directory.rules import require_command, require_target

    require_target(target, "TARGET")
    require_command(name, "NAME")


def _payload(text: str | None, file: Path | None, *, stdin: bool) -> bytes:
    from snavio.errors import BadRequest

    if (text is not None) + (file is not None) + stdin > 1:
        raise BadRequest("Give the payload once: --payload, --file or --stdin.")
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise BadRequest(f"{file} cannot be read: {error.strerror}.") from None
    return sys.stdin.buffer.read() if stdin else (text or "").encode()


def _sentence(outcome: Outcome, seconds: float) -> str:
    took = micros(round(seconds * 1e6))
    if outcome.delivered:
        first = f"\n{outcome.detail}" if outcome.detail else ""
        return f"{outcome.reason}  {outcome.command_id}  in {took}{first}"
    detail = f": {outcome.detail}" if outcome.detail else ""
    wait = f" Try again in {outcome.retry_after_ms} ms." if outcome.retry_after_ms else ""
    word = "unknown" if outcome.reason == "outcome-unknown" else "refused"
    return f"{word}  {outcome.reason}{detail}{wait}\n`snavio explain {outcome.command_id}` tells its way."


def _document(
    commands: list[CommandLine],
    outcomes: list[Outcome],
    reasons: Counter[str],
    seconds: float,
    **about: str,
) -> dict[str, Any]:
    return {
        **about,
        "sent": len(outcomes),
        "seconds": round(seconds, 6),
        "outcomes": dict(reasons),
        "commands": [
            picked(outcome, "command_id", "reason", "delivered", "attempts", "retry_after_ms", "detail")
            | ({"line": each.line} if each.line else {})
            for each, outcome in list(zip(commands, outcomes, strict=False))[:MOST_SHOWN]
        ],
    }
