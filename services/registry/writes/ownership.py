"""Decides every write to the directory: permission, conflicts with what is there, and the resulting entries.

Each decision is a pure function of the directory at one moment; `Directory.write` runs it so that nothing
comes between. Never lets a tenant write what another owns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from services.registry.writes.entry_limits import EntryLimits
from snavio.clock import Clock
from snavio.domain.directory import (
    AclEntry,
    AlertChannel,
    Ban,
    BanList,
    DirectoryView,
    Draft,
    Endpoint,
    Principal,
    ProfileLimit,
    Route,
    Service,
    SourceQuota,
    Suspension,
    Target,
    Tenant,
    TopicRule,
    Value,
    is_over,
    require_operator,
    require_source,
    require_tenant,
)
from snavio.domain.directory.route import QueueKind
from snavio.domain.identity import Identity
from snavio.domain.queue_address import RESERVED_PREFIX
from snavio.errors import BadRequest, Conflict, NotFound
from snavio.ports.directory import Decision as AnyDecision

Decision = Callable[[DirectoryView], Draft]
MOST_FREEZES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ownership:
    """The rules, with their bounds."""

    bounds: EntryLimits
    clock: Clock
    queue_kinds: frozenset[QueueKind] = frozenset({QueueKind.MAILBOX})
    """Queue kinds that routes may name: an installation without Redis could not deliver to its streams."""

    def create_tenant(self, actor: Identity, tenant: Tenant) -> Decision:
        """Operators make tenants."""
        require_operator(actor)
        return lambda view: self.bounds.added(view, tenant)

    def register_service(self, actor: Identity, service: Service) -> Decision:
        """A tenant's principals register its services."""
        return self._of_tenant(actor, service, service.tenant)

    def claim_target(self, actor: Identity, target: Target) -> Decision:
        """A name belongs to the tenant that claimed it first; those of the mesh's own topics belong to nobody."""
        if target.target.startswith(RESERVED_PREFIX):
            raise BadRequest(
                f"target.target: names that begin with {RESERVED_PREFIX} are reserved.",
                reason="reserved-name",
            )
        require_tenant(actor, target.tenant)

        def decide(view: DirectoryView) -> Draft:
            _require_tenant_exists(view, target.tenant)
            taken = view.find(Target, target.target)
            if taken is not None and taken.tenant != target.tenant:
                raise Conflict(f"The target name {target.target} is taken.", reason="name-taken")
            return self.bounds.added(view, target)

        return decide

    def release_target(self, actor: Identity, target: Target) -> Decision:
        """The owner releases a name, once it has no entries left that the next owner would inherit."""

        def decide(view: DirectoryView) -> Draft:
            owner_of(view, actor, target.target)
            require_not_frozen(view, target.target, self.clock.unix_ns())
            for kind in (Route, AclEntry, SourceQuota, ProfileLimit):
                if view.count(kind, target.target):
                    raise Conflict(
                        f"The target {target.target} still has {kind.kind} entries; delete them first.",
                        reason="in-use",
                    )
            return Draft(target, deleted=True)

        return decide

    def put_route(self, actor: Identity, route: Route) -> Decision:
        """The owner of a target sets the routes of its commands."""
        route.require_available(self.queue_kinds)
        timed = route.beginning(self.clock.unix_ns())

        def decide(view: DirectoryView) -> Draft:
            addressed = timed.addressed_to(owner_of(view, actor, route.target))
            limit = view.find(ProfileLimit, route.target, route.profile.name.lower())
            return self.bounds.added(view, addressed.limited_by(limit))

        return decide

    def put_profile_limit(
        self, actor: Identity, limit: ProfileLimit, *, deleted: bool = False
    ) -> Callable[[DirectoryView], Sequence[Draft]]:
        """The owner limits every route of a profile that has no limit of its own; those routes are written with it."""

        def decide(view: DirectoryView) -> Sequence[Draft]:
            owner_of(view, actor, limit.target)
            own = Draft(limit, deleted=True) if deleted else self.bounds.added(view, limit)
            routes = view.under(Route, limit.target, limit=self.bounds.routes_per_target)
            limited = [
                route.limited_by(None if deleted else limit)
                for route in routes
                if route.profile is limit.profile and not is_over(route, self.clock.unix_ns())
            ]
            return [own, *(Draft(after) for after in limited if after != view.find(Route, *after.key))]

        return decide

    def grant(self, actor: Identity, acl: AclEntry) -> Decision:
        """The owner allows a source; source and route must exist, so that a typo is found at once."""
        timed = acl.beginning(self.clock.unix_ns())

        def decide(view: DirectoryView) -> Draft:
            owner_of(view, actor, acl.target)
            _require_service_exists(view, acl.source, "acl.source")
            self.require_route(view, acl.target, acl.name)
            return self.bounds.added(view, timed)

        return decide

    def put_quota(self, actor: Identity, quota: SourceQuota) -> Decision:
        """The owner bounds one source."""

        def decide(view: DirectoryView) -> Draft:
            owner_of(view, actor, quota.target)
            _require_service_exists(view, quota.source, "source_quota.source")
            self.require_route(view, quota.target, quota.name)
            return self.bounds.added(view, quota)

        return decide

    def remove(self, actor: Identity, value: Route | AclEntry | SourceQuota) -> Decision:
        """The owner deletes an entry of a target; the tombstone keeps the time."""

        def decide(view: DirectoryView) -> Draft:
            owner_of(view, actor, value.target)
            return Draft(value, deleted=True)

        return decide

    def set_suspension(self, actor: Identity, suspension: Suspension, *, suspended: bool) -> Decision:
        """Operators suspend a source or a whole tenant, and lift that again.

        It must exist, so that a typo is found at once; but what stands can be lifted, though its service was deleted.
        """
        require_operator(actor)
        self._require_ahead(suspension, "suspension.until_unix_ns", wanted=suspended)

        def decide(view: DirectoryView) -> Draft:
            stands = view.find(Suspension, suspension.source) is not None
            if suspension.whole_tenant:
                _require_tenant_exists(view, suspension.tenant)
            elif suspended or not stands:
                _require_service_exists(view, suspension.source, "suspension.source")
            return Draft(suspension, deleted=not suspended)

        return decide

    def set_ban(self, ban: Ban, *, lifted: bool) -> Decision:
        """Keep a source off the warm path, or freeze a target. The authorisation table does not allow it to
        tenants."""
        self._require_ahead(ban, "ban.until_unix_ns", wanted=not lifted)

        def decide(view: DirectoryView) -> Draft:
            if lifted:
                return Draft(ban, deleted=True)
            if ban.list is BanList.FROZEN:
                if view.find(Target, ban.target) is None:
                    raise NotFound(f"Nobody has claimed the target {ban.target}.", reason="unknown-target")
            else:
                _require_service_exists(view, ban.source, "ban.source")
            if ban.name:
                self.require_route(view, ban.target, ban.name)
            return self.bounds.added(view, ban)

        return decide

    def decision(self, actor: Identity, value: Value, *, deleted: bool) -> AnyDecision:
        """The rule for one write of a batch."""
        match value:
            case Tenant() if not deleted:
                return self._named_tenant(actor, value)
            case Principal() | AlertChannel() | TopicRule() | Endpoint():
                return self._of_tenant(actor, value, value.tenant, deleted=deleted)
            case Service() if not deleted:
                return self.register_service(actor, value)
            case Target():
                return (self.release_target if deleted else self.claim_target)(actor, value)
            case Route():
                return self.remove(actor, value) if deleted else self.put_route(actor, value)
            case AclEntry():
                return self.remove(actor, value) if deleted else self.grant(actor, value)
            case SourceQuota():
                return self.remove(actor, value) if deleted else self.put_quota(actor, value)
            case ProfileLimit():
                return self.put_profile_limit(actor, value, deleted=deleted)
        verb = "deleted" if deleted else "written"
        raise BadRequest(
            f"{value.kind}: entries of this kind cannot be {verb} in a batch.", reason="bad-kind"
        )

    def require_route(self, view: DirectoryView, target: str, name: str) -> None:
        """NotFound for a route that does not exist or whose time is over."""
        route = view.find(Route, target, name)
        if route is None or is_over(route, self.clock.unix_ns()):
            raise NotFound(f"The target {target} has no route for {name}.", reason="unknown-route")

    def _named_tenant(self, actor: Identity, tenant: Tenant) -> Decision:
        """A registration names its tenant; creating a new one takes an operator."""

        def decide(view: DirectoryView) -> Draft:
            if view.find(Tenant, tenant.tenant) is None:
                require_operator(actor)
            else:
                require_tenant(actor, tenant.tenant)
            return self.bounds.added(view, tenant)

        return decide

    def _of_tenant(
        self,
        actor: Identity,
        value: Principal | Service | AlertChannel | TopicRule | Endpoint,
        tenant: str,
        *,
        deleted: bool = False,
    ) -> Decision:
        require_tenant(actor, tenant)

        def decide(view: DirectoryView) -> Draft:
            _require_tenant_exists(view, tenant)
            return Draft(value, deleted=True) if deleted else self.bounds.added(view, value)

        return decide

    def _require_ahead(self, value: Ban | Suspension, where: str, *, wanted: bool) -> None:
        if wanted and is_over(value, self.clock.unix_ns()):
            raise BadRequest(f"{where}: must be a time to come.", reason="bad-field")


def expecting(decision: AnyDecision, version: int | None) -> AnyDecision:
    """The same decision, if its first entry is still the one that the writer saw; Conflict otherwise."""
    if version is None:
        return decision

    def decide(view: DirectoryView) -> Draft | Sequence[Draft]:
        decided = decision(view)
        draft = decided if isinstance(decided, Draft) else decided[0]
        found = view.version_of(type(draft.value), *draft.value.key)
        if found != version:
            raise Conflict(
                f"The {draft.value.kind} is at version {found}, and the write expected version {version}.",
                reason="version-mismatch",
            )
        return decided

    return decide


def owner_of(view: DirectoryView, actor: Identity, target: str) -> str:
    """The target's owner, for whom `actor` may write."""
    claimed = view.find(Target, target)
    if claimed is None:
        raise NotFound(f"Nobody has claimed the target {target}.", reason="unknown-target")
    require_tenant(actor, claimed.tenant)
    return claimed.tenant


def require_not_frozen(view: DirectoryView, target: str, now_unix_ns: int) -> None:
    """Conflict for a frozen target: its owner could give it up, claim it again, and be free of the freeze."""
    frozen = view.beginning(Ban, "", BanList.FROZEN.name.lower(), target, limit=MOST_FREEZES)
    if any(not is_over(freeze, now_unix_ns) for freeze in frozen):
        raise Conflict(
            f"The target {target}, or a command of it, is frozen; an operator ends that with `snavio unfreeze`.",
            reason="frozen",
        )


def _require_tenant_exists(view: DirectoryView, tenant: str) -> None:
    if view.find(Tenant, tenant) is None:
        raise NotFound(f"There is no tenant {tenant}.", reason="unknown-tenant")


def _require_service_exists(view: DirectoryView, source: str, where: str) -> None:
    service = require_source(source, where)
    if view.find(Service, *service.key) is None:
        raise NotFound(f"There is no service {source}.", reason="unknown-source")
