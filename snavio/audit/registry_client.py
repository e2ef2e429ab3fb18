"""Registry as the auditing jobs reach it: over mTLS, under their own identity.

Never asks for more than a proposal: Registry's allowlist, cap and clock stand between it and a ban.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from snavio.admin import bans
from snavio.audit.proposals import Proposal
from snavio.audit.proposer import AuditChange, ProposalReply

BURST = "burst-"
MAX_EVIDENCE = 2048


class RegistryBanClient:
    """A `Desk` over a client that is open."""

    def __init__(self, client: bans.BanClient) -> None:
        self._client = client

    async def version(self) -> int:
        return await self._client.version()

    async def propose(self, proposals: Sequence[Proposal], *, provisional: bool) -> Sequence[ProposalReply]:
        outcomes = await self._client.propose([_asked(proposal, provisional) for proposal in proposals])
        return [
            ProposalReply(
                outcome.proposal_id,
                outcome.decision != "refused",
                outcome.reason,
                outcome.detail,
                0 if outcome.final else max(outcome.retry_after_ms, 1000),
            )
            for outcome in outcomes
        ]

    async def conclude(
        self,
        *,
        since_unix_ns: int,
        until_unix_ns: int,
        policy_version: str,
        proposal_ids: Sequence[str],
        as_of_version: int,
    ) -> AuditChange:
        told = await self._client.conclude(
            from_unix_ns=since_unix_ns,
            to_unix_ns=until_unix_ns,
            policy_version=policy_version,
            found=proposal_ids,
            as_of_version=as_of_version,
        )
        return AuditChange(told.confirmed, told.withdrawn)


def _asked(proposal: Proposal, provisional: bool) -> bans.Proposal:
    targets, evidence = proposal.affected_targets, proposal.evidence
    if proposal.kind.startswith(BURST):
        # Nobody checked the targets of refused commands: they may not exist, or be named to have them spared. Such
        # a source leaves the warm path of all its routes, and what it named is evidence.
        named = orjson.dumps({**orjson.loads(evidence), "targets": list(targets)}).decode()
        evidence = named if len(named) <= MAX_EVIDENCE and named.isprintable() else evidence
        targets = ()
    return bans.Proposal(
        proposal_id=proposal.proposal_id,
        policy_version=proposal.policy_version,
        kind=proposal.kind,
        source=proposal.source,
        affected_targets=targets,
        total_violations=proposal.total_violations,
        window_start_unix_ns=proposal.window_start_unix_ns,
        window_end_unix_ns=proposal.window_end_unix_ns,
        ban_applied_until_unix_ns=proposal.ban_until_unix_ns,
        evidence=evidence,
        provisional=provisional,
    )
