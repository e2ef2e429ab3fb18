"""`snavio suspend` and `snavio resume`: keep a source or a whole tenant out, for a while or until further notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from snavio.cli.caller import Caller, Reason
from snavio.cli.entry_access import ask
from snavio.cli.render import time_text
from snavio.cli.times import read_span, read_time
from snavio.errors import BadRequest

Subject = Annotated[
    str,
    typer.Argument(metavar="WHO", help="A source, `<tenant>/<service>`, or a tenant."),
]
SECOND_NS = 1_000_000_000
LAST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Lasting:
    """The options `--until` and `--for`; without them there is no end."""

    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="<time>",
            help="Ends by itself at this time, such as 2026-01-31T12:00:00Z.",
        ),
    ] = ""
    span: Annotated[
        str,
        typer.Option("--for", metavar="<duration>", help="Ends by itself after 15m, 2h or 7d."),
    ] = ""

    def end_ns(self, *, now_unix_ns: int) -> int:
        """The end in nanoseconds since the epoch, 0 for none; BadRequest for one that has passed."""
        if self.until and self.span:
            raise BadRequest("Say the end once: --until or --for.", reason="bad-time")
        if self.span:
            span_ns = round(read_span(self.span, option="--for", least_s=1.0) * SECOND_NS)
            return min(now_unix_ns + span_ns, LAST_NS)
        if not self.until:
            return 0
        end = read_time(self.until, now_unix_ns=now_unix_ns, option="--until")
        if end > LAST_NS:
            raise BadRequest(
                f"--until: {self.until} is beyond what the log can hold: leave --until out for no end.",
                reason="bad-time",
            )
        if end <= now_unix_ns:
            raise BadRequest(f"--until: {self.until} is over; `--for 2h` counts from now.", reason="bad-time")
        return end


def suspend(who: Subject, *, lasting: Lasting, reason: Reason = "", caller: Caller) -> None:
    """Keep a source, or a whole tenant, out until an end or until it is resumed.

    Shield refuses its commands with `suspended`, and no certificate is issued for it. A tenant's suspension holds for
    every service that it has or registers; after the end they are let in without anybody doing anything. For
    operators. `snavio freeze` does the same to one source and shows which instances obey.

    \b
    Examples:
      snavio suspend acme/billing --for 2h -r "floods the bot"
      snavio suspend acme --until 2026-12-31T00:00:00Z -r "unpaid"
    """
    from snavio.clock import SystemClock

    source, words = _subject(who)
    end = lasting.end_ns(now_unix_ns=SystemClock().unix_ns())
    done = ask(caller, lambda client: client.suspend(source, until_unix_ns=end, reason=reason))
    until = f"until {time_text(end)}" if end else "until `snavio resume` lets it in"
    before = "" if done.changed else ", as before"
    caller.show(
        {
            "subject": who,
            "suspended": True,
            "until": time_text(end),
            "version": done.version,
            "changed": done.changed,
        },
        f"{words} is suspended {until}{before} (version {done.version}).",
    )


def resume(who: Subject, *, reason: Reason = "", caller: Caller) -> None:
    """Let a suspended source or tenant in again before its end.

    A source whose tenant is suspended stays out until the tenant is resumed, and the other way round.

    \b
    Examples:
      snavio resume acme/billing -r "new key in use"
      snavio resume acme
    """
    source, words = _subject(who)
    done = ask(caller, lambda client: client.resume(source, reason=reason))
    said = (
        f"{words} is let in again (version {done.version})."
        if done.changed
        else f"{words} was not suspended; nothing changed. `snavio bans ls` shows what is."
    )
    caller.show(
        {"subject": who, "suspended": False, "version": done.version, "changed": done.changed},
        said,
    )


def _subject(who: str) -> tuple[str, str]:
    """The source as Registry names it, and its words."""
    from snavio.domain.directory import every_source, require_name
    from snavio.domain.directory.rules import split_source

    if "/" in who and not who.endswith("/*"):
        split_source(who, "WHO")
        return who, who
    tenant = who.removesuffix("/*")
    require_name(tenant, "WHO")
    return every_source(tenant), f"Tenant {tenant}"
