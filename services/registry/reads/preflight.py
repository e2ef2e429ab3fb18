"""Checks a command gate by gate without sending it.

Never hides which gate fails from a reader that may ask; the cause is shown only to the tenant that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from snavio.domain.directory import (
    AclEntry,
    Ban,
    BanList,
    DirectoryView,
    Limit,
    Profile,
    Route,
    Service,
    SourceQuota,
    Suspension,
    Target,
    acts_for,
    is_over,
    suspension_of,
)
from snavio.domain.directory.rules import require_command, require_target, split_source
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.queue_address import address
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed
from snavio.native import format_timestamp

MAX_BANS = 1000


class GateState(IntEnum):
    """State of a gate; same numbers as on the wire."""

    PASSES = 1
    FAILS = 2
    NOTE = 3
    UNKNOWN = 4
    HIDDEN = 5


@dataclass(frozen=True, slots=True)
class GateReport:
    """One gate."""

    gate: str
    state: GateState
    detail: str
    advice: str = ""
    verdict: Verdict = Verdict.DELIVERED


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """The source's HMAC keys, as Signer has them; `known` is false for a source without any."""

    known: bool = False
    primary: str = ""
    """Empty where Signer was not asked, because the keys are made by the very write."""
    last_poll_unix_ns: int = 0
    next_rotation_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the directory says about one (source, target, name), read at one moment."""

    source: str
    target: str
    name: str
    service: Service | None
    suspension: Suspension | None
    owner: str
    route: Route | None
    right: AclEntry | None
    acl_version: int
    bans: tuple[Ban, ...]
    quota: SourceQuota | None = None
    freeze: Ban | None = None

    @property
    def allowed(self) -> bool:
        """The right stands."""
        return self.right is not None


@dataclass(frozen=True, slots=True)
class ReaderRights:
    """The parts that the reader may see."""

    operator: bool
    owner: bool
    sender: bool


def facts_for(source: str, target: str, name: str, now_unix_ns: int) -> Callable[[DirectoryView], Facts]:
    """The question to the directory; BadRequest for names that cannot be any."""
    tenant, service = split_source(source, "check.source")
    require_target(target, "check.target")
    require_command(name, "check.name")

    def question(view: DirectoryView) -> Facts:
        claimed = view.find(Target, target)
        route = view.find(Route, target, name)
        right = view.find(AclEntry, source, target, name)
        return Facts(
            source,
            target,
            name,
            service=view.find(Service, tenant, service),
            suspension=suspension_of(view, source, now_unix_ns),
            owner=claimed.tenant if claimed is not None else "",
            route=None if route is None or is_over(route, now_unix_ns) else route,
            right=right if right is not None and not is_over(right, now_unix_ns) else None,
            acl_version=view.version_of(AclEntry, source, target, name),
            quota=view.find(SourceQuota, source, target, name),
            bans=tuple(
                ban
                for ban in view.under(Ban, source, limit=MAX_BANS)
                if not is_over(ban, now_unix_ns) and (not ban.target or ban.key[2:] == (target, name))
            ),
            freeze=next(
                (
                    freeze
                    for of in (name, "")
                    if (freeze := view.find(Ban, "", BanList.FROZEN.name.lower(), target, of)) is not None
                    and not is_over(freeze, now_unix_ns)
                ),
                None,
            ),
        )

    return question


def sight_of(reader: Identity, facts: Facts) -> ReaderRights:
    """The parts that the reader may see; NotAllowed for a reader that the command does not concern."""
    sight = ReaderRights(
        operator=reader.kind is IdentityKind.OPERATOR,
        owner=bool(facts.owner) and acts_for(reader, facts.owner),
        sender=acts_for(reader, facts.source.partition("/")[0]),
    )
    if not (sight.operator or sight.owner or sight.sender):
        raise NotAllowed(
            f"{reader} is neither of the source's tenant nor of the target's owner.", reason="not-concerned"
        )
    return sight


def gates(facts: Facts, sight: ReaderRights, *, keys: KeyStanding | None) -> Iterator[GateReport]:
    """Every gate, in the order in which a command meets them."""
    yield _registered(facts)
    yield _standing(facts, sight)
    yield _keyset(facts, sight, keys)
    yield _route(facts)
    yield _acl(facts, sight)
    for report in (_profile(facts), _limit(facts.route), *_own_limit(facts)):
        # How an owner runs its route is for those who may use it.
        may_know = sight.owner or facts.allowed
        yield (
            report
            if may_know
            else replace(report, state=GateState.HIDDEN, detail="Not yours to see.", advice="")
        )
    yield _lists(facts, sight)


def _registered(facts: Facts) -> GateReport:
    if facts.service is not None:
        return GateReport("registered", GateState.PASSES, f"{facts.source} is registered.")
    return GateReport(
        "registered",
        GateState.FAILS,
        f"There is no service {facts.source}.",
        "Register it: `snavio register -f service.toml`.",
        Verdict.UNKNOWN_KEY_VERSION,
    )


def _standing(facts: Facts, sight: ReaderRights) -> GateReport:
    if facts.suspension is None:
        return GateReport("standing", GateState.PASSES, "The source is not suspended.")
    why = f": {facts.suspension.reason}" if sight.sender and facts.suspension.reason else ""
    who = f"Tenant {facts.suspension.tenant}" if facts.suspension.whole_tenant else "The source"
    named = facts.suspension.tenant if facts.suspension.whole_tenant else facts.source
    advice = f"`snavio resume {named}`." if sight.operator else "Ask an operator to lift it."
    return GateReport("standing", GateState.FAILS, f"{who} is suspended{why}.", advice, Verdict.SUSPENDED)


def _keyset(facts: Facts, sight: ReaderRights, keys: KeyStanding | None) -> GateReport:
    if keys is None:
        return GateReport("keyset", GateState.UNKNOWN, "Signer could not be asked.", "Try again soon.")
    if keys.known:
        said = "The source has a key to sign with."
        if keys.primary and (sight.sender or sight.operator):
            polled = keys.last_poll_unix_ns
            asked = f"asked for last at {format_timestamp(polled)[:19]}Z" if polled else "never asked for yet"
            turn = keys.next_rotation_unix_ns
            rotates = f", rotates at {format_timestamp(turn)[:19]}Z" if turn else ""
            said = f"The source signs with {keys.primary}, {asked}{rotates}."
        return GateReport("keyset", GateState.PASSES, said)
    advice = (
        f"Register {facts.source} again, which makes one."
        if sight.sender
        else f"Ask tenant {facts.source.partition('/')[0]} to register its service again."
    )
    return GateReport(
        "keyset", GateState.FAILS, "The source has no key to sign with.", advice, Verdict.UNKNOWN_KEY_VERSION
    )


def _route(facts: Facts) -> GateReport:
    if facts.route is not None:
        kind = facts.route.queue_kind
        place = address(kind, facts.route.topic)
        detail = f"{facts.name} of {facts.target} goes to the {kind.name.lower()} queue {place}."
        return GateReport("route", GateState.PASSES, detail)
    if not facts.owner:
        detail, advice = f"Nobody has claimed the target {facts.target}.", "Check the target's spelling."
    else:
        detail = f"The target {facts.target} has no route for {facts.name}."
        advice = "Check the spelling, or ask the target's owner for a route."
    return GateReport("route", GateState.FAILS, detail, advice, Verdict.ROUTE_MISSING)


def _acl(facts: Facts, sight: ReaderRights) -> GateReport:
    if facts.right is not None:
        since = f" since version {facts.acl_version}" if facts.acl_version else ""
        end = facts.right.expires_unix_ns
        until = f", until {format_timestamp(end)}" if end else ""
        return GateReport("acl", GateState.PASSES, f"Allowed{since}{until}.")
    words = f"{facts.source} {facts.target} {facts.name}"
    advice = (
        f"`snavio acl grant {words}`"
        if sight.owner
        else f"`snavio access request {words} --reason …`, and the owner decides."
    )
    return GateReport(
        "acl", GateState.FAILS, "The target's owner has not allowed this.", advice, Verdict.ACL_DENY
    )


def _profile(facts: Facts) -> GateReport:
    route, own = facts.route, facts.right.profile if facts.right is not None else None
    if route is None:
        return GateReport("profile", GateState.UNKNOWN, "There is no route to have one.")
    profile = own or route.profile
    whose = f", the right's own (the route's is {route.profile.name.lower()})" if own is not None else ""
    if profile is Profile.SYNC:
        return GateReport("profile", GateState.NOTE, f"sync{whose}: every command is decided by Slow.")
    return GateReport("profile", GateState.PASSES, f"{profile.name.lower()}{whose}: decided from memory.")


def _limit(route: Route | None) -> GateReport:
    limit: Limit | None = route.limit if route is not None else None
    if limit is None:
        return GateReport("limit", GateState.PASSES, "No limit.")
    whose = ", the target's for this profile" if limit.by_profile else ""
    detail = f"{_amount(limit)} from all sources together{whose}{_more(limit)}."
    return GateReport("limit", GateState.NOTE, detail)


def _own_limit(facts: Facts) -> Iterator[GateReport]:
    quota = facts.quota
    if quota is not None:
        when = "" if quota.always else ", while it is banned from the warm path"
        detail = f"{_amount(quota)} from {facts.source} alone{when}{_more(quota)}."
        yield GateReport("source-limit", GateState.NOTE, detail)


def _amount(limit: Limit | SourceQuota) -> str:
    return f"{limit.max} in {limit.interval_seconds} s"


def _more(limit: Limit | SourceQuota) -> str:
    burst = f", {limit.burst} in a second" if limit.burst else ""
    return burst + ("; counted, not enforced" if limit.shadow else "")


def _lists(facts: Facts, sight: ReaderRights) -> GateReport:
    if facts.freeze is not None:
        what = f"{facts.name} of {facts.target}" if facts.freeze.name else f"The target {facts.target}"
        why = f": {facts.freeze.reason}" if facts.freeze.reason and (sight.owner or sight.operator) else ""
        words = f"{facts.freeze.target} {facts.freeze.name}".strip()
        advice = f"`snavio unfreeze {words}`" if sight.operator else "Ask an operator."
        end = facts.freeze.until_unix_ns
        until = f" until {format_timestamp(end)}" if end else ""
        return GateReport("lists", GateState.FAILS, f"{what} is frozen{until}{why}.", advice, Verdict.FROZEN)
    if not facts.bans:
        return GateReport("lists", GateState.PASSES, "On no list.")
    cold = any(ban.list is BanList.COLD_ONLY for ban in facts.bans)
    which = "cold-only" if cold else "warm-banned"
    reasons = (
        sorted({ban.reason for ban in facts.bans if ban.reason}) if sight.sender or sight.operator else []
    )
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return GateReport("lists", GateState.NOTE, f"The source is {which}{why}: its commands go by Slow.")
