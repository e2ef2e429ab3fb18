"""Runs a job from the archive to its result: belief, index, Spark, and what Registry is told of it.

Never lets Spark read what was not verified, and never keeps a proposal to itself because Registry is away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson
import structlog

from snavio.admin.bans import BanClient, ProposalAnswer
from snavio.audit.archive_index import ArchiveFollower, IndexStep
from snavio.audit.ban_audit import AuditReport, Evidence, audit
from snavio.audit.identity import job_certificates, renewed
from snavio.audit.index_file import moment, write_index, write_whole
from snavio.audit.jobs import Job, SparkLocation, Told, command
from snavio.audit.pinning import Pins
from snavio.audit.proposals import read_proposals
from snavio.audit.proposer import Proposer, alone
from snavio.audit.quarantine import write_report
from snavio.audit.routes import read_routes, write_routes
from snavio.audit.verify_archive import HOUR_NS, TimeRange, VerifiedArchive, believe
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.signed.platform_keys import PlatformKeys

LOOK_SECONDS: Final = 2.0
ROUTES_SECONDS: Final = 60.0
AWAY: Final = (Unavailable, Unauthenticated)
"""Errors that pass: a service comes back, and a certificate that ended meanwhile is renewed."""
ATTEMPTS: Final = 5
PAUSE_S: Final = 2.0
JUDGING: Final = frozenset({"abuse", "backfill"})
RESTART_S: Final = 5.0
LONGEST_RESTART_S: Final = 300.0
"""Pauses before a job that failed is started again: a full disk may have room by then."""


@dataclass(frozen=True, slots=True)
class MeshAccess:
    """The mesh, as the jobs reach it."""

    keys: PlatformKeys
    registry: MeshChannel
    bans: BanClient

    @classmethod
    @asynccontextmanager
    async def open(
        cls, mesh: MeshSettings, *, operator_certificates: Path, clock: Clock
    ) -> AsyncIterator[Self]:
        """Connections under the job's identity, whose certificate is renewed for as long as they are open."""
        folder = await job_certificates(mesh, operator_certificates=operator_certificates, clock=clock)
        files = CertificateFiles.in_folder(folder)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                renewed(folder, mesh, operator_certificates=operator_certificates, clock=clock)
            )
            channels = {}
            for service in ("signer", "registry"):
                channels[service] = MeshChannel(
                    getattr(mesh, service), files=files, service=service, trust_domain=mesh.trust_domain
                )
                stack.push_async_callback(channels[service].close)
            client = await stack.enter_async_context(
                BanClient(mesh.registry, certificates=folder, trust_domain=mesh.trust_domain)
            )
            yield cls(PlatformKeys(channels["signer"]), channels["registry"], client)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job with its options."""

    job: str
    out: Path
    wanted: TimeRange = field(default_factory=TimeRange)
    place: SparkLocation = field(default_factory=SparkLocation)
    options: tuple[str, ...] = ()
    propose: bool = True


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job."""

    verified_archive: VerifiedArchive
    report: Path
    """The report of files that were left out."""
    told: dict[str, Any]
    audited: AuditReport | None = None


async def run_batch(
    order: JobRequest, *, archive: Path, access: MeshAccess, clock: Clock, told: Told
) -> JobResult:
    """One run over a range. Conflict when another works in the same folder; Unavailable tells who is away."""
    with alone(order.out):
        pins = Pins(order.out / "files")
        pins.release()
        told({"step": "verifying"})
        # Before anything is read: proposals made meanwhile are judged by the next audit.
        began = await access.bans.version() if order.propose else 0
        keys = await access.keys.ever()
        now = clock.unix_ns()
        verified_archive = await asyncio.to_thread(
            believe, archive, keys, now_unix_ns=now, pin=pins.pin, wanted=_read_for(order)
        )
        report = order.out / "quarantine.json"
        write_report(verified_archive, report, now_unix_ns=now)
        write_index(verified_archive.entries, order.out / "index.jsonl")
        write_routes(await read_routes(access.registry), order.out / "routes.jsonl")
        told({"step": "starting", "files": len(verified_archive.entries), "events": verified_archive.events})
        options = [
            *_doubts(order, verified_archive),
            *("--index", str(order.out / "index.jsonl"), "--routes", str(order.out / "routes.jsonl")),
            *("--out", str(order.out), *_times(order.wanted), *order.options),
        ]
        try:
            line, environment = command(order.job, options, order.place, work=order.out)
            last = await Job(line, environment, log=order.out / "spark.log").run(told)
        finally:
            pins.release()
        audited = None
        if order.job == "abuse" and order.propose:
            told({"step": "proposing"})
            audited = await _audit(order, verified_archive, last, access=access, clock=clock, began=began)
        return JobResult(verified_archive, report, last, audited)


async def _audit(
    order: JobRequest,
    verified_archive: VerifiedArchive,
    last: dict[str, Any],
    *,
    access: MeshAccess,
    clock: Clock,
    began: int,
) -> AuditReport:
    lines = read_proposals(order.out / "proposals.jsonl")
    evidence = Evidence(
        [(entry.min_at_unix_ns, entry.max_at_unix_ns) for entry in verified_archive.entries],
        left_out=verified_archive.left_out,
        holes=len(verified_archive.holes),
        unreadable=lines.unreadable,
    )
    since = order.wanted.since_unix_ns
    if since is None:
        since = verified_archive.begins_unix_ns
    for attempt in range(ATTEMPTS):
        try:
            return await audit(
                lines.proposals,
                bans=access.bans,
                clock=clock,
                policy_version=str(last["policy_version"]),
                since_unix_ns=since,
                until_unix_ns=order.wanted.until_unix_ns,
                evidence=evidence,
                began_at_version=began,
                period_minutes=int(last["period_minutes"]),
                also=lines.also,
            )
        except AWAY:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def _read_for(order: JobRequest) -> TimeRange:
    """The range that a job reads: judges need the hour before, to know what was held against a source by then."""
    since = order.wanted.since_unix_ns
    if order.job not in JUDGING or since is None:
        return order.wanted
    return TimeRange(max(since - HOUR_NS, 0), order.wanted.until_unix_ns)


def _doubts(order: JobRequest, verified_archive: VerifiedArchive) -> list[str]:
    """For a backfill, which hours it may not call done."""
    if order.job != "backfill":
        return []
    path = order.out / "doubts.json"
    write_whole(path, orjson.dumps(sorted(verified_archive.doubtful_hours())))
    return ["--doubts", str(path)]


Seen = Callable[[IndexStep], None]
Answered = Callable[[Sequence[tuple[Any, ProposalAnswer]]], None]


async def watch(
    order: JobRequest,
    *,
    archive: Path,
    access: MeshAccess,
    clock: Clock,
    told: Told,
    seen: Seen,
    answered: Answered,
    once: bool = False,
) -> Proposer:
    """Follow the archive until cancelled, or take what is there once; returns the proposer with its counts."""
    with alone(order.out):
        follower = ArchiveFollower(archive, order.out, clock=clock)
        routes = order.out / "routes.jsonl"
        write_routes(await read_routes(access.registry), routes)
        proposer = Proposer(
            order.out / "proposals", answers=order.out / "answers.json", bans=access.bans, clock=clock
        )
        # Answered apart: a warning asks for nothing, and nobody waits for its answer.
        warner = Proposer(
            order.out / "warnings", answers=order.out / "warned.json", bans=access.bans, clock=clock
        )
        stop = asyncio.Event()
        seen(await asyncio.to_thread(follower.step, await access.keys.ever()))
        options = ["--index", str(follower.index), "--out", str(order.out), "--routes", str(routes)]
        options += ["--once"] if once else []
        line, environment = command("watch", [*options, *order.options], order.place, work=order.out)
        if once:
            await Job(line, environment, log=order.out / "spark.log").run(told)
            await proposer.step()
            await warner.step()
            answered(proposer.answered)
            return proposer
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(_follow(follower, access, seen)),
                group.create_task(_refresh(access, routes)),
                group.create_task(_tell(proposer, answered)),
                group.create_task(proposer.run(stop)),
                group.create_task(warner.run(stop)),
            ]
            try:
                await _lasting(lambda: Job(line, environment, log=order.out / "spark.log"), told)
            finally:
                for helper in helpers:
                    helper.cancel()
        return proposer


async def _lasting(start: Callable[[], Job], told: Told) -> None:
    """Run the job again when it fails: it goes on where it was. What is wrong with its options is raised."""
    pause = RESTART_S
    while True:
        began = time.monotonic()
        try:
            await start().run(told)
            return
        except SnavioError as error:
            if error.reason != "job-failed":
                raise
            if time.monotonic() - began > LONGEST_RESTART_S:
                pause = RESTART_S
            told({"step": "failed", "message": str(error), "again_in_s": pause})
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_RESTART_S)


async def _follow(follower: ArchiveFollower, access: MeshAccess, seen: Seen) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            keys = await access.keys.ever()
        except AWAY:
            continue  # Nothing is believed without keys; what came meanwhile is seen at the next look.
        try:
            seen(await asyncio.to_thread(follower.step, keys))
        except OSError as error:
            # A full disk, most of the time. Nothing is lost: what was not written is seen again at the next look.
            structlog.get_logger().error("the archive is not followed", message=str(error))
            await asyncio.sleep(PAUSE_S * 5)


async def _refresh(access: MeshAccess, routes: Path) -> None:
    while True:
        await asyncio.sleep(ROUTES_SECONDS)
        try:
            write_routes(await read_routes(access.registry), routes)
        except (*AWAY, OSError):
            continue  # The parameters of a minute ago do.


async def _tell(proposer: Proposer, answered: Answered) -> None:
    before = 0
    while True:
        await asyncio.sleep(0.5)
        now = proposer.counts["applied"] + proposer.counts["refused"]
        if now > before:
            answered(proposer.answered[-(now - before) :])
            before = now


def _times(wanted: TimeRange) -> list[str]:
    options = []
    if wanted.since_unix_ns is not None:
        options += ["--since", moment(wanted.since_unix_ns)]
    if wanted.until_unix_ns is not None:
        options += ["--until", moment(wanted.until_unix_ns)]
    return options
