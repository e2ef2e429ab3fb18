"""Decides about proposals to ban a source: applied, known already or refused; later confirmed or withdrawn.

Never bans a source that is allowlisted, nor more in an hour than the cap; never lets one auditor undo another's
confirmation. Every decision is a pure function of the directory at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from services.registry.writes.ownership import Ownership
from snavio.domain.directory import (
    AclEntry,
    Ban,
    BanList,
    BanProposal,
    DirectoryView,
    Draft,
    Overlay,
    ProposalState,
    Route,
    Service,
    is_over,
)
from snavio.domain.directory.proposal import route_of
from snavio.domain.directory.rules import split_source
from snavio.errors import BadRequest, NotFound, Saturated

HOUR_NS: Final = 3600 * 1_000_000_000
AHEAD_NS: Final = 300 * 1_000_000_000
"""Time by which an auditor's clock may be ahead of Registry's."""
MAX_ROUTES: Final = 1_000
"""Routes that one proposal bans; a source with rights to more is banned from all of them."""
SCAN: Final = 1_000_000
OVERRIDE: Final = "override"
"""Kind of an operator's promise: a proposal that was lifted before anybody made it, and pardons until it ends."""
LONGEST_OVERRIDE_NS: Final = 7 * 24 * HOUR_NS


@dataclass(frozen=True, slots=True)
class BanPolicy:
    """Bounds of what auditors may do."""

    never_banned: frozenset[str] = frozenset()
    """`<tenant>/<service>`, or `<tenant>/*`."""
    per_hour: int = 100
    max_ban_ns: int = HOUR_NS
    kept_ns: int = 24 * HOUR_NS
    """Time for which a proposal is remembered after its ban; the audit must come before."""

    def spares(self, source: str) -> bool:
        """True if the source is on the list of those that are never banned."""
        return source in self.never_banned or f"{source.partition('/')[0]}/*" in self.never_banned


@dataclass(frozen=True, slots=True)
class ProposalOutcome:
    """Outcome of one proposal. `refused` is empty, or a stable word."""

    proposal: BanProposal
    applied: bool
    refused: str = ""
    detail: str = ""
    retry_after_ms: int = 0


@dataclass(slots=True)
class ProposalsResult:
    """Outcome of a batch of proposals."""

    outcomes: list[ProposalOutcome] = field(default_factory=list)
    drafts: Sequence[Draft] = ()


@dataclass(slots=True)
class AuditResult:
    """Outcome of an audit."""

    confirmed: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    drafts: Sequence[Draft] = ()


@dataclass(frozen=True, slots=True)
class AuditedRange:
    """The range of window starts that an audit has read, and what it found."""

    from_unix_ns: int
    to_unix_ns: int
    policy_version: str
    kinds: frozenset[str]
    found: frozenset[str]
    as_of_version: int
    """Proposals that came later were not visible to the auditor; 0 for all."""

    def judges(self, proposal: BanProposal) -> bool:
        """True if a proposal is one that this audit would have found."""
        return (
            self.from_unix_ns <= proposal.window_start_unix_ns < self.to_unix_ns
            and proposal.policy_version == self.policy_version
            and (not self.kinds or proposal.abuse in self.kinds)
        )


@dataclass(frozen=True, slots=True)
class BanSelector:
    """Selects bans: all of a source on one list, of one target, or of one command."""

    list: BanList
    source: str
    target: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Proposals:
    """The rules."""

    ownership: Ownership
    policy: BanPolicy

    def rule(self, view: DirectoryView, proposals: Sequence[BanProposal], now: int) -> ProposalsResult:
        """One outcome per proposal, in order, each seeing what the earlier ones leave."""
        ruling, overlay = ProposalsResult(), Overlay(view)
        known = view.beginning(BanProposal, limit=SCAN)
        imposed = sorted(
            p.decided_unix_ns for p in known if now - p.decided_unix_ns < HOUR_NS and p.abuse != OVERRIDE
        )
        for proposal in proposals:
            if proposal.warning:
                ruling.outcomes.append(self._warned(overlay, proposal, now))
                continue
            outcome = self._rule_one(overlay, proposal, imposed, now)
            if outcome.applied:
                imposed.append(now)
            ruling.outcomes.append(outcome)
        ruling.drafts = overlay.drafts
        return ruling

    def _rule_one(
        self, view: Overlay, proposal: BanProposal, imposed: Sequence[int], now: int
    ) -> ProposalOutcome:
        known = view.find(BanProposal, proposal.proposal_id)
        if known is not None:
            return self._again(view, known, proposal, now)
        refusal = self._refusal(view, proposal, now)
        if refusal is not None:
            return refusal
        if len(imposed) >= self.policy.per_hour:
            wait_ms = max(1, (imposed[0] + HOUR_NS - now) // 1_000_000)
            return ProposalOutcome(
                proposal,
                applied=False,
                refused="cap-reached",
                detail=f"{self.policy.per_hour} bans were imposed within the hour and may not be more.",
                retry_after_ms=wait_ms,
            )
        covers = _covered(view, proposal)
        if covers is None:
            return ProposalOutcome(
                proposal,
                applied=False,
                refused="unknown-target",
                detail=f"{proposal.source} may use none of the affected routes any more.",
            )
        until = min(proposal.ban_applied_until_unix_ns, now + self.policy.max_ban_ns)
        standing = (p for p in _about(view, proposal.source) if p.stands(now))
        applied = replace(
            proposal,
            state=ProposalState.APPLIED,
            covers=covers,
            ban_applied_until_unix_ns=until,
            decided_unix_ns=now,
            opens_window=next(standing, None) is None,
            expires_unix_ns=until + self.policy.kept_ns,
        )
        trial = Overlay(view)
        try:
            trial.add(self.ownership.bounds.added(trial, applied))
            for target, name in _routes(covers):
                self._ban(trial, applied, target, name)
        except Saturated as full:
            return ProposalOutcome(proposal, applied=False, refused="too-many", detail=str(full))
        for draft in trial.drafts:
            view.add(draft)
        shortened = until < proposal.ban_applied_until_unix_ns
        detail = "Shortened to the longest ban that Registry imposes." if shortened else ""
        return ProposalOutcome(applied, applied=True, detail=detail)

    def _warned(self, view: Overlay, proposal: BanProposal, now: int) -> ProposalOutcome:
        """A warning is refused where its ban would be; it changes nothing."""
        refusal = self._refusal(view, proposal, now)
        return ProposalOutcome(proposal, applied=False) if refusal is None else refusal

    def _again(self, view: Overlay, known: BanProposal, proposal: BanProposal, now: int) -> ProposalOutcome:
        """A proposal whose id was seen before."""
        same = ("policy_version", "abuse", "source", "window_start_unix_ns")
        if any(getattr(known, name) != getattr(proposal, name) for name in same):
            detail = "Another proposal has this id; an id belongs to one policy, kind, source and window."
            return ProposalOutcome(proposal, applied=False, refused="conflict", detail=detail)
        if known.state in (ProposalState.WITHDRAWN, ProposalState.LIFTED):
            word = known.state.name.lower()
            return ProposalOutcome(
                known, applied=False, refused=word, detail=f"Its bans were {word}; it bans no more."
            )
        if known.provisional and not proposal.provisional:
            # Said without reserve now: that is a confirmation.
            known = _concluded(known, ProposalState.CONFIRMED, now)
            view.add(Draft(known))
        return ProposalOutcome(known, applied=False)

    def _refusal(self, view: DirectoryView, proposal: BanProposal, now: int) -> ProposalOutcome | None:
        source = proposal.source
        why: tuple[str, str] | None = None
        if self.policy.spares(source):
            why = "allowlisted", f"{source} is on the list of sources that are never banned."
        elif view.find(Service, *split_source(source, "proposal.source")) is None:
            why = "unknown-source", f"There is no service {source}."
        elif proposal.ban_applied_until_unix_ns <= now:
            why = "expired", "The ban would have ended before it began."
        elif proposal.window_end_unix_ns > now + AHEAD_NS:
            why = "from-the-future", "Its window ends in the future: the auditor's clock is ahead."
        elif overridden(view, source, now):
            why = "overridden", "An operator has promised that this source is not banned now."
        elif any(_pardons(known, proposal) for known in _about(view, source)):
            why = "lifted", "An operator lifted a ban of this source after the window that this is about."
        return (
            None if why is None else ProposalOutcome(proposal, applied=False, refused=why[0], detail=why[1])
        )

    def _ban(self, view: Overlay, proposal: BanProposal, target: str, name: str) -> None:
        """Write one ban of a proposal, unless a longer one stands there."""
        listed = BanList.WARM_BAN
        stands = view.find(Ban, proposal.source, listed.name.lower(), target, name)
        if stands is not None and stands.until_unix_ns >= proposal.ban_applied_until_unix_ns:
            return
        ban = Ban(
            listed,
            proposal.source,
            target,
            name,
            until_unix_ns=proposal.ban_applied_until_unix_ns,
            reason=proposal.reason,
            evidence=proposal.evidence,
        )
        # The same rules as for every ban, whoever writes it.
        view.add(self.ownership.set_ban(ban, lifted=False)(view))

    def conclude(self, view: DirectoryView, audited: AuditedRange, now: int) -> AuditResult:
        """Confirm what the audit found again, withdraw what it did not find. Only provisional proposals move."""
        if not 0 <= audited.from_unix_ns < audited.to_unix_ns:
            raise BadRequest("from_unix_ns: must be a time before to_unix_ns.", reason="bad-field")
        if audited.to_unix_ns > now:
            raise BadRequest("to_unix_ns: must be past: the range is not over yet.", reason="open-range")
        done, overlay = AuditResult(), Overlay(view)
        done.unknown = sorted(each for each in audited.found if view.find(BanProposal, each) is None)
        for proposal in view.beginning(BanProposal, limit=SCAN):
            if not audited.judges(proposal) or not proposal.provisional:
                continue
            if proposal.state is not ProposalState.APPLIED:
                continue
            if proposal.proposal_id in audited.found:
                overlay.add(Draft(_concluded(proposal, ProposalState.CONFIRMED, now)))
                done.confirmed.append(proposal.proposal_id)
            elif 0 < audited.as_of_version < view.version_of(BanProposal, proposal.proposal_id):
                done.left.append(proposal.proposal_id)
            else:
                overlay.add(Draft(_concluded(proposal, ProposalState.WITHDRAWN, now)))
                self._take_back(overlay, proposal, now)
                done.withdrawn.append(proposal.proposal_id)
        done.drafts = overlay.drafts
        return done

    def _take_back(self, view: Overlay, proposal: BanProposal, now: int) -> None:
        """Lift the bans that a proposal wrote; where another proposal bans too, its ban takes the place."""
        others = sorted(
            (p for p in _about(view, proposal.source) if p.key != proposal.key),
            key=lambda p: p.ban_applied_until_unix_ns,
        )
        for target, name in _routes(proposal.covers):
            ban = view.find(Ban, proposal.source, BanList.WARM_BAN.name.lower(), target, name)
            # A ban that somebody else wrote over it is not ours to lift.
            if ban is None or ban.reason != proposal.reason:
                continue
            view.add(Draft(ban, deleted=True))
            for other in others:
                if other.bans(target, name, now):
                    self._ban(view, other, target, name)

    def lift(
        self, view: DirectoryView, wanted: BanSelector, now: int, promise: BanProposal | None = None
    ) -> tuple[list[Ban], Sequence[Draft]]:
        """Lift the bans of a source that `wanted` names by list and, where it has them, target and command.

        With `promise`, none comes again until that ends.
        """
        overlay = Overlay(view)
        lifted = [
            ban
            for ban in view.under(Ban, wanted.source, limit=SCAN)
            if ban.list is wanted.list
            and (not wanted.target or ban.target == wanted.target)
            and (not wanted.name or ban.name == wanted.name)
            and not is_over(ban, now)
        ]
        for ban in lifted:
            overlay.add(Draft(ban, deleted=True))
        reasons = {ban.reason for ban in lifted}
        for proposal in _about(view, wanted.source) if wanted.list is BanList.WARM_BAN else ():
            if proposal.stands(now) and (proposal.reason in reasons or not wanted.target):
                overlay.add(Draft(_concluded(proposal, ProposalState.LIFTED, now)))
        if promise is not None:
            if view.find(Service, *split_source(promise.source, "source")) is None:
                raise NotFound(f"There is no service {promise.source}.", reason="unknown-source")
            overlay.add(self.ownership.bounds.added(overlay, promise))
        return lifted, overlay.drafts


def override(source: str, *, until_unix_ns: int, now: int, reason: str) -> BanProposal:
    """An operator's word that a source is not banned until then. Its author and reason are in the log.

    BadRequest for an end that has passed or is too far: without one it would be an allowlist that nobody reads.
    """
    if not now < until_unix_ns <= now + LONGEST_OVERRIDE_NS:
        raise BadRequest(
            "spare_until_unix_ns: must be a time within the next seven days.", reason="bad-field"
        )
    return BanProposal(
        proposal_id=f"{OVERRIDE}.{source.replace('/', '.')}",
        policy_version=OVERRIDE,
        abuse=OVERRIDE,
        source=source,
        affected_targets=(),
        total_violations=0,
        window_start_unix_ns=now,
        window_end_unix_ns=until_unix_ns,
        ban_applied_until_unix_ns=until_unix_ns,
        evidence=reason,
        state=ProposalState.LIFTED,
        decided_unix_ns=now,
        concluded_unix_ns=until_unix_ns,
        expires_unix_ns=until_unix_ns,
    )


def overridden(view: DirectoryView, source: str, now: int) -> bool:
    """True while an operator's promise holds."""
    return any(known.abuse == OVERRIDE and now < known.concluded_unix_ns for known in _about(view, source))


def _about(view: DirectoryView, source: str) -> Sequence[BanProposal]:
    return view.under(BanProposal, source, limit=SCAN)


def _pardons(known: BanProposal, proposal: BanProposal) -> bool:
    return (
        known.state is ProposalState.LIFTED
        and known.abuse == proposal.abuse
        and proposal.window_end_unix_ns <= known.concluded_unix_ns
    )


def _concluded(proposal: BanProposal, state: ProposalState, now: int) -> BanProposal:
    return replace(proposal, state=state, provisional=False, concluded_unix_ns=now)


def _covered(view: DirectoryView, proposal: BanProposal) -> tuple[str, ...] | None:
    """The routes that a proposal bans, none for all of the source; None when those that it names are gone."""
    if not proposal.affected_targets:
        return ()
    covers = dict.fromkeys(
        f"{target}:{name}"
        for affected in proposal.affected_targets
        for target, name in _existing(view, proposal.source, *route_of(affected))
    )
    if len(covers) > MAX_ROUTES:
        return ()
    return tuple(covers) or None


def _existing(view: DirectoryView, source: str, target: str, name: str) -> Iterable[tuple[str, str]]:
    names = [name] if name else [route.name for route in view.beginning(Route, target, limit=SCAN)]
    for each in names:
        # Only where it has a right: a ban from what it may not use anyway would fill its share of the list.
        if view.find(Route, target, each) is not None and view.find(AclEntry, source, target, each):
            yield target, each


def _routes(covers: Sequence[str]) -> Sequence[tuple[str, str]]:
    return [route_of(cover) for cover in covers] if covers else [("", "")]
