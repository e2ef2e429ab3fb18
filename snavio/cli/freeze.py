"""`snavio freeze` and `snavio unfreeze`: stop a source, a target or one command, and see who obeys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from snavio.cli.desk import By, Reason, certificates_of
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import line, print_json

What = Annotated[str, typer.Argument(help="A source, `<tenant>/<service>`, or a target.", show_default=False)]
Which = Annotated[str, typer.Argument(help="Only this command of the target.")]
Wait = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait for each instance's word.")]


def freeze(
    what: What,
    command: Which = "",
    *,
    wait: Wait = 10.0,
    reason: Reason = "",
    by: By = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Stop a source, a target or one command now; shows who obeys, and by when everybody must.

    Exit code 1 when an instance gave no word in time: it obeys by the bound that is shown, or is not there.

    \b
    Examples:
      snavio freeze acme/billing --reason "key leaked"
      snavio freeze discord-bot notify-user --reason "sends to the wrong people"
    """
    _order(
        what, command, True, wait=wait, reason=reason, by=by, state_dir=state_dir, config=config, json=json
    )


def unfreeze(
    what: What,
    command: Which = "",
    *,
    wait: Wait = 10.0,
    reason: Reason = "",
    by: By = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Let a source, a target or a command go on.

    \b
    Examples:
      snavio unfreeze acme/billing --reason "new key in use"
    """
    _order(
        what, command, False, wait=wait, reason=reason, by=by, state_dir=state_dir, config=config, json=json
    )


def _order(
    what: str,
    command: str,
    frozen: bool,
    *,
    wait: float,
    reason: str,
    by: str | None,
    state_dir: Path | None,
    config: Path | None,
    json: bool,
) -> None:
    from snavio.cli.exits import ExitCode
    from snavio.clock import SystemClock
    from snavio.launch.installation import attach
    from snavio.sdk.freeze import KillSwitch, Subject

    subject = Subject.read(what, command)
    installation = attach(state_dir=state_dir, config=config)
    mesh = installation.mesh

    async def carry_out() -> bool:
        async with KillSwitch(
            mesh.registry,
            certificates=certificates_of(by, installation),
            clock=SystemClock(),
            trust_domain=mesh.trust_domain,
        ) as switch:
            order = await switch.order(subject, frozen=frozen, reason=reason)
            word = "frozen" if frozen else "free"
            before = "" if order.changed else ", as it was before"
            if not json:
                line(f"{subject} is {word}{before} (version {order.version}).")
                line(f"Whoever hears nothing obeys within {order.bound_s:g} s.")
                if order.listening_s < order.bound_s:
                    line(
                        f"Registry listens since {order.listening_s:.0f} s: an instance that has not called it since "
                        "is not named here, and obeys within the same time."
                    )
            told: list[dict[str, Any]] = []
            async for word_of in switch.acknowledgements(order, within_s=wait):
                told.append(
                    {
                        "service": word_of.service,
                        "instance": word_of.instance,
                        "obeys": word_of.obeys,
                        "after_ms": round(word_of.after_s * 1000),
                        "detail": word_of.detail,
                    }
                )
                if not json:
                    obeys = "obeys" if word_of.obeys else "gave no word"
                    line(f"{word_of.instance} {obeys} after {word_of.after_s:.2f} s. {word_of.detail}")
            if json:
                print_json(
                    {
                        "subject": str(subject),
                        "frozen": frozen,
                        "changed": order.changed,
                        "version": order.version,
                        "bound_s": order.bound_s,
                        "registry_listening_s": round(order.listening_s, 3),
                        "acknowledgements": told,
                    }
                )
            return all(each["obeys"] for each in told)

    if not asyncio.run(carry_out()):
        raise typer.Exit(int(ExitCode.REFUSED))
