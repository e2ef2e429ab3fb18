"""Carries proposals to Registry: kept until they are answered, sent again after a pause, answered once.

Never loses a proposal because Registry is away or this process was killed, and never proposes a ban that would be
over already. What was sent and not written down is sent again; its id makes that the same proposal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import orjson
import structlog

from snavio.admin.bans import AuditAnswer, Proposal, ProposalAnswer
from snavio.audit.index_file import write_whole
from snavio.audit.proposals import as_asked, read_proposals
from snavio.clock import Clock
from snavio.errors import BadRequest, Conflict, Saturated, SnavioError, Unauthenticated, Unavailable

AT_ONCE: Final = 500
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LOOK_SECONDS: Final = 1.0
LEAST_WAIT_MS: Final = 1000
"""Before a proposal is sent again that Registry has put off."""
REMEMBERED_NS: Final = 86_400_000_000_000
KEPT_FILES: Final = 50
"""Files of proposals that stay after all they say was answered."""


class BanRegistry(Protocol):
    """Registry, as a proposer sees it; see `BanClient`. The same proposal again changes nothing."""

    async def propose(self, proposals: Sequence[Proposal]) -> Sequence[ProposalAnswer]: ...
    async def conclude(
        self,
        *,
        from_unix_ns: int,
        to_unix_ns: int,
        policy_version: str,
        found: Sequence[str],
        as_of_version: int,
    ) -> AuditAnswer: ...


class ReplyFile:
    """Answered proposals, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._until: dict[str, int] = {}
        if path.is_file():
            found = orjson.loads(path.read_bytes())
            self._until = {str(name): int(until) for name, until in found.items()}

    def __contains__(self, proposal_id: str) -> bool:
        return proposal_id in self._until

    def keep(self, answered: Sequence[Proposal], *, now_unix_ns: int) -> None:
        """Write down that these need not be sent again; forgets those that ended a day ago."""
        self._until.update(
            (proposal.proposal_id, proposal.ban_applied_until_unix_ns) for proposal in answered
        )
        old = now_unix_ns - REMEMBERED_NS
        self._until = {name: until for name, until in self._until.items() if until >= old}
        write_whole(self._path, orjson.dumps(self._until))


class Proposer:
    """Sends what a folder of proposal files holds. One at a time per folder; see `alone`."""

    def __init__(self, folder: Path, *, answers: Path, bans: BanRegistry, clock: Clock) -> None:
        self._folder = folder
        self._answers = ReplyFile(answers)
        self._bans = bans
        self._clock = clock
        self._log = structlog.get_logger()
        self._read: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, Proposal] = {}
        self._not_before: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.answered: list[tuple[Proposal, ProposalAnswer]] = []
        """The last thousand answers, for display."""

    @property
    def waiting(self) -> int:
        """Proposals without an answer."""
        return len(self._waiting)

    async def step(self) -> int:
        """Send what is due; how many were answered. Unavailable while Registry is away: nothing is lost by that."""
        self._gather()
        now = self._clock.unix_ns()
        for name, proposal in list(self._waiting.items()):
            if proposal.ban_applied_until_unix_ns <= now:
                self.counts["over"] += 1
                del self._waiting[name]
        due = [proposal for name, proposal in self._waiting.items() if self._not_before.get(name, 0) <= now]
        done = 0
        for at in range(0, len(due), AT_ONCE):
            done += self._take(due[at : at + AT_ONCE], await self._send(due[at : at + AT_ONCE]))
        if not self._waiting:
            self._tidy()
        return done

    async def run(self, stop: asyncio.Event) -> None:
        """Step until `stop`, with longer pauses while Registry is away."""
        pause = LOOK_SECONDS
        while not stop.is_set():
            try:
                await self.step()
                pause = LOOK_SECONDS
            except (Unavailable, Unauthenticated, Saturated) as error:
                self.counts["away"] += 1
                pause = min(max(FIRST_PAUSE_S, pause * 2), LONGEST_PAUSE_S)
                self._log.warning("proposals wait", number=self.waiting, reason=error.reason)
            except OSError as error:
                # A full disk: what is not written down is sent again, and its id makes that the same proposal.
                self.counts["failed"] += 1
                pause = LONGEST_PAUSE_S
                self._log.error("answers cannot be kept", message=str(error))
            except SnavioError as error:
                # Ours to mend, not to give up on: the proposals stay where they are.
                self.counts["failed"] += 1
                pause = LONGEST_PAUSE_S
                self._log.error("proposals refused as a whole", reason=error.reason, message=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    def _gather(self) -> None:
        """Read files that are new or were written again: a batch that Spark repeats has the same name."""
        for path in sorted(self._folder.glob("*.jsonl")):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            mark = (found.st_mtime_ns, found.st_ino)
            if self._read.get(path.name) == mark:
                continue
            self._read[path.name] = mark
            lines = read_proposals(path)
            if lines.unreadable:
                self.counts["unreadable"] += lines.unreadable
                self._log.error("lines are no proposals", file=path.name, number=lines.unreadable)
            for proposal in lines.proposals:
                if proposal.proposal_id not in self._answers:
                    self._waiting[proposal.proposal_id] = proposal

    async def _send(self, due: Sequence[Proposal]) -> Sequence[ProposalAnswer]:
        try:
            answers = await self._bans.propose([as_asked(proposal, provisional=True) for proposal in due])
        except BadRequest as error:
            if len(due) == 1:
                return [ProposalAnswer(due[0].proposal_id, "refused", error.reason, str(error))]
            # One that Registry cannot read must not hold up the others.
            half = len(due) // 2
            return [*await self._send(due[:half]), *await self._send(due[half:])]
        if [answer.proposal_id for answer in answers] != [proposal.proposal_id for proposal in due]:
            raise Conflict("Registry answered to other proposals than it was sent.", reason="bad-answer")
        return answers

    def _take(self, sent: Sequence[Proposal], answers: Sequence[ProposalAnswer]) -> int:
        now = self._clock.unix_ns()
        final = []
        for proposal, answer in zip(sent, answers, strict=True):
            if not answer.final:
                wait_ms = max(answer.retry_after_ms, LEAST_WAIT_MS)
                self._not_before[proposal.proposal_id] = now + wait_ms * 1_000_000
                self.counts["put off"] += 1
                continue
            final.append(proposal)
            self.counts["applied" if answer.applied else "refused"] += 1
            self.answered = [*self.answered[-999:], (proposal, answer)]
        if final:
            self._answers.keep(final, now_unix_ns=now)
        for proposal in final:
            self._waiting.pop(proposal.proposal_id, None)
            self._not_before.pop(proposal.proposal_id, None)
        return len(final)

    def _tidy(self) -> None:
        """Files that have said all they had to say; the newest may still be written again."""
        for path in sorted(self._folder.glob("*.jsonl"))[:-KEPT_FILES]:
            path.unlink(missing_ok=True)
            self._read.pop(path.name, None)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`; Conflict when another run has it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"Another run works in {folder} already; wait for it, or name another folder with --out.",
                reason="already-running",
            ) from None
        yield
    finally:
        os.close(lock)
