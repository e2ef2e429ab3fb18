"""The last word on a range: what the batch run found is proposed, confirmed, and what it did not find is withdrawn.

Never withdraws on a range whose evidence is not whole: a file that somebody spoiled must not set him free. Never
judges a period that may still get events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from snavio.audit.proposals import Proposal
from snavio.audit.proposing import AT_ONCE, Answer, Desk, Verdict
from snavio.clock import Clock

LATENESS_NS: Final = 15 * 60_000_000_000
"""Events may come as late as that."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of an audit."""

    answers: tuple[tuple[Proposal, Answer], ...] = ()
    over: int = 0
    """Found, and the ban would have ended before now."""
    confirmed: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    not_judged: str = ""
    """Why nothing was confirmed or withdrawn; a sentence. Empty when it was."""
    refused: int = field(default=0)


async def audit(
    found: Sequence[Proposal],
    *,
    desk: Desk,
    clock: Clock,
    policy_version: str,
    since_unix_ns: int | None,
    until_unix_ns: int | None,
    quarantined: int,
    began_at_version: int,
    period_minutes: int,
) -> Audited:
    """Tell Registry; Unavailable while it is away, and telling it again is the same as telling it once."""
    now = clock.unix_ns()
    period_ns = period_minutes * 60_000_000_000
    # Whole periods only: of a period that was cut, half the evidence would be missing.
    since = -(-(since_unix_ns or 0) // period_ns) * period_ns
    until = min(until_unix_ns if until_unix_ns is not None else now, now - LATENESS_NS)
    until = until // period_ns * period_ns
    why, verdict = "", Verdict((), ())
    if quarantined:
        why = "Nothing was confirmed or withdrawn: files of the range are left out, and with them evidence."
    elif until <= since:
        why = "Nothing was confirmed or withdrawn: no whole period of the range is over for 15 minutes."
    else:
        # Before the proposals: a ban that is proposed again without reserve is confirmed by that, and untold here.
        verdict = await desk.conclude(
            since_unix_ns=since,
            until_unix_ns=until,
            policy_version=policy_version,
            proposal_ids=[
                proposal.proposal_id for proposal in found if since <= proposal.window_start_unix_ns < until
            ],
            as_of_version=began_at_version,
        )
    due = [proposal for proposal in found if proposal.ban_until_unix_ns > now]
    answers: list[tuple[Proposal, Answer]] = []
    for at in range(0, len(due), AT_ONCE):
        part = due[at : at + AT_ONCE]
        answers += zip(part, await desk.propose(part, provisional=False), strict=True)
    return Audited(
        tuple(answers),
        len(found) - len(due),
        verdict.confirmed,
        verdict.withdrawn,
        not_judged=why,
        refused=sum(not answer.applied for _, answer in answers),
    )
