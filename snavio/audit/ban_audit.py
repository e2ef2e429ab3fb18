"""The last word on a range: what the batch run found is proposed, confirmed, and what it did not find is withdrawn.

Never withdraws on evidence that is not whole: a spoiled file, an hour that was deleted or an archive that
was mistyped must not set anybody free. Never judges a period that may still get events, or that has none at all: what
it finds there it proposes provisionally, so that the audit of the whole period can withdraw it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from snavio.admin.bans import Proposal, ProposalAnswer
from snavio.audit.proposals import as_asked
from snavio.audit.proposer import AT_ONCE, BanRegistry
from snavio.clock import Clock

LATENESS_NS: Final = 15 * 60_000_000_000
"""Events may come as late as that."""
DOMINANCE: Final = "dominance-"
"""Kinds of proposal that are about shares of a period."""
MOST_FOUND: Final = 3000
"""Ids that one conclusion names; a longer range is concluded in parts. Each may have another beside it, and Registry
takes three times as many."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a range."""

    spans: Sequence[tuple[int, int]]
    """First and last event time of every file that was read, nanoseconds since the epoch."""
    left_out: int = 0
    """Files that are not believed."""
    holes: int = 0
    """Stretches of events that are in no file, without a recorded reason."""
    unreadable: int = 0
    """Unreadable lines of the job's findings."""

    def doubt(self) -> str:
        """The reason why a ban cannot be withdrawn by it; empty when it can."""
        if self.left_out:
            return "files of the range are left out, and with them evidence"
        if self.holes:
            return "events of the range are missing from the archive, and with them evidence"
        if self.unreadable:
            return f"{self.unreadable} of the job's own findings cannot be read"
        return "" if self.spans else "the archive has no events of the range"

    def periods(self, since: int, until: int, period_ns: int) -> list[tuple[int, int]]:
        """The stretches of periods within the range that have events; both ends are those of periods.

        A ban was proposed on events. A period without any has lost them, whatever became of its files.
        """
        found: list[tuple[int, int]] = []
        for first, last in sorted(self.spans):
            start = max(first // period_ns * period_ns, since)
            end = min((last // period_ns + 1) * period_ns, until)
            if start >= end:
                continue
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return found


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The outcome of an audit."""

    answers: tuple[tuple[Proposal, ProposalAnswer], ...] = ()
    over: int = 0
    """Found, and the ban would have ended before now."""
    running: int = 0
    """Shares of a period that still runs; they are left to the audit of the whole period."""
    provisional: int = 0
    """Proposed on evidence that is not whole yet."""
    confirmed: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    not_judged: str = ""
    """Why nothing was confirmed or withdrawn; a sentence. Empty when it was."""
    refused: int = field(default=0)


async def audit(
    found: Sequence[Proposal],
    *,
    bans: BanRegistry,
    clock: Clock,
    policy_version: str,
    since_unix_ns: int | None,
    until_unix_ns: int | None,
    evidence: Evidence,
    began_at_version: int,
    period_minutes: int,
    also: Mapping[str, Sequence[str]] | None = None,
) -> AuditReport:
    """Tell Registry; Unavailable while it is away, and telling it again is the same as telling it once."""
    now = clock.unix_ns()
    period_ns = period_minutes * 60_000_000_000
    # Whole periods only: of a period that was cut, half the evidence would be missing.
    since = -(-(since_unix_ns or 0) // period_ns) * period_ns
    until = min(until_unix_ns if until_unix_ns is not None else now, now - LATENESS_NS)
    until = until // period_ns * period_ns
    why = evidence.doubt()
    confirmed: list[str] = []
    withdrawn: list[str] = []
    judged = [] if why else evidence.periods(since, until, period_ns)
    if not why and not judged:
        why = "no whole period with events is over for 15 minutes"
    # Before the proposals: a ban that is proposed again without reserve is confirmed by that, and untold here.
    for start, end in _parts(judged, found):
        verdict = await bans.conclude(
            from_unix_ns=start,
            to_unix_ns=end,
            policy_version=policy_version,
            found=_named(found, also or {}, start, end, period_ns),
            as_of_version=began_at_version,
        )
        confirmed += verdict.confirmed
        withdrawn += verdict.withdrawn
    lasting = [one for one in found if one.ban_applied_until_unix_ns > now]
    # In a period that runs, an honest burst has most of what there is so far.
    due = [one for one in lasting if not _still_runs(one, now, period_ns)]
    whole = [one for one in due if any(start <= one.window_start_unix_ns < end for start, end in judged)]
    partial = [one for one in due if one not in whole]
    answers = [
        *await _proposed(whole, bans, provisional=False),
        *await _proposed(partial, bans, provisional=True),
    ]
    return AuditReport(
        tuple(answers),
        over=len(found) - len(lasting),
        running=len(lasting) - len(due),
        provisional=len(partial),
        confirmed=tuple(confirmed),
        withdrawn=tuple(withdrawn),
        not_judged=f"Nothing was confirmed or withdrawn: {why}." if why else "",
        refused=sum(not answer.applied for _, answer in answers),
    )


def _named(
    found: Sequence[Proposal], also: Mapping[str, Sequence[str]], start: int, end: int, period_ns: int
) -> list[str]:
    """The findings of a range, and the names that `watch` may have given them before the last events were there.

    An alarm near the end of its period can move over it: the ban for the abuse that is found must not be withdrawn
    because it bears the name of the period beside it.
    """
    names = [one.proposal_id for one in found if start <= one.window_start_unix_ns < end]
    near = (
        other
        for one in found
        if start - period_ns <= one.window_start_unix_ns < end + period_ns
        for other in also.get(one.proposal_id, ())
    )
    return [*dict.fromkeys((*names, *near))]


def _still_runs(proposal: Proposal, now: int, period_ns: int) -> bool:
    return proposal.kind.startswith(DOMINANCE) and proposal.window_start_unix_ns + period_ns > now


async def _proposed(
    proposals: Sequence[Proposal], bans: BanRegistry, *, provisional: bool
) -> list[tuple[Proposal, ProposalAnswer]]:
    answers: list[tuple[Proposal, ProposalAnswer]] = []
    for at in range(0, len(proposals), AT_ONCE):
        part = proposals[at : at + AT_ONCE]
        asked = [as_asked(one, provisional=provisional) for one in part]
        answers += zip(part, await bans.propose(asked), strict=True)
    return answers


def _parts(judged: Sequence[tuple[int, int]], found: Sequence[Proposal]) -> Iterator[tuple[int, int]]:
    """The same ranges, cut between periods so that none has more to name than one call takes."""
    at_each = Counter(one.window_start_unix_ns for one in found)
    for start, end in judged:
        named = 0
        for window_start in sorted(at for at in at_each if start <= at < end):
            if named and named + at_each[window_start] > MOST_FOUND:
                yield start, window_start
                start, named = window_start, 0  # noqa: PLW2901
            named += at_each[window_start]
        yield start, end
