"""`snavio explain`: what became of one command, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller
from snavio.cli.output import ago
from snavio.cli.render import Block, Styled, time_text

if TYPE_CHECKING:
    from snavio.admin.explain import Explanation
    from snavio.signed.verification import VerifyingKey
    from snavio.v1.explain_pb2 import Trace

ASKED = ("shield", "fast", "slow", "mailbox", "signer")
_WORDS = {1: "passed", 2: "REFUSED", 3: "note", 4: "not reached", 5: "unknown"}
_STYLES = {1: "green", 2: "bold red", 3: "yellow", 4: "dim", 5: "dim"}


def explain(
    command_id: Annotated[str, typer.Argument(help="The command's id, a UUID.")],
    *,
    caller: Caller,
) -> None:
    """Show what became of a command, step by step.

    A tenant sees its own commands, an operator all of them. What no process remembers any more is looked for in the
    archive, where the mesh's state folder is on this machine.

    \b
    Examples:
      snavio explain 0190b5c2-8f6e-7cc1-9d3e-2b8c1e5a7f10
      snavio explain 0190b5c2-8f6e-7cc1-9d3e-2b8c1e5a7f10 --as acme/billing --json
    """
    from snavio.admin.explain import explain as ask
    from snavio.admin.explain import read_command_id
    from snavio.cli.exits import ExitCode
    from snavio.errors import BadRequest, Unavailable

    if command_id.startswith(("req_", "evt_")):
        raise BadRequest(
            f"{command_id[:40]} is of an edge, which remembers it: `snavio edge explain {command_id[:40]}`.",
            reason="edge-id",
        )
    command_id = read_command_id(command_id)
    found = caller.answer(
        lambda mesh, certificates: ask(
            command_id,
            addresses={name: str(getattr(mesh, name)) for name in ASKED},
            certificates=certificates,
            trust_domain=mesh.trust_domain,
        )
    )
    if not found.oldest_unix_ns:
        raise Unavailable("Neither Shield nor Fast nor Slow could be asked.")
    archived = Archived() if found.trace is not None else _archived(caller, command_id)
    said = _steps(found.trace, found) if found.trace is not None else _remembered(found, archived)
    away = (f"{name} could not be asked." for name in found.away)
    caller.show(found.document() | {"archived": list(archived.events)}, *said, *away)
    if found.trace is None and not archived.events:
        raise typer.Exit(int(ExitCode.REFUSED))


@dataclass(frozen=True, slots=True)
class Archived:
    """Events of a command in the archive, and why there are none or not all."""

    events: Sequence[dict[str, Any]] = ()
    notes: Sequence[str] = ()


def _archived(caller: Caller, command_id: str) -> Archived:
    import asyncio
    import uuid

    from snavio.cli.actor import read_actor
    from snavio.cli.platform_keys import platform_keys
    from snavio.errors import SnavioError
    from snavio.telemetry.archive_lookup import command

    installation = caller.attach()
    place = installation.mesh.archive()
    if installation.context is not None or not place.is_dir():
        return Archived(notes=["The archive is not on this machine: ask an operator for what is older."])
    _, certificates = caller.attached()
    who = read_actor(certificates, trust_domain=installation.mesh.trust_domain).identity

    async def keys() -> Sequence[VerifyingKey]:
        async with platform_keys(installation) as platform:
            return await platform.ever()

    try:
        found = command(place, uuid.UUID(command_id), keys=asyncio.run(keys()), tenant=who.tenant)
    except SnavioError as error:
        return Archived(notes=[f"The archive could not be asked. {error}"])
    left_out = [f"left out of the archive, {one.problem}: {one.path}" for one in found.left_out]
    return Archived([_plain(row) for row in found.rows], left_out)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The fields that are there, with times as text."""
    return {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in row.items()
        if value is not None
    }


def _refused_certificates(found: Explanation) -> Iterator[Block]:
    """Refusals that may have been this command's: a call that is refused for its certificate is not read."""
    for service, one in found.refused_certificates:
        who = one.identity.partition("://")[2].partition("/")[2]
        times = "once" if one.count == 1 else f"{one.count} times"
        yield (
            f"{service} refused the certificate of {who} {times}, last at {time_text(one.last_unix_ns)}: {one.reason}. "
            "Nothing of such a call was read or delivered; `snavio whoami` under it says more."
        )


def _remembered(found: Explanation, archived: Archived) -> Iterator[Block]:
    if not archived.events:
        yield from _unknown(found)
        yield from archived.notes
        yield from _refused_certificates(found)
        return
    last = archived.events[-1]
    yield f"{found.command_id}: {last.get('reason') or last['event']}"
    yield f"{last.get('source', '?')} → {last.get('target', '?')} {last.get('command_name', '?')}"
    yield "No process remembers it any more; this is in the archive, signed:"
    for event in archived.events:
        facts = "".join(
            f"  {name}={value}"
            for name, value in event.items()
            if name not in ("event", "at", "source", "target", "command_name")
        )
        yield Styled(f"{event['at']}  {event['event']}{facts}", "")
    yield from archived.notes


def _steps(trace: Trace, found: Explanation) -> Iterator[Block]:
    yield f"{found.command_id}: {trace.verdict}"
    yield f"{trace.source} → {trace.target or '?'} {trace.name or '?'}"
    escalated = f" (from Fast: {trace.escalation})" if trace.escalation else ""
    yield f"corr_id {found.command_id}" + (f"  trace {trace.trace_id}" if trace.trace_id else "")
    yield f"settled {time_text(trace.settled_unix_ns)} by {trace.instance}{escalated}"
    for step in trace.step:
        facts = "".join(f"  {name}={value}" for name, value in sorted(step.fact.items()))
        text = f"{step.step:<9}{_WORDS.get(step.state, '?'):<12}{step.detail}{facts}"
        yield Styled(text, _STYLES.get(step.state, ""))
    if len(found.traces) > 1:
        yield f"It was settled {len(found.traces)} times; this is the last. --json has them all."


def _unknown(found: Explanation) -> Iterator[Block]:
    from snavio.clock import SystemClock

    yield "No service knows this command: it was never sent, it is not yours to see, or it is too long ago."
    now = SystemClock().unix_ns()
    for name, oldest in found.oldest_unix_ns.items():
        kept = f"the commands of the last {ago(max(0, now - oldest) / 1e9)}" if oldest else "none yet"
        yield f"{name} keeps {kept}."
