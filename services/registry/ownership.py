"""Decides every write to the directory: who may, whether it contradicts what is there, and what it leaves.

Each decision is a pure function of the directory at one moment; `Directory.write` runs it so that nothing
comes between. Never lets a tenant write what another owns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snavio.domain.directory import (
    AclEntry,
    Draft,
    Route,
    Service,
    Suspension,
    Target,
    Tenant,
    Value,
    View,
    require_operator,
    require_source,
    require_tenant,
)
from snavio.domain.identity import Identity
from snavio.errors import Conflict, NotFound, Saturated

Decision = Callable[[View], Draft]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many there may be; without bounds one tenant could fill everybody's caches."""

    tenants: int = 10_000
    services_per_tenant: int = 1_000
    targets_per_tenant: int = 1_000
    routes_per_target: int = 1_000
    acl_per_target: int = 50_000

    def of(self, kind: type[Value]) -> int | None:
        """The bound for one kind; suspensions are bounded by the services that they suspend."""
        return {
            Tenant: self.tenants,
            Service: self.services_per_tenant,
            Target: self.targets_per_tenant,
            Route: self.routes_per_target,
            AclEntry: self.acl_per_target,
        }.get(kind)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The rules, with their bounds."""

    limits: Limits

    def create_tenant(self, actor: Identity, tenant: Tenant) -> Decision:
        """Operators make tenants."""
        require_operator(actor)
        return lambda view: self._added(view, tenant)

    def register_service(self, actor: Identity, service: Service) -> Decision:
        """A tenant's principals register its services."""
        require_tenant(actor, service.tenant)

        def decide(view: View) -> Draft:
            _require_tenant_exists(view, service.tenant)
            return self._added(view, service)

        return decide

    def claim_target(self, actor: Identity, target: Target) -> Decision:
        """A name belongs to whoever claimed it first."""
        require_tenant(actor, target.tenant)

        def decide(view: View) -> Draft:
            _require_tenant_exists(view, target.tenant)
            taken = view.find(Target, target.target)
            if taken is not None and taken.tenant != target.tenant:
                raise Conflict(f"The target name {target.target} is taken.", reason="name-taken")
            return self._added(view, target)

        return decide

    def put_route(self, actor: Identity, route: Route) -> Decision:
        """The owner of a target says where its commands go."""

        def decide(view: View) -> Draft:
            return self._added(view, route.addressed_to(_owner(view, actor, route.target)))

        return decide

    def delete_route(self, actor: Identity, route: Route) -> Decision:
        """The owner takes a route away."""

        def decide(view: View) -> Draft:
            return Draft(route.addressed_to(_owner(view, actor, route.target)), deleted=True)

        return decide

    def grant(self, actor: Identity, acl: AclEntry) -> Decision:
        """The owner lets a source in; it must exist, or a typo would wait for whoever takes that name."""

        def decide(view: View) -> Draft:
            _owner(view, actor, acl.target)
            _require_service_exists(view, acl.source, "acl.source")
            return self._added(view, acl)

        return decide

    def revoke(self, actor: Identity, acl: AclEntry) -> Decision:
        """The owner takes the right away; the tombstone keeps the time."""

        def decide(view: View) -> Draft:
            _owner(view, actor, acl.target)
            return Draft(acl, deleted=True)

        return decide

    def set_suspension(self, actor: Identity, suspension: Suspension, *, suspended: bool) -> Decision:
        """Operators suspend a source and end it; the source must exist, or a typo would suspend nobody."""
        require_operator(actor)

        def decide(view: View) -> Draft:
            _require_service_exists(view, suspension.source, "suspension.source")
            return Draft(suspension, deleted=not suspended)

        return decide

    def _added(self, view: View, value: Value) -> Draft:
        bound = self.limits.of(type(value))
        is_new = view.find(type(value), *value.key) is None
        if bound is not None and is_new and view.count(type(value), value.parent) >= bound:
            under = f" of {value.parent}" if value.parent else ""
            raise Saturated(
                f"There are {bound} {value.kind} entries{under} and may not be more.",
                retry_after_ms=60_000,
                reason="limit-reached",
            )
        return Draft(value)


def _owner(view: View, actor: Identity, target: str) -> str:
    """The target's owner, for whom `actor` may write."""
    claimed = view.find(Target, target)
    if claimed is None:
        raise NotFound(f"Nobody has claimed the target {target}.", reason="unknown-target")
    require_tenant(actor, claimed.tenant)
    return claimed.tenant


def _require_tenant_exists(view: View, tenant: str) -> None:
    if view.find(Tenant, tenant) is None:
        raise NotFound(f"There is no tenant {tenant}.", reason="unknown-tenant")


def _require_service_exists(view: View, source: str, where: str) -> None:
    service = require_source(source, where)
    if view.find(Service, *service.key) is None:
        raise NotFound(f"There is no service {source}.", reason="unknown-source")
