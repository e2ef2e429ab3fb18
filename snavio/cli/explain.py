"""`snavio explain`: what became of one command, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import Caller
from snavio.cli.options import Json
from snavio.cli.output import ago, console, fancy, line, print_json

if TYPE_CHECKING:
    from snavio.admin.explain import Explanation
    from snavio.v1.explain_pb2 import Trace

ASKED = ("shield", "fast", "slow", "mailbox", "signer")
_WORDS = {1: "passed", 2: "REFUSED", 3: "note", 4: "not reached", 5: "unknown"}
_STYLES = {1: "green", 2: "bold red", 3: "yellow", 4: "dim", 5: "dim"}


def explain(
    command_id: Annotated[str, typer.Argument(help="The command's id, a UUID.", show_default=False)],
    *,
    caller: Caller,
    json: Json = False,
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
    from snavio.errors import Unavailable

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
    if json:
        print_json(found.document())
    elif found.trace is None:
        _show_nothing(found)
    else:
        _show(found.trace, found)
    if found.trace is None:
        raise typer.Exit(int(ExitCode.REFUSED))


def _show(trace: Trace, found: Explanation) -> None:
    from snavio.cli.directory_views import moment

    line(f"{found.command_id}: {trace.verdict}")
    line(f"{trace.source} → {trace.target or '?'} {trace.name or '?'}")
    escalated = f" (from Fast: {trace.escalation})" if trace.escalation else ""
    line(f"settled {moment(trace.settled_unix_ns)} by {trace.instance}{escalated}")
    out = console()
    for step in trace.step:
        facts = "  ".join(f"{name}={value}" for name, value in sorted(step.fact.items()))
        text = f"{step.step:<9}{_WORDS.get(step.state, '?'):<12}{step.detail}" + (
            f"  {facts}" if facts else ""
        )
        if fancy(out):
            out.print(text, style=_STYLES.get(step.state, ""), markup=False)
        else:
            line(text)
    if len(found.traces) > 1:
        line(f"It was settled {len(found.traces)} times; this is the last. --json has them all.")
    _tell_away(found)


def _show_nothing(found: Explanation) -> None:
    line("Nobody knows this command: it was never sent, it is not yours to see, or it is too long ago.")
    from snavio.clock import SystemClock

    now = SystemClock().unix_ns()
    for name, oldest in found.oldest_unix_ns.items():
        kept = (
            f"keeps the commands of the last {ago(max(0, now - oldest) / 1e9)}"
            if oldest
            else "keeps none yet"
        )
        line(f"{name} {kept}.")
    _tell_away(found)


def _tell_away(found: Explanation) -> None:
    for name in found.away:
        line(f"{name} could not be asked.")
