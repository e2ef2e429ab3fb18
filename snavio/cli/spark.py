"""`snavio spark`: jobs over the archive that count, judge, propose bans and write the report."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.archive_folder import archive_folder
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import line, print_json

if TYPE_CHECKING:
    from snavio.audit.ban_audit import AuditReport
    from snavio.audit.runner import JobRequest, JobResult
    from snavio.audit.verify_archive import TimeRange
    from snavio.cli.spark_views import View

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
JOBS = ("abuse", "watch", "slo", "shadow", "backfill")

spark = CommandGroup(
    "Run Spark jobs over the archive: find abuse, report on service, try a rule on the past.",
    examples=(
        "snavio spark run slo",
        "snavio spark run abuse --since 2026-11-16T10:00:00Z",
        "snavio spark run watch",
        "snavio spark run shadow --target bot --command say --limit 100",
    ),
)


@spark.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the tables.")] = Path("spark-demo"),
    json: Json = False,
) -> None:
    """Traffic with one abusive source on a mesh of its own, then the jobs: shows the ban and writes the report.

    \b
    Examples:
      snavio spark demo
      snavio spark demo --json | jq .bans
    """
    import snavio.native  # noqa: F401
    from snavio.cli.spark_demo import play

    def say(sentence: str) -> None:
        if not json:
            line(sentence)

    shown = asyncio.run(play(out.absolute(), say))
    if json:
        print_json(shown)
    if not shown["good"]:
        raise typer.Exit(ExitCode.REFUSED)


@spark.command()
def run(  # noqa: PLR0917
    job: Annotated[str, typer.Argument(help="abuse, watch, slo, shadow or backfill.")],
    since: Annotated[str, typer.Option(help="First event time, RFC 3339.")] = "",
    until: Annotated[str, typer.Option(help="End of event times, RFC 3339.")] = "",
    master: Annotated[str, typer.Option(help="local[*], spark://host:port or k8s://…")] = "local[*]",
    remote: Annotated[str, typer.Option(help="A Spark Connect address, sc://host:port.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for results.", show_default=False)] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder of the archive, if not the installation's.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="JSON of thresholds.", show_default=False)] = None,
    propose: Annotated[bool, typer.Option(help="Tell Registry what was found (abuse).")] = True,
    once: Annotated[bool, typer.Option(help="Take what is there, then end (watch).")] = False,
    again: Annotated[bool, typer.Option(help="Also hours that were done before (backfill).")] = False,
    target: Annotated[str, typer.Option(help="Target of the limit (shadow).")] = "",
    command: Annotated[str, typer.Option(help="Command of the limit (shadow).")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Commands per interval (shadow).")] = None,
    interval_s: Annotated[int, typer.Option(min=1, help="The interval, in seconds (shadow).")] = 60,
    dominant_share: Annotated[float | None, typer.Option(help="Another threshold (shadow).")] = None,
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    short: Annotated[bool, typer.Option(help="Start sooner, run slower: for small archives.")] = False,
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of Spark.", show_default=False)] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Run a job. Files that cannot be believed are left out, and named in quarantine.json.

    abuse: counts the range, proposes bans, confirms or withdraws what `watch` proposed early. watch: the same while
    the archive grows, until Ctrl-C. slo: one page on latency, refusals, fairness and clocks. shadow: whom a limit or
    another threshold would have hit. backfill: abuse's tables for a past range, hour by hour; proposes nothing.

    \b
    Examples:
      snavio spark run slo --since 2026-11-16T00:00:00Z
      snavio spark run abuse --no-propose --json | jq .proposals
      snavio spark run backfill --since 2026-11-01 --until 2026-11-08
      snavio spark run abuse --master spark://10.0.0.5:7077
    """
    from snavio.audit.jobs import SparkLocation
    from snavio.audit.runner import JobRequest
    from snavio.cli.spark_views import View
    from snavio.errors import BadRequest
    from snavio.launch.installation import attach

    if job not in JOBS:
        raise BadRequest(f"There is no job {job}; there are {', '.join(JOBS)}.", reason="unknown-job")
    wanted = _range(since, until)
    installation = attach(state_dir=state_dir, config=config)
    options = ["--policy", str(policy.absolute())] if policy is not None else []
    if job == "backfill" and again:
        options.append("--again")
    if job == "shadow":
        options += ["--target", target, "--command", command, "--interval-s", str(interval_s)]
        options += ["--limit", str(limit)] if limit is not None else []
        options += ["--dominant-share", str(dominant_share)] if dominant_share is not None else []
    order = JobRequest(
        job=job,
        out=(out or installation.mesh.state_dir / "spark" / job).absolute(),
        wanted=wanted,
        place=SparkLocation(master, remote, driver_memory, short, tuple(conf or ())),
        options=tuple(options),
        propose=propose,
    )
    archive = installation.mesh.archive() if folder is None else archive_folder(folder)
    with View(job, json=json) as view:
        if job == "watch":
            asyncio.run(_watch(installation, order, archive, view, once=once))
            return
        result = asyncio.run(_batch(installation, order, archive, view))
    _show(order, result, json=json)
    if result.audited is not None and result.audited.refused:
        raise typer.Exit(ExitCode.REFUSED)


async def _batch(installation: Any, order: JobRequest, archive: Path, view: View) -> JobResult:
    from snavio.audit.runner import MeshAccess, run_batch
    from snavio.clock import SystemClock

    clock = SystemClock()
    async with MeshAccess.open(
        installation.mesh, operator_certificates=installation.operator_certificates, clock=clock
    ) as access:
        return await run_batch(order, archive=archive, access=access, clock=clock, told=view.told)


async def _watch(installation: Any, order: JobRequest, archive: Path, view: View, *, once: bool) -> None:
    from snavio.audit.runner import MeshAccess, watch
    from snavio.clock import SystemClock

    clock = SystemClock()
    async with MeshAccess.open(
        installation.mesh, operator_certificates=installation.operator_certificates, clock=clock
    ) as access:
        await watch(
            order,
            archive=archive,
            access=access,
            clock=clock,
            told=view.told,
            seen=view.seen,
            answered=view.answered,
            once=once,
        )


def _show(order: JobRequest, result: JobResult, *, json: bool) -> None:
    from snavio.audit.proposals import read_proposals
    from snavio.audit.quarantine import document, sentence
    from snavio.clock import SystemClock

    page = result.told.get("report", "")
    found = read_proposals(order.out / "proposals.jsonl").proposals if order.job == "abuse" else ()
    audited = result.audited
    if json:
        told: dict[str, Any] = {
            "job": order.job,
            "out": str(order.out),
            "result": result.told,
            "archive": document(result.verified_archive, now_unix_ns=SystemClock().unix_ns()),
        }
        if order.job == "abuse":
            told["proposals"] = [
                {"proposal_id": one.proposal_id, "kind": one.kind, "source": one.source} for one in found
            ]
        if audited is not None:
            told["answers"] = [
                {"proposal_id": one.proposal_id, "applied": answer.applied, "reason": answer.reason}
                for one, answer in audited.answers
            ]
            told |= {"confirmed": audited.confirmed, "withdrawn": audited.withdrawn}
            told["not_judged"] = audited.not_judged
        print_json(told)
        return
    if left_out := sentence(result.verified_archive, result.report):
        line(left_out)
    line(
        f"{result.verified_archive.events:,} events of {len(result.verified_archive.entries):,} files were read."
    )
    for one in found:
        line(
            f"{one.source}: {one.kind} on {', '.join(one.affected_targets) or '-'}, {one.total_violations} times"
        )
    if audited is not None:
        _show_audit(audited)
    if order.job == "backfill":
        told = result.told
        line(
            f"{told.get('hours', 0)} hours, {told.get('proposals', 0)} findings; {told.get('skipped', 0)} hours were "
            f"done before, {told.get('empty', 0)} have no events."
        )
    if page:
        line(f"The report: {page}")
    else:
        line(f"Results: {order.out}")


def _show_audit(audited: AuditReport) -> None:
    for one, answer in audited.answers:
        line(
            f"{one.source}: "
            + ("banned" if answer.applied else f"not banned, {answer.reason}: {answer.detail}")
        )
    if audited.over:
        line(f"{audited.over} proposals are about what is over; nobody is banned for it.")
    if audited.running:
        line(f"{audited.running} are about a period that still runs; its audit judges them.")
    if audited.provisional:
        line(f"{audited.provisional} stand until the audit of their whole period.")
    line(audited.not_judged or f"{len(audited.confirmed)} confirmed, {len(audited.withdrawn)} withdrawn.")


def _range(since: str, until: str) -> TimeRange:
    from snavio.audit.verify_archive import TimeRange
    from snavio.errors import BadRequest

    wanted = TimeRange(_time("--since", since), _time("--until", until))
    if None not in (wanted.since_unix_ns, wanted.until_unix_ns) and not (
        (wanted.since_unix_ns or 0) < (wanted.until_unix_ns or 0)
    ):
        raise BadRequest("--until has to be after --since.", reason="bad-range")
    return wanted


def _time(option: str, text: str) -> int | None:
    from snavio.errors import BadRequest

    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{option}: {text!r} is no RFC 3339 time such as 2026-11-16T10:00:00Z.", reason="bad-time"
        ) from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    # In another zone a time may lie outside all that a calendar holds. No event does, so it means the first or last.
    whole = (found - EPOCH) // timedelta(microseconds=1)
    return min(max(whole, 0), LAST_US) * 1000
