"""Registry as the auditing jobs reach it: over mTLS, under their own identity.

Never asks for more than a proposal: Registry's allowlist, cap and clock stand between it and a ban.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from snavio.admin.bans import BanClient, Proposal
from snavio.audit.proposer import AuditChange, ProposalReply

BURST = "burst-"
MAX_EVIDENCE = 2048


class RegistryBanClient:
    """The port `BanRegistry` over a client that is open."""

    def __init__(self, client: BanClient) -> None:
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


def _asked(proposal: Proposal, provisional: bool) -> Proposal:
    targets, evidence = proposal.affected_targets, proposal.evidence
    if proposal.kind.startswith(BURST):
        # The targets of refused commands were never checked: they may not exist, or be named to be spared.
        # Such a source leaves the warm path of all its routes, and what it named is evidence.
        named = orjson.dumps({**orjson.loads(evidence), "targets": list(targets)}).decode()
        evidence = named if len(named) <= MAX_EVIDENCE and named.isprintable() else evidence
        targets = ()
    return replace(proposal, affected_targets=targets, evidence=evidence, provisional=provisional)
