"""`snavio explain`: what became of one command, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import Caller
from snavio.cli.output import ago
from snavio.cli.render import Block, Styled, time_text

if TYPE_CHECKING:
    from snavio.admin.explain import Explanation
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

    A tenant sees its own commands, an operator all of them.

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
    said = _unknown(found) if found.trace is None else _steps(found.trace, found)
    away = (f"{name} could not be asked." for name in found.away)
    caller.show(found.document(), *said, *away)
    if found.trace is None:
        raise typer.Exit(int(ExitCode.REFUSED))


def _steps(trace: Trace, found: Explanation) -> Iterator[Block]:
    yield f"{found.command_id}: {trace.verdict}"
    yield f"{trace.source} → {trace.target or '?'} {trace.name or '?'}"
    escalated = f" (from Fast: {trace.escalation})" if trace.escalation else ""
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
