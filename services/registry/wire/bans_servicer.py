"""The wire face of bans: proposals, audits, listing, evidence, and lifting.

Never answers that a ban was applied before it is durable, and never forgets to tell of one: an event that was not
recorded before a crash is recorded after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from services.registry.reads.visibility import sees_all
from services.registry.writes.bans import (
    AuditedRange,
    BanPolicy,
    BanSelector,
    ProposalOutcome,
    Proposals,
    override,
)
from services.registry.writes.ownership import Ownership
from snavio.domain.directory import (
    Ban,
    BanList,
    BanProposal,
    DirectoryView,
    Draft,
    is_over,
    require_text,
)
from snavio.domain.directory.rules import require_command, require_target, split_source
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed, NotFound, SnavioError
from snavio.ports.directory import Directory
from snavio.replication.directory_wire import value_from_wire, value_to_wire
from snavio.rpc.server import Call, Methods
from snavio.telemetry.events import AbuseDetected, BanNear, Event, moment
from snavio.v1 import registry_pb2 as wire

MAX_PROPOSALS: Final = 1000
MAX_FOUND: Final = 10_000
MAX_LISTED: Final = 5000
MAX_EXPLAINED: Final = 100
MAX_REFUSED: Final = 1000
MAX_WARNED: Final = 10_000
SCAN: Final = 1_000_000

Record = Callable[[Event, int], None]


@dataclass(frozen=True, slots=True)
class _Refused:
    proposal: BanProposal
    reason: str
    detail: str
    at_unix_ns: int


class BansServicer:
    """Every method of `snavio.v1.Registry` about bans but `SetBan`."""

    def __init__(
        self, *, directory: Directory, ownership: Ownership, policy: BanPolicy, record: Record, actor: str
    ) -> None:
        self._directory = directory
        self._clock = ownership.clock
        self._policy = policy
        self._proposals = Proposals(ownership, policy)
        self._record = record
        self._actor = actor
        self._refused: deque[_Refused] = deque(maxlen=MAX_REFUSED)
        self._counts: Counter[str] = Counter()
        self._warned: OrderedDict[str, None] = OrderedDict()
        # One at a time, or two calls would both find the same event untold.
        self._announcing = asyncio.Lock()
        self._log = structlog.get_logger()

    def register(self, methods: Methods) -> None:
        """Adds the handlers."""
        at = "/snavio.v1.Registry/"
        methods.unary(at + "ProposeBans", self.propose, wire.ProposeBansRequest)
        methods.unary(at + "ConcludeAudit", self.conclude, wire.ConcludeAuditRequest)
        methods.unary(at + "ListBans", self.list_bans, wire.ListBansRequest)
        methods.unary(at + "ExplainBan", self.explain, wire.ExplainBanRequest)
        methods.unary(at + "LiftBan", self.lift, wire.LiftBanRequest)

    def counters(self) -> dict[str, int]:
        """Proposals by outcome."""
        return dict(self._counts)

    async def propose(self, request: wire.ProposeBansRequest, call: Call) -> wire.ProposeBansResponse:
        """Decide about every proposal, as one write."""
        if len(request.proposal) > MAX_PROPOSALS:
            raise BadRequest(f"proposal: must be at most {MAX_PROPOSALS}.", reason="too-many")
        proposals = [value_from_wire(BanProposal, proposal) for proposal in request.proposal]
        now = self._clock.unix_ns()
        outcomes: list[ProposalOutcome] = []

        def decide(view: DirectoryView) -> Sequence[Draft]:
            ruling = self._proposals.rule(view, proposals, now)
            outcomes[:] = ruling.outcomes
            return ruling.drafts

        written = await self._directory.write(
            decide, actor=call.peer.identity.spiffe_id, reason=f"{len(proposals)} proposals"
        )
        for outcome in outcomes:
            if outcome.proposal.warning and not outcome.refused:
                self._warn(outcome.proposal, now)
            elif outcome.refused:
                self._refused.append(_Refused(outcome.proposal, outcome.refused, outcome.detail, now))
                self._counts[f"refused.{outcome.refused}"] += 1
            else:
                self._counts["applied" if outcome.applied else "already"] += 1
        if any(outcome.applied for outcome in outcomes):
            self._log.info("bans applied", count=sum(outcome.applied for outcome in outcomes))
        await self._announce_if_possible()
        return wire.ProposeBansResponse(
            version=written.version, outcome=[_told(outcome) for outcome in outcomes]
        )

    def _warn(self, proposal: BanProposal, now: int) -> None:
        """Record `ban_near`, once for each id; a life of Registry that is over has forgotten which."""
        if proposal.proposal_id in self._warned:
            return
        affected = dict.fromkeys(each.partition(":")[0] for each in proposal.affected_targets)
        try:
            self._record(
                BanNear(
                    source=proposal.source,
                    affected_targets=tuple(affected),
                    total_violations=proposal.total_violations,
                    reason=proposal.abuse,
                ),
                now,
            )
        except SnavioError as error:
            self._counts["untold"] += 1
            self._log.warning("ban_near was not recorded", reason=error.reason, message=str(error))
            return
        self._counts["warned"] += 1
        self._warned[proposal.proposal_id] = None
        if len(self._warned) > MAX_WARNED:
            self._warned.popitem(last=False)

    async def conclude(self, request: wire.ConcludeAuditRequest, call: Call) -> wire.ConcludeAuditResponse:
        """End an audit, as one write; the same again, or another auditor's, finds nothing left to do."""
        if len(request.proposal_id) > MAX_FOUND:
            raise BadRequest(f"proposal_id: must be at most {MAX_FOUND}.", reason="too-many")
        if not request.policy_version:
            raise BadRequest("policy_version: must be said.", reason="bad-field")
        audited = AuditedRange(
            from_unix_ns=request.from_unix_ns,
            to_unix_ns=request.to_unix_ns,
            policy_version=request.policy_version,
            kinds=frozenset(request.kind),
            found=frozenset(request.proposal_id),
            as_of_version=request.as_of_version,
        )
        now = self._clock.unix_ns()
        answer = wire.ConcludeAuditResponse()

        def decide(view: DirectoryView) -> Sequence[Draft]:
            done = self._proposals.conclude(view, audited, now)
            told = wire.ConcludeAuditResponse(
                confirmed=done.confirmed, withdrawn=done.withdrawn, unknown=done.unknown, left=done.left
            )
            answer.CopyFrom(told)
            return done.drafts

        written = await self._directory.write(decide, actor=call.peer.identity.spiffe_id, reason="audit")
        answer.version = written.version
        self._counts["confirmed"] += len(answer.confirmed)
        self._counts["withdrawn"] += len(answer.withdrawn)
        await self._announce_if_possible()
        return answer

    async def list_bans(self, request: wire.ListBansRequest, call: Call) -> wire.ListBansResponse:
        """Bans in force that the caller may see."""
        reader = call.peer.identity
        if request.source:
            _require_sight(reader, request.source)
        version, found = await self._directory.read(lambda view: self._standing(view, request.source))
        seen = [(ban, at) for ban, at in found if _sees(reader, ban.source)]
        return wire.ListBansResponse(
            version=version,
            ban=[_standing_to_wire(ban, at, reader) for ban, at in seen[:MAX_LISTED]],
            more=len(seen) > MAX_LISTED,
        )

    async def explain(self, request: wire.ExplainBanRequest, call: Call) -> wire.ExplainBanResponse:
        """Every proposal behind a ban, present and past."""
        reader, source = call.peer.identity, request.source
        _require_sight(reader, source)

        def question(view: DirectoryView) -> tuple[list[tuple[Ban, int]], list[BanProposal]]:
            about = view.under(BanProposal, source, limit=SCAN)
            return self._standing(view, source), sorted(about, key=lambda p: -p.decided_unix_ns)

        version, (bans, proposals) = await self._directory.read(question)
        refused = [each for each in reversed(self._refused) if each.proposal.source == source]
        return wire.ExplainBanResponse(
            version=version,
            ban=[_standing_to_wire(ban, at, reader) for ban, at in bans],
            proposal=[_proposal_to_wire(proposal, reader) for proposal in proposals[:MAX_EXPLAINED]],
            refused=[
                wire.RefusedProposal(
                    proposal=_proposal_to_wire(each.proposal, reader),
                    reason=each.reason,
                    detail=each.detail,
                    at_unix_ns=each.at_unix_ns,
                )
                for each in refused[:MAX_EXPLAINED]
            ],
            allowlisted=self._policy.spares(source),
        )

    async def lift(self, request: wire.LiftBanRequest, call: Call) -> wire.LiftBanResponse:
        """End bans before their time."""
        require_text(request.reason, "reason")
        split_source(request.source, "source")
        if request.target:
            require_target(request.target, "target")
        if request.name:
            require_command(request.name, "name")
            require_target(request.target, "target")
        listed = BanList(request.list or BanList.WARM_BAN) if request.list in (0, 1, 2) else None
        if listed is None:
            raise BadRequest("list: must be WARM_BAN (1) or COLD_ONLY (2).", reason="bad-field")
        now = self._clock.unix_ns()
        promise = None
        if request.spare_until_unix_ns:
            if listed is not BanList.WARM_BAN or request.target:
                raise BadRequest(
                    "spare_until_unix_ns: is a promise to the source as a whole, about warm bans.",
                    reason="bad-field",
                )
            promise = override(
                request.source, until_unix_ns=request.spare_until_unix_ns, now=now, reason=request.reason
            )
        lifted: list[Ban] = []

        def decide(view: DirectoryView) -> Sequence[Draft]:
            lifted[:], drafts = self._proposals.lift(
                view, BanSelector(listed, request.source, request.target, request.name), now, promise
            )
            if not lifted and promise is None:
                raise NotFound(f"{request.source} has no such ban.", reason="no-ban")
            return drafts

        written = await self._directory.write(
            decide, actor=call.peer.identity.spiffe_id, reason=request.reason
        )
        self._counts["lifted"] += len(lifted)
        return wire.LiftBanResponse(version=written.version, lifted=[value_to_wire(ban) for ban in lifted])

    async def _announce_if_possible(self) -> None:
        """Announce bans after every call about proposals; one that could not be recorded is recorded with the next."""
        try:
            await self.announce()
        except SnavioError as error:
            # The bans are durable, and whoever proposed them must hear so: proposed again, they would be the same.
            self._counts["untold"] += 1
            self._log.warning("abuse_detected was not recorded", reason=error.reason, message=str(error))

    async def announce(self) -> None:
        """Record `abuse_detected` for every ban window without such an event, then mark the window as announced.

        In this order: after a crash in between the event is recorded twice, never not at all.
        """
        async with self._announcing:
            _, known = await self._directory.read(lambda view: view.beginning(BanProposal, limit=SCAN))
            due = [p for p in known if p.opens_window and not p.announced_unix_ns]
            if not due:
                return
            now = self._clock.unix_ns()
            for proposal in due:
                affected = dict.fromkeys(each.partition(":")[0] for each in proposal.affected_targets)
                self._record(
                    AbuseDetected(
                        source=proposal.source,
                        affected_targets=tuple(affected),
                        total_violations=proposal.total_violations,
                        ban_applied_until=moment(proposal.ban_applied_until_unix_ns) or "",
                    ),
                    now,
                )

            def told(view: DirectoryView) -> Sequence[Draft]:
                # Looked up again: an audit may have moved it meanwhile.
                still = [view.find(BanProposal, *p.key) for p in due]
                return [Draft(replace(p, announced_unix_ns=now)) for p in still if p is not None]

            await self._directory.write(told, actor=self._actor, reason="abuse_detected was recorded")

    def _standing(self, view: DirectoryView, source: str) -> list[tuple[Ban, int]]:
        now = self._clock.unix_ns()
        found = view.under(Ban, source, limit=SCAN) if source else view.beginning(Ban, limit=SCAN)
        return [(ban, view.version_of(Ban, *ban.key)) for ban in found if not is_over(ban, now)]


def _sees(reader: Identity, source: str) -> bool:
    if sees_all(reader) or reader.kind is IdentityKind.JOB:
        return True
    return bool(source) and source.partition("/")[0] == reader.tenant


def _require_sight(reader: Identity, source: str) -> None:
    split_source(source, "source")
    if not _sees(reader, source):
        raise NotAllowed(f"{reader} may not read the bans of {source}.", reason="not-owner")


def _standing_to_wire(ban: Ban, version: int, reader: Identity) -> wire.StandingBan:
    shown = ban if sees_all(reader) else replace(ban, evidence="")
    return wire.StandingBan(ban=value_to_wire(shown), version=version)


def _proposal_to_wire(proposal: BanProposal, reader: Identity) -> wire.BanProposal:
    # Evidence may quote what other tenants sent.
    shown = (
        proposal if sees_all(reader) or reader.kind is IdentityKind.JOB else replace(proposal, evidence="")
    )
    told: wire.BanProposal = value_to_wire(shown)
    return told


def _told(outcome: ProposalOutcome) -> wire.ProposalOutcome:
    proposal = outcome.proposal
    if outcome.refused:
        withdrawn = outcome.refused in ("withdrawn", "lifted") and proposal.concluded_unix_ns
        return wire.ProposalOutcome(
            proposal_id=proposal.proposal_id,
            decision=wire.PROPOSAL_DECISION_REFUSED,
            reason=outcome.refused,
            detail=outcome.detail,
            state=wire.ProposalState.Name(proposal.state if withdrawn else 0),
            retry_after_ms=outcome.retry_after_ms,
        )
    decision = wire.PROPOSAL_DECISION_APPLIED if outcome.applied else wire.PROPOSAL_DECISION_ALREADY
    return wire.ProposalOutcome(
        proposal_id=proposal.proposal_id,
        decision=decision,
        detail=outcome.detail,
        cover=proposal.covers,
        until_unix_ns=proposal.ban_applied_until_unix_ns,
        state=wire.ProposalState.Name(proposal.state),
    )
