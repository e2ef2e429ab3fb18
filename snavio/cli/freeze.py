"""`snavio freeze` and `snavio unfreeze`: stop a source, a target or one command, and see who obeys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.caller import Caller, Reason
from snavio.cli.output import line
from snavio.cli.render import picked, time_text
from snavio.cli.times import read_end, read_span

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.admin.freeze import KillSwitch
    from snavio.config import MeshSettings

What = Annotated[str, typer.Argument(help="A source, `<tenant>/<service>`, or a target.")]
Which = Annotated[str | None, typer.Argument(help="Only this command of the target.")]
Wait = Annotated[
    str,
    typer.Option("--wait", metavar="<duration>", help="Wait so long for each instance's answer."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The subject of an order, its reason, and the time to wait for instances that obey."""

    what: What
    command: Which = None
    wait: Wait = "10s"
    reason: Reason = ""
    caller: Caller


UntilWhen = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="<time>",
        help="It ends by itself then: after a duration such as 2h, or at a time such as 2031-01-31T12:00:00Z.",
    ),
]


def freeze(stop: Stop, *, until: UntilWhen = "") -> None:
    """Stop a source, a target or one command now, and show which instances obey.

    Exit code 1 when an instance gave no word in time: it obeys by the bound that is shown, or is not there.

    \b
    Examples:
      snavio freeze acme/billing --reason "key leaked"
      snavio freeze discord-bot notify-user --reason "sends to the wrong people" --until 2h
    """
    _order(stop, frozen=True, until=until)


def unfreeze(stop: Stop) -> None:
    """Let a source, a target or a command go on.

    \b
    Examples:
      snavio unfreeze acme/billing --reason "new key in use"
    """
    _order(stop, frozen=False)


def _order(stop: Stop, *, frozen: bool, until: str = "") -> None:
    from snavio.admin.freeze import FrozenSubject
    from snavio.cli.exits import ExitCode
    from snavio.clock import SystemClock
    from snavio.errors import BadRequest

    if stop.command == "":
        # A script's empty variable must not stop a whole target.
        raise BadRequest("COMMAND is empty: leave it out to mean the whole target.", reason="bad-field")
    wait_s = read_span(stop.wait, option="--wait", least_s=0)
    subject = FrozenSubject.read(stop.what, stop.command or "")
    end_ns = read_end(until, now_unix_ns=SystemClock().unix_ns(), option="--until") if until else 0

    async def carry_out(switch: KillSwitch) -> bool:
        order = await switch.order(subject, frozen=frozen, until_unix_ns=end_ns, reason=stop.reason)
        if not stop.caller.json:
            line(_became(str(subject), frozen=frozen, changed=order.changed, version=order.version))
            if end_ns:
                line(f"It ends by itself at {time_text(end_ns)}.")
            line(f"An instance that does not answer obeys within {order.bound_s:g} s.")
            if order.listening_s < order.bound_s:
                line(
                    f"Registry listens since {order.listening_s:.0f} s: an instance that has not called it since "
                    "is not named here, and obeys within the same time."
                )
        told: list[dict[str, Any]] = []
        async for word_of in switch.acknowledgements(order, within_s=wait_s):
            about = picked(word_of, "service", "instance", "obeys", "detail")
            told.append(about | {"after_ms": round(word_of.after_s * 1000)})
            if not stop.caller.json:
                obeys = "obeys" if word_of.obeys else "gave no word"
                line(f"{word_of.instance} {obeys} after {word_of.after_s:.2f} s. {word_of.detail}")
        document = {
            "subject": str(subject),
            "frozen": frozen,
            "until": time_text(end_ns) if end_ns else None,
            "changed": order.changed,
            "version": order.version,
            "bound_s": order.bound_s,
            "registry_listening_s": round(order.listening_s, 3),
            "acknowledgements": told,
        }
        stop.caller.show(document)
        return all(each["obeys"] for each in told)

    if not stop.caller.ask_client(_switch, carry_out):
        raise typer.Exit(int(ExitCode.REFUSED))


def _became(subject: str, *, frozen: bool, changed: bool, version: int) -> str:
    if frozen:
        return f"{subject} is frozen{'' if changed else ', as it was before'} (version {version})."
    # Also what a misspelt name gets, so it does not say that anything is free.
    return (
        f"{subject} is free (version {version})."
        if changed
        else f"{subject} was not frozen; nothing changed."
    )


def _switch(mesh: MeshSettings, certificates: Path) -> KillSwitch:
    from snavio.admin.freeze import KillSwitch
    from snavio.clock import SystemClock

    return KillSwitch(
        mesh.registry, certificates=certificates, clock=SystemClock(), trust_domain=mesh.trust_domain
    )
