"""`snavio spark`: jobs over the archive that count, judge, propose bans and write the report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.archive_folder import archive_folder
from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.installation import MeshOptions
from snavio.cli.options import Json
from snavio.cli.output import line
from snavio.cli.render import picked, show
from snavio.cli.times import Period, read_span

if TYPE_CHECKING:
    from snavio.admin.bans import Proposal
    from snavio.audit.ban_audit import AuditReport
    from snavio.audit.runner import JobRequest, JobResult
    from snavio.cli.spark_views import View

spark = CommandGroup(
    "Run Spark jobs over the archive: find abuse, report on service, try a rule on the past.",
    examples=(
        "snavio spark report                        one page on the whole archive",
        "snavio spark audit --since 2h              find abuse, propose bans",
        "snavio spark watch                         the same while the archive grows",
        "snavio spark shadow --target bot --command say --limit 100",
    ),
)


NAMES = {"abuse": "audit", "slo": "report"}
"""Commands that are called otherwise than the job that they run."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The Spark that a job runs on."""

    master: Annotated[str, typer.Option(help="local[*], spark://host:port or k8s://…")] = "local[*]"
    remote: Annotated[str, typer.Option(help="A Spark Connect address, sc://host:port.")] = ""
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g"
    short: Annotated[bool, typer.Option("--short", help="Start sooner, run slower: for small archives.")] = (
        False
    )
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of Spark; may be given again.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options of every job: the archive, the folder of its results, its thresholds, and its Spark."""

    out: Annotated[
        Path | None, typer.Option(help="Folder for results. Default: spark/ in the state folder.")
    ] = None
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder of the archive, if not the installation's.")
    ] = None
    policy: Annotated[Path | None, typer.Option(help="JSON of thresholds.")] = None
    spark: SparkOptions
    here: MeshOptions


@spark.command()
def audit(
    period: Period,
    propose: Annotated[bool, typer.Option(help="Tell Registry what was found.")] = True,
    *,
    options: JobOptions,
) -> None:
    """Find abuse in a range, propose bans, and confirm or withdraw what `watch` proposed early.

    Files that cannot be believed are left out, and named in quarantine.json. Exit code 1 when Registry refused.

    \b
    Examples:
      snavio spark audit --since 2h
      snavio spark audit --no-propose --json | jq .proposals
      snavio spark audit --master spark://10.0.0.5:7077
    """
    _run("abuse", options, period=period, propose=propose)


@spark.command()
def watch(
    once: Annotated[bool, typer.Option("--once", help="Take what is there, then end.")] = False,
    *,
    options: JobOptions,
) -> None:
    """Find abuse while the archive grows, and propose bans early, until Ctrl-C.

    \b
    Examples:
      snavio spark watch
      snavio spark watch --once --json
    """
    _run("watch", options, once=once)


@spark.command()
def ledger(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of `watch`'s results. Default: spark/watch in the state folder."),
    ] = None,
    *,
    here: MeshOptions,
) -> None:
    """List the sources under suspicion: points of how many, what others had refused, and when the ban would come.

    As `watch` left it at its last look; nothing is judged anew. For operators.

    \b
    Examples:
      snavio spark ledger
      snavio spark ledger --json
    """
    from snavio.audit.ledger import read_ledger
    from snavio.cli.output import ago
    from snavio.cli.render import Table

    folder = out or here.find().mesh.state_dir / "spark" / "watch"
    found = read_ledger(folder)
    rows = [
        {
            "source": one["source"],
            "kind": one["kind"],
            "target": one["target"] or "-",
            "points": f"{one['points']:,} of {one['alarm_points']:,}",
            "since": one["since"],
            "others refused": one["others_refused"] or one["refused"],
            "ban in": ago(one["seconds_to_ban"]) + (" (near)" if one["near"] else ""),
        }
        for one in found.rows
    ]
    names = ("source", "kind", "target", "points", "since", "others refused", "ban in")
    here.show(
        {"at": found.at, "suspects": list(found.rows)},
        Table(names, rows, none="Nobody is under suspicion."),
        f"As of {found.at}.",
    )


@spark.command()
def report(period: Period, *, options: JobOptions) -> None:
    """Write one HTML page on latency, refusals, fairness and clocks.

    \b
    Examples:
      snavio spark report
      snavio spark report --since 2026-11-16T00:00:00Z --until 2026-11-17T00:00:00Z
    """
    _run("slo", options, period=period)


@spark.command()
def shadow(
    period: Period,
    *,
    target: Annotated[str, typer.Option(help="Target of the limit.")] = "",
    command: Annotated[str, typer.Option(help="Command of the limit.")] = "",
    limit: Annotated[
        list[int] | None, typer.Option(min=1, help="Commands per interval; may be given again.")
    ] = None,
    interval: Annotated[
        str,
        typer.Option("--interval", "--interval-s", metavar="<duration>", help="Interval of the limit."),
    ] = "60s",
    dominant_share: Annotated[
        list[float] | None,
        typer.Option(help="Another threshold of dominance, such as 0.6; may be given again."),
    ] = None,
    without_right: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE[@TARGET[:COMMAND]]", help="If this right were taken away; may be given again."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="If the route delivered each id only once.")
    ] = False,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="JSON of thresholds: whom it would have proposed; may be given again."),
    ] = None,
    options: JobOptions,
) -> None:
    """Show whom a rule would have hit: limits, thresholds, a right taken away, strict ids, a policy.

    One question, for up to twenty values at once, in one pass over the archive. Nothing is enforced.

    \b
    Examples:
      snavio spark shadow --target bot --command say --limit 100 --limit 200
      snavio spark shadow --dominant-share 0.6 --dominant-share 0.7 --since 7d
      snavio spark shadow --without-right acme/shop@bot --since 7d
      snavio spark shadow --target bot --command say --strict
      snavio spark shadow --against strict.json --against mild.json
    """
    seconds = round(read_span(interval, option="--interval", least_s=1))
    question = ["--target", target, "--command", command, "--interval-s", str(seconds)]
    for option, values in (
        ("--limit", limit),
        ("--dominant-share", dominant_share),
        ("--without-right", without_right),
        ("--against", [path.absolute() for path in against or ()]),
    ):
        for value in values or ():
            question += [option, str(value)]
    question += ["--strict"] if strict else []
    _run("shadow", options, period=period, further=question)


@spark.command()
def backfill(
    period: Period,
    again: Annotated[bool, typer.Option("--again", help="Also hours that were done before.")] = False,
    *,
    options: JobOptions,
) -> None:
    """Make the tables of `audit` for a past range, hour by hour; proposes nothing.

    \b
    Examples:
      snavio spark backfill --since 2026-11-01 --until 2026-11-08
    """
    _run("backfill", options, period=period, further=["--again"] if again else [])


@spark.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the tables.")] = Path("spark-demo"),
    json: Json = False,
) -> None:
    """Play traffic with one abusive source on a mesh of its own, then show its ban and the report.

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
    show(shown, json=json)
    if not shown["good"]:
        raise typer.Exit(ExitCode.REFUSED)


def _run(
    job: str,
    options: JobOptions,
    *,
    period: Period | None = None,
    propose: bool = True,
    once: bool = False,
    further: list[str] | None = None,
) -> None:
    from snavio.audit.jobs import SparkLocation
    from snavio.audit.runner import JobRequest
    from snavio.audit.verify_archive import TimeRange
    from snavio.cli.spark_views import View
    from snavio.clock import SystemClock

    since, until = (period or Period()).read(now_unix_ns=SystemClock().unix_ns())
    installation = options.here.attach()
    policy = ["--policy", str(options.policy.absolute())] if options.policy is not None else []
    where = options.spark
    order = JobRequest(
        job=job,
        out=(options.out or installation.mesh.state_dir / "spark" / NAMES.get(job, job)).absolute(),
        wanted=TimeRange(since, until),
        place=SparkLocation(
            where.master, where.remote, where.driver_memory, where.short, tuple(where.conf or ())
        ),
        options=(*policy, *(further or [])),
        propose=propose,
    )
    archive = installation.mesh.archive() if options.folder is None else archive_folder(options.folder)
    with View(job, json=options.here.json) as view:
        result = asyncio.run(_work(installation, order, archive, view, once=once))
    if result is None:
        return
    _show(options.here, order, result)
    if result.audited is not None and result.audited.refused:
        raise typer.Exit(ExitCode.REFUSED)


async def _work(
    installation: Any, order: JobRequest, archive: Path, view: View, *, once: bool
) -> JobResult | None:
    """The result of a job; None of one that watches."""
    from snavio.audit.runner import MeshAccess, run_batch, watch
    from snavio.clock import SystemClock

    clock = SystemClock()
    async with MeshAccess.open(
        installation.mesh, operator_certificates=installation.identity, clock=clock
    ) as access:
        run: dict[str, Any] = {"archive": archive, "access": access, "clock": clock, "told": view.told}
        if order.job != "watch":
            return await run_batch(order, **run)
        await watch(order, **run, seen=view.seen, answered=view.answered, once=once)
        return None


def _show(here: MeshOptions, order: JobRequest, result: JobResult) -> None:
    from snavio.audit.proposals import read_proposals
    from snavio.audit.quarantine import document
    from snavio.clock import SystemClock

    audited = result.audited
    told: dict[str, Any] = {
        "job": NAMES.get(order.job, order.job),
        "out": str(order.out),
        "result": result.told,
        "archive": document(result.verified_archive, now_unix_ns=SystemClock().unix_ns()),
    }
    found: Sequence[Proposal] = ()
    if order.job == "abuse":
        found = read_proposals(order.out / "proposals.jsonl").proposals
        told["proposals"] = [picked(one, "proposal_id", "kind", "source") for one in found]
    if audited is not None:
        told["answers"] = [
            {"proposal_id": one.proposal_id, "applied": answer.applied, "reason": answer.reason}
            for one, answer in audited.answers
        ]
        told |= {"confirmed": audited.confirmed, "withdrawn": audited.withdrawn}
        told["not_judged"] = audited.not_judged
    here.show(told, *_sentences(order, result, found))


def _sentences(order: JobRequest, result: JobResult, found: Sequence[Proposal]) -> Iterator[str]:
    from snavio.audit.quarantine import sentence

    archive, told = result.verified_archive, result.told
    yield sentence(archive, result.report)
    yield f"{archive.events:,} events of {len(archive.entries):,} files were read."
    for one in found:
        targets = ", ".join(one.affected_targets) or "-"
        yield f"{one.source}: {one.kind} on {targets}, {one.total_violations} times"
    if result.audited is not None:
        yield from _audited(result.audited)
    if order.job == "backfill":
        yield (
            f"{told.get('hours', 0)} hours, {told.get('proposals', 0)} findings; {told.get('skipped', 0)} hours were "
            f"done before, {told.get('empty', 0)} have no events, {told.get('open', 0)} are not whole yet."
        )
    page = told.get("report", "")
    yield f"The report: {page}" if page else f"Results: {order.out}"


def _audited(audited: AuditReport) -> Iterator[str]:
    for one, answer in audited.answers:
        said = "banned" if answer.applied else f"not banned, {answer.reason}: {answer.detail}"
        yield f"{one.source}: {said}"
    if audited.over:
        yield f"{audited.over} proposals are about a period that is over; no source is banned for it."
    if audited.running:
        yield f"{audited.running} are about a period that still runs; its audit judges them."
    if audited.provisional:
        yield f"{audited.provisional} stand until the audit of their whole period."
    yield audited.not_judged or f"{len(audited.confirmed)} confirmed, {len(audited.withdrawn)} withdrawn."
