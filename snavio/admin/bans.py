"""Client for bans at Registry: proposals and audits of a traffic auditor, queries and lifts of an operator.

Never retries: a proposal that was not answered is proposed again by the caller, under the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from snavio.admin.client import RegistryClient
from snavio.v1 import registry_pb2 as wire

CALL_SECONDS: Final = 10.0
MOST: Final = 1000
"""Proposals in one call; more are sent in several."""
JOB_FOLDER: Final = "job-spark"
"""Certificate folder of the auditing jobs that `snavio up` makes, under the state folder's `certs`."""

Decision = Literal["applied", "already", "refused"]
State = Literal["applied", "confirmed", "withdrawn", "lifted"]

_DECISIONS: Final[dict[int, Decision]] = {1: "applied", 2: "already", 3: "refused"}
_STATES: Final[dict[int, State]] = {0: "applied", 1: "applied", 2: "confirmed", 3: "withdrawn", 4: "lifted"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A ban that archived traffic speaks for. Times are nanoseconds since the epoch."""

    proposal_id: str
    policy_version: str
    kind: str
    source: str
    affected_targets: tuple[str, ...]
    """`<target>`, or `<target>:<command>`; none bans the source from the warm path of all its routes."""
    total_violations: int
    window_start_unix_ns: int
    window_end_unix_ns: int
    ban_applied_until_unix_ns: int
    evidence: str = ""
    """A JSON object of at most 2048 printable characters."""
    provisional: bool = False
    warning: bool = False
    """No ban is asked for: one is near, and whoever listens for the tenant's events hears so."""


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """Registry's answer to one proposal."""

    proposal_id: str
    decision: Decision
    reason: str
    """Why it was refused, a stable word; empty otherwise."""
    detail: str
    covers: tuple[str, ...] = ()
    """`<target>:<command>` of the bans; empty with an applied proposal: every route of the source."""
    until_unix_ns: int = 0
    state: State = "applied"
    retry_after_ms: int = 0

    @property
    def applied(self) -> bool:
        """True if its bans stand, from now on or since before."""
        return self.decision != "refused"

    @property
    def final(self) -> bool:
        """True if proposing it again could change nothing."""
        return self.decision != "refused" or self.reason != "cap-reached"


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """Changes that the end of an audit made."""

    version: int
    confirmed: tuple[str, ...]
    withdrawn: tuple[str, ...]
    unknown: tuple[str, ...]
    left: tuple[str, ...]


class BanClient(RegistryClient):
    """A client of Registry under the certificate in `certificates`: a job's or an operator's."""

    call_seconds = CALL_SECONDS

    async def propose(self, proposals: Sequence[Proposal]) -> list[ProposalAnswer]:
        """One outcome per proposal, in order. After Unavailable, propose again: nothing is applied twice."""
        outcomes: list[ProposalAnswer] = []
        for start in range(0, len(proposals), MOST):
            request = wire.ProposeBansRequest(
                proposal=[_to_wire(proposal) for proposal in proposals[start : start + MOST]]
            )
            answer = await self._call("ProposeBans", request, wire.ProposeBansResponse)
            outcomes += [_outcome(told) for told in answer.outcome]
        return outcomes

    async def version(self) -> int:
        """The directory's version, for an audit to say what it began from."""
        return int((await self.ls()).version)

    async def conclude(
        self,
        *,
        from_unix_ns: int,
        to_unix_ns: int,
        policy_version: str,
        found: Iterable[str],
        kinds: Iterable[str] = (),
        as_of_version: int = 0,
    ) -> AuditAnswer:
        """End an audit of the windows that begin in the range: `found` stay, other provisional bans go.

        Ask for `version` before reading the archive and give it as `as_of_version`: what came later is left alone.
        """
        request = wire.ConcludeAuditRequest(
            from_unix_ns=from_unix_ns,
            to_unix_ns=to_unix_ns,
            policy_version=policy_version,
            kind=sorted(kinds),
            proposal_id=sorted(found),
            as_of_version=as_of_version,
        )
        told = await self._call("ConcludeAudit", request, wire.ConcludeAuditResponse)
        return AuditAnswer(
            version=told.version,
            confirmed=tuple(told.confirmed),
            withdrawn=tuple(told.withdrawn),
            unknown=tuple(told.unknown),
            left=tuple(told.left),
        )

    async def ls(self, source: str = "") -> wire.ListBansResponse:
        """Bans that stand."""
        return await self._call("ListBans", wire.ListBansRequest(source=source), wire.ListBansResponse)

    async def explain(self, source: str) -> wire.ExplainBanResponse:
        """Why a source is banned, or was lately."""
        return await self._call("ExplainBan", wire.ExplainBanRequest(source=source), wire.ExplainBanResponse)

    async def lift(
        self,
        source: str,
        *,
        target: str = "",
        name: str = "",
        reason: str = "",
        ban_list: wire.BanList = wire.BAN_LIST_WARM_BAN,
        spare_until_unix_ns: int = 0,
    ) -> wire.LiftBanResponse:
        """End bans before their time; NotFound when there are none. Operators only.

        With `spare_until_unix_ns`, neither proposals nor Slow ban the source until then, whether it has bans or not.
        """
        request = wire.LiftBanRequest(
            source=source,
            target=target,
            name=name,
            list=ban_list,
            reason=reason,
            spare_until_unix_ns=spare_until_unix_ns,
        )
        return await self._call("LiftBan", request, wire.LiftBanResponse)


def _to_wire(proposal: Proposal) -> wire.BanProposal:
    fields = asdict(proposal)
    # Repeated fields are in the singular on the wire.
    return wire.BanProposal(affected_target=fields.pop("affected_targets"), **fields)


def _outcome(told: wire.ProposalOutcome) -> ProposalAnswer:
    return ProposalAnswer(
        proposal_id=told.proposal_id,
        decision=_DECISIONS[told.decision],
        reason=told.reason,
        detail=told.detail,
        covers=tuple(told.cover),
        until_unix_ns=told.until_unix_ns,
        state=_STATES[told.state],
        retry_after_ms=told.retry_after_ms,
    )
