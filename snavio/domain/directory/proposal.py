"""A ban proposal of the traffic audit: to keep a source off the warm path for a while, with evidence.

Never a ban by itself: Registry decides, and the proposal then carries the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

from snavio.domain.directory.rules import (
    MAX_EVIDENCE_LENGTH,
    require,
    require_command,
    require_number,
    require_target,
    require_text,
    split_source,
)

MAX_AFFECTED: Final = 100
MAX_VIOLATIONS: Final = 2**53 - 1
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class ProposalState(IntEnum):
    """State of a proposal; same numbers as the wire's."""

    APPLIED = 1
    CONFIRMED = 2
    WITHDRAWN = 3
    LIFTED = 4


@dataclass(frozen=True, slots=True)
class BanProposal:
    """One proposal that was applied. Refused ones are answered and not kept, so they may be tried again."""

    kind: ClassVar[str] = "ban_proposal"
    proposal_id: str
    policy_version: str
    abuse: str
    """The kind of abuse, such as `dominance`."""
    source: str
    affected_targets: tuple[str, ...]
    """`<target>`, or `<target>:<command>`; empty for abuse that concerns no single target."""
    total_violations: int
    window_start_unix_ns: int
    window_end_unix_ns: int
    ban_applied_until_unix_ns: int
    evidence: str = ""
    """A JSON object; for operators."""
    provisional: bool = False
    """Found in an incomplete period; ends unless the audit of the whole period finds the same."""
    state: ProposalState = ProposalState.APPLIED
    covers: tuple[str, ...] = ()
    """`<target>:<command>` of every banned route; empty for all routes of the source."""
    decided_unix_ns: int = 0
    concluded_unix_ns: int = 0
    opens_window: bool = False
    """True if no other proposal's ban was in force when this one began; then `abuse_detected` is emitted."""
    announced_unix_ns: int = 0
    expires_unix_ns: int = 0

    def __post_init__(self) -> None:
        for text, where in (
            (self.proposal_id, "proposal_id"),
            (self.policy_version, "policy_version"),
            (self.abuse, "kind"),
        ):
            require(
                _WORD.fullmatch(text) is not None,
                f"proposal.{where}",
                "letters, digits, '.', '_', ':' and '-', beginning with a letter or digit, at most 128",
            )
        split_source(self.source, "proposal.source")
        require(
            len(self.affected_targets) <= MAX_AFFECTED,
            "proposal.affected_target",
            f"at most {MAX_AFFECTED}",
        )
        for affected in self.affected_targets:
            route_of(affected)
        require_number(self.total_violations, "proposal.total_violations", 0, MAX_VIOLATIONS)
        require(
            0 < self.window_start_unix_ns < self.window_end_unix_ns,
            "proposal.window_start_unix_ns",
            "a time before window_end_unix_ns",
        )
        require(self.ban_applied_until_unix_ns > 0, "proposal.ban_applied_until_unix_ns", "a time")
        require_text(self.evidence, "proposal.evidence", MAX_EVIDENCE_LENGTH)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.proposal_id,)

    @property
    def parent(self) -> str:
        return self.source

    @property
    def reason(self) -> str:
        """The reason text of its bans, by which they are also recognised."""
        return f"{self.abuse[:64]}: {self.total_violations} violations (proposal {self.proposal_id})"

    def bans(self, target: str, name: str, now_unix_ns: int) -> bool:
        """True if it keeps the source off this route now."""
        covered = not self.covers if not target else f"{target}:{name}" in self.covers
        return covered and self.stands(now_unix_ns)

    def stands(self, now_unix_ns: int) -> bool:
        """True if its bans have neither ended nor been withdrawn."""
        return (
            self.state in (ProposalState.APPLIED, ProposalState.CONFIRMED)
            and now_unix_ns < self.ban_applied_until_unix_ns
        )


def route_of(affected: str) -> tuple[str, str]:
    """Target and command of an affected route; the command is empty for a whole target. No target contains a colon."""
    target, colon, name = affected.partition(":")
    require_target(target, "proposal.affected_target")
    if colon:
        require_command(name, "proposal.affected_target")
    return target, name
