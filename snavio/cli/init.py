"""`snavio init`: a registration file with comments, from a few answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from snavio.cli.options import Context, Json
from snavio.cli.output import program
from snavio.cli.render import show

DEFAULT_FILE = Path("service.toml")


@dataclass(frozen=True, slots=True)
class RegistrationAnswers:
    """Contents of a registration file."""

    tenant: str
    principal: str
    services: list[str]
    target: str = ""
    """Empty for a tenant that only sends."""
    command: str = ""
    senders: list[str] = field(default_factory=list)
    profile: str = "low"
    limit: int = 0


def init(
    *,
    tenant: Annotated[
        str, typer.Option(help="The tenant. Default: that of the context.", show_default=False)
    ] = "",
    principal: Annotated[
        str,
        typer.Option(
            help="The principal that acts as the services. Default: that of the context.", show_default=False
        ),
    ] = "",
    service: Annotated[
        list[str] | None,
        typer.Option(help="A service, such as billing; may be given again.", show_default=False),
    ] = None,
    target: Annotated[
        str, typer.Option(help="A name that others send commands to, such as acme-bot.", show_default=False)
    ] = "",
    command: Annotated[
        str, typer.Option(help="A command that it takes, such as notify-user.", show_default=False)
    ] = "",
    sender: Annotated[
        list[str] | None,
        typer.Option(
            help="A source that may send it: a service, or <tenant>/<service>; may be given again. Default: "
            "the services.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="How fast a revoked right has to end: critical, moderate, low or sync.")
    ] = "low",
    limit: Annotated[int, typer.Option(min=0, help="At most so many commands a minute; 0: no limit.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = DEFAULT_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    context: Context = None,
    json: Json = False,
) -> None:
    """Write a registration file, commented, from a few answers.

    Asks on a terminal for what no option says; elsewhere it takes the options alone.

    \b
    Examples:
      snavio init
      snavio init --service billing --target acme-bot --command notify-user
    """
    from snavio.cli.registration import parse_registration
    from snavio.errors import StateError

    if out.exists() and not force:
        raise StateError(
            f"{out} is there already: --force replaces it, --out names another.", reason="file-taken"
        )
    known_tenant, known_principal = _known(context) if not (tenant and principal) else ("", "")
    answers = _answers(
        tenant or known_tenant,
        principal or known_principal,
        service or [],
        target,
        command,
        sender or [],
        profile,
        limit,
    )
    text = registration_text(answers)
    # Judged as `snavio register` would, before it is written.
    parse_registration(text, out)
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise StateError(f"{out} cannot be written: {error.strerror}.", reason="unwritable") from None
    show(
        {"file": str(out), "tenant": answers.tenant, "services": answers.services, "target": answers.target},
        f"Wrote {out}. Next: `{program()} register -f {out} --dry-run` shows what it would change, and without "
        "--dry-run changes it.",
        json=json,
    )


def _known(context: str | None) -> tuple[str, str]:
    """Tenant and principal of the context in force, where there is one."""
    from snavio.cli.actor import read_actor
    from snavio.domain.identity import IdentityKind
    from snavio.sdk.context import chosen

    found = chosen(context)
    if found is None or not found.tenant:
        return "", ""
    who = read_actor(found.identity, trust_domain=found.trust_domain).identity
    return found.tenant, who.name if who.kind is IdentityKind.PRINCIPAL else ""


def _answers(  # noqa: PLR0917  one per question
    tenant: str,
    principal: str,
    services: list[str],
    target: str,
    command: str,
    senders: list[str],
    profile: str,
    limit: int,
) -> RegistrationAnswers:
    asked = sys.stdin.isatty()
    tenant = tenant or _ask("Tenant", "--tenant", asked=asked)
    principal = principal or _ask("Principal that acts as the services", "--principal", asked=asked)
    if not services:
        services = (
            _ask("Services, with commas between them", "--service", asked=asked).replace(",", " ").split()
        )
    if asked and not target:
        target = typer.prompt(
            "Target that takes commands; empty for none", default="", show_default=False
        ).strip()
    if not target:
        return RegistrationAnswers(tenant, principal, services)
    command = command or _ask("A command that it takes", "--command", asked=asked, default="notify-user")
    return RegistrationAnswers(
        tenant, principal, services, target, command, senders or services, profile, limit
    )


def _ask(question: str, option: str, *, asked: bool, default: str = "") -> str:
    from snavio.errors import BadRequest

    answer = ""
    if asked:
        answer = typer.prompt(question, default=default or None).strip()
    if not answer:
        raise BadRequest(f"Give {option}; on a terminal it would be asked for.", reason="missing-option")
    return answer


def registration_text(answers: RegistrationAnswers) -> str:
    """The file."""
    principals = _list([answers.principal])
    lines = [
        "# A registration: what the directory shall hold about this tenant. `snavio register -f` writes it,",
        "# all of it or nothing; what is in the directory and not here stays. docs/directory.md explains every key.",
        f"tenant = {_text(answers.tenant)}",
        "",
        "# People and machines that act for the tenant. One that is taken out loses its certificates.",
        f"principals = {principals}",
        "",
        "# Services send and receive. Its principals may act as a service: `snavio send --as NAME`, the SDK.",
    ]
    for name in answers.services:
        lines += ["[[service]]", f"name = {_text(name)}", f"principals = {principals}", ""]
    if answers.target:
        lines += _target_lines(answers)
    return "\n".join(lines)


def _target_lines(answers: RegistrationAnswers) -> list[str]:
    lines = [
        "# A name that commands are sent to; it belongs to the first tenant that claims it.",
        "[[target]]",
        f"name = {_text(answers.target)}",
        "",
        "# One per command that the target takes.",
        "[[route]]",
        f"target = {_text(answers.target)}",
        f"command = {_text(answers.command)}",
        "# How soon a right that was revoked has to end: sync (at once), critical (5 s), moderate (30 s), low (120 s).",
        f"profile = {_text(answers.profile)}",
        '# "strict" delivers an id once within 300 s.',
        'dedupe_mode = "none"',
    ]
    if answers.limit:
        lines.append(f"limit = {{ max = {answers.limit}, interval_seconds = 60 }}")
    else:
        lines.append("# limit = { max = 1000, interval_seconds = 60, burst = 50 }")
    lines += ["", "# Who may send it. Without an entry nobody may."]
    for sender in answers.senders:
        lines += [
            "[[acl]]",
            f"source = {_text(sender)}",
            f"target = {_text(answers.target)}",
            f"command = {_text(answers.command)}",
            "",
        ]
    return lines


def _text(words: str) -> str:
    import json

    return json.dumps(words)


def _list(words: list[str]) -> str:
    return "[" + ", ".join(map(_text, words)) + "]"
