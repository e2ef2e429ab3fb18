"""`snavio bans`: which sources are kept off the warm path, why, and how one is let back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.ban_evidence import evidence_lines
from snavio.cli.caller import Caller, Reason, read_source
from snavio.cli.entry_access import MOST, ask, gather
from snavio.cli.group import CommandGroup
from snavio.cli.output import ago
from snavio.cli.render import Table, picked, time_text
from snavio.cli.suspend import Lasting
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.admin.bans import BanClient
    from snavio.admin.entries import EntryClient
    from snavio.config import MeshSettings
    from snavio.v1.registry_pb2 import Ban, BanProposal, ExplainBanResponse

_LISTS = {1: "warm-ban", 2: "cold-only", 3: "frozen"}
OVERRIDE = "override"
_STATES = {0: "applied", 1: "applied", 2: "confirmed", 3: "withdrawn", 4: "lifted"}

bans = CommandGroup(
    "See which sources are kept off the warm path and why, and let them back.",
    examples=(
        "snavio bans ls",
        "snavio bans explain acme/billing",
        'snavio bans lift acme/billing --reason "fixed their retry loop"',
    ),
)
Who = Annotated[str, typer.Argument(help="The source, `<tenant>/<service>`.")]


@bans.command("ls")
def list_bans(
    *,
    source: Annotated[str, typer.Option(help="Only of this source.")] = "",
    caller: Caller,
) -> None:
    """Every ban, freeze and suspension that stands, and when it ends by itself.

    \b
    Examples:
      snavio bans ls
      snavio bans ls --source acme/billing --json
    """
    wanted = read_source(source, option="--source") if source else ""

    async def question(client: EntryClient) -> tuple[list[Any], list[dict[str, Any]], bool]:
        owner = wanted.partition("/")[0]
        banned: list[tuple[Any, int]] = []
        async for each in client.entries("ban", tenant=owner):
            banned.append(each)
            if len(banned) > MOST:
                break
        suspended, more = await gather(client, "suspension", tenant=owner)
        about = (wanted, f"{owner}/*")
        return (
            [(ban, version) for ban, version in banned[:MOST] if not wanted or ban.source == wanted],
            [row for row in suspended if not wanted or row["source"] in about],
            more or len(banned) > MOST,
        )

    found, suspended, more = ask(caller, question)
    rows = [
        {
            "source": ban.source or "every source",
            "list": _LISTS[ban.list],
            "route": _route(ban),
            "ends in": _left(ban.until_unix_ns),
            "reason": ban.reason,
        }
        for ban, _ in found
    ]
    rows += [
        {
            "source": row["source"],
            "list": "suspended",
            "route": "every route",
            "ends in": row["until"] or "no time: it lasts",
            "reason": row["reason"],
        }
        for row in suspended
    ]
    caller.show(
        {"bans": [_ban(ban, version) for ban, version in found], "suspensions": suspended, "more": more},
        Table(("source", "list", "route", "ends in", "reason"), rows, none="No source is banned."),
        "And more; name one with --source." if more else None,
    )


@bans.command("cold-only")
def cold_only(
    source: Who,
    *,
    target: Annotated[str, typer.Option(help="Only on this target, with --command.")] = "",
    command: Annotated[str, typer.Option(help="Only this command of the target.")] = "",
    off: Annotated[bool, typer.Option("--off", help="Take it off the list again.")] = False,
    lasting: Lasting,
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Let only Slow decide a source's commands, on one route or on all. For operators.

    Nothing is refused by that: every right, limit and quota is looked up for each command.

    \b
    Examples:
      snavio bans cold-only acme/billing --for 1d -r "new client"
      snavio bans cold-only acme/billing --off
    """
    from snavio.clock import SystemClock
    from snavio.errors import BadRequest

    if bool(target) != bool(command):
        raise BadRequest("A route is a target and a command: say both, or neither for all routes.")
    if off:
        lift(source, target=target, command=command, cold_only=True, reason=reason, caller=caller)
        return
    end = lasting.end_ns(now_unix_ns=SystemClock().unix_ns())
    done = ask(
        caller,
        lambda client: client.cold_only(
            source, target=target, name=command, until_unix_ns=end, reason=reason
        ),
    )
    where = f"{target} {command}" if target else "every route"
    until = f" until {time_text(end)}" if end else ""
    caller.show(
        {"source": source, "until": time_text(end), "version": done.version, "changed": done.changed},
        f"{source} goes by Slow on {where}{until} (version {done.version}).",
    )


@bans.command()
def explain(source: Who, *, caller: Caller) -> None:
    """Why a source is banned, or was lately: its bans, the proposals behind them, and those that were refused.

    \b
    Examples:
      snavio bans explain acme/billing
      snavio bans explain acme/billing --json
    """
    told = caller.ask_client(_client, lambda client: client.explain(source))
    caller.show(_explanation(source, told), *_lines(source, told))


def _lines(source: str, told: ExplainBanResponse) -> Iterator[str]:
    told_of: set[str] = set()
    if not told.ban:
        yield f"{source} is not banned."
    for each in told.ban:
        why = f": {each.ban.reason}" if each.ban.reason else ""
        yield f"{_LISTS[each.ban.list]} on {_route(each.ban)}, ends in {_left(each.ban.until_unix_ns)}{why}"
    if told.allowlisted:
        yield "It is on the list of sources that no proposal bans."
    for proposal in told.proposal:
        if proposal.kind == OVERRIDE:
            yield (
                f"Spared until {_time(proposal.concluded_unix_ns)}, said {_time(proposal.decided_unix_ns)}: "
                f"{proposal.evidence or 'no reason given'}"
            )
            continue
        kind = "provisional, " if proposal.provisional else ""
        yield (
            f"proposal {proposal.proposal_id}: {kind}{_STATES[proposal.state]} {_time(proposal.decided_unix_ns)}, "
            f"{proposal.kind}, {proposal.total_violations} violations from "
            f"{_time(proposal.window_start_unix_ns)} to {_time(proposal.window_end_unix_ns)}"
        )
        told_of.add(proposal.evidence)
        for sentence in evidence_lines(proposal.evidence):
            yield f"  {sentence}"
    for each in told.ban:
        # A ban without a proposal, such as Slow's, says for itself why it is.
        if each.ban.evidence and each.ban.evidence not in told_of:
            yield f"the ban on {_route(each.ban)}:"
            for sentence in evidence_lines(each.ban.evidence):
                yield f"  {sentence}"
    for refused in told.refused:
        yield f"refused {refused.proposal.proposal_id} {_time(refused.at_unix_ns)}: {refused.detail}"


@bans.command()
def lift(
    source: Who,
    *,
    target: Annotated[str, typer.Option(help="Only its bans from this target.")] = "",
    command: Annotated[str, typer.Option(help="Only its ban from this command of the target.")] = "",
    cold_only: Annotated[bool, typer.Option("--cold-only", help="Take it off the cold-only list.")] = False,
    spare: Annotated[
        str,
        typer.Option(
            "--spare", metavar="<duration>", help="Let nothing ban it again for so long, 7d at most."
        ),
    ] = "",
    reason: Reason = "",
    caller: Caller,
) -> None:
    """Let a source back to the warm path; proposals about what it did until now ban it no more.

    With --spare neither proposals nor Slow ban it for a while, whether it is banned now or not. That ends by itself, is
    in `bans explain`, and in the log with who said it.

    \b
    Examples:
      snavio bans lift acme/billing --reason "fixed their retry loop"
      snavio bans lift acme/billing --target discord-bot --command notify-user
      snavio bans lift acme/billing --spare 2h --reason "migration tonight"
    """
    from snavio.clock import SystemClock
    from snavio.errors import BadRequest, NotFound
    from snavio.v1 import registry_pb2 as wire

    if spare and (target or cold_only):
        raise BadRequest("--spare is about the source as a whole: leave out --target and --cold-only.")
    until = 0
    if spare:
        until = SystemClock().unix_ns() + round(read_span(spare, option="--spare", least_s=1.0) * 1e9)
    if command and not target:
        raise BadRequest("--command needs --target: a command is one of a target's.")
    listed = wire.BAN_LIST_COLD_ONLY if cold_only else wire.BAN_LIST_WARM_BAN

    async def lifting(client: BanClient) -> wire.LiftBanResponse:
        try:
            return await client.lift(
                source, target=target, name=command, reason=reason, ban_list=listed, spare_until_unix_ns=until
            )
        except NotFound as error:
            standing = sorted({_route(each.ban) for each in (await client.ls(source)).ban})
            have = f"It has bans on {', '.join(standing)}." if standing else "`snavio bans ls` shows who has."
            raise NotFound(f"{error} {have}", reason=error.reason) from None

    done = caller.ask_client(_client, lifting)
    lifted = [{"list": _LISTS[ban.list], "target": ban.target, "command": ban.name} for ban in done.lifted]
    said = (f"{source} is back on the warm path of {_route(ban)}." for ban in done.lifted)
    promise = f"Nothing bans {source} until {time_text(until)}." if until else None
    caller.show(
        {"version": done.version, "lifted": lifted, "spared_until": time_text(until) or None}, *said, promise
    )


def _client(mesh: MeshSettings, certificates: Path) -> BanClient:
    from snavio.admin.bans import BanClient

    return BanClient(mesh.registry, certificates=certificates, trust_domain=mesh.trust_domain)


def _route(ban: Ban) -> str:
    return f"{ban.target} {ban.name}".strip() or "every route"


def _left(until_unix_ns: int) -> str:
    from snavio.clock import SystemClock

    if not until_unix_ns:
        return "no time: it lasts"
    return ago(max(0, until_unix_ns - SystemClock().unix_ns()) / 1e9)


def _time(unix_ns: int) -> str:
    return time_text(unix_ns) or "-"


def _ban(ban: Ban, version: int) -> dict[str, Any]:
    return {
        "list": _LISTS[ban.list],
        "source": ban.source or None,
        "target": ban.target or None,
        "command": ban.name or None,
        "until": _time(ban.until_unix_ns) if ban.until_unix_ns else None,
        "reason": ban.reason or None,
        "evidence": ban.evidence or None,
        "version": version,
    }


def _proposal(proposal: BanProposal) -> dict[str, Any]:
    return {
        **picked(
            proposal, "proposal_id", "policy_version", "kind", "source", "total_violations", "provisional"
        ),
        "affected_targets": list(proposal.affected_target),
        "window_start": _time(proposal.window_start_unix_ns),
        "window_end": _time(proposal.window_end_unix_ns),
        "ban_applied_until": _time(proposal.ban_applied_until_unix_ns),
        "evidence": proposal.evidence or None,
    }


def _explanation(source: str, told: ExplainBanResponse) -> dict[str, Any]:
    return {
        "source": source,
        "version": told.version,
        "allowlisted": told.allowlisted,
        "bans": [_ban(each.ban, each.version) for each in told.ban],
        "proposals": [
            _proposal(each)
            | {
                "state": _STATES[each.state],
                "covers": list(each.cover),
                "decided": _time(each.decided_unix_ns),
                "concluded": _time(each.concluded_unix_ns) if each.concluded_unix_ns else None,
            }
            for each in told.proposal
        ],
        "refused": [
            _proposal(each.proposal)
            | {"reason": each.reason, "detail": each.detail, "at": _time(each.at_unix_ns)}
            for each in told.refused
        ],
    }
