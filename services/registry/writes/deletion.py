"""Decides what a deletion takes with it: a route, a target, a service or a principal, and what depends on it.

Never deletes what stands between a name and its next use: bans, suspensions, freezes and quotas outlive the entry that
they are about, or a tenant could shed them by deleting and registering again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from services.registry.writes.ownership import Ownership, owner_of, require_not_frozen
from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    DirectoryView,
    Draft,
    Principal,
    ProfileLimit,
    Route,
    Service,
    SourceQuota,
    Target,
    Value,
    is_over,
    require_tenant,
)
from snavio.domain.identity import Identity
from snavio.errors import BadRequest, Conflict, NotFound

MAX_DEPENDENTS: Final = 10_000
_KEYS: Final = {"route": 2, "target": 1, "service": 2, "principal": 2}

D = TypeVar("D", bound=Value)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that was decided: the entry, and what depends on it."""

    value: Value
    dependents: Sequence[Value]
    in_the_way: Sequence[Value] = ()
    """Dependents without which the entry cannot go."""
    changed: Sequence[Value] = ()
    """Entries that name it, as they are without it."""
    routes: Sequence[Route] = ()
    """Routes that go with it."""

    def drafts(self, *, with_dependents: bool) -> Sequence[Draft]:
        """The writes, the named entry first."""
        gone = self.dependents if with_dependents else ()
        return (
            Draft(self.value, deleted=True),
            *(Draft(value, deleted=True) for value in gone),
            *(Draft(value) for value in self.changed),
        )

    def require_free(self) -> None:
        """Conflict when something depends on it that would be left without it."""
        if not self.in_the_way:
            return
        counts = ", ".join(f"{count} {kind}" for kind, count in counted(self.in_the_way))
        raise Conflict(
            f"The {self.value.kind} {'/'.join(self.value.key)} is in use: {counts}. Delete them first, or with it "
            "(with_dependents).",
            reason="in-use",
        )


@dataclass(frozen=True, slots=True)
class Deletions:
    """The rules of deletions."""

    ownership: Ownership

    def decision(self, actor: Identity, kind: str, key: Sequence[str]) -> Callable[[DirectoryView], Deletion]:
        """The rule for one entry; the view decides."""
        if kind not in _KEYS:
            raise BadRequest(f"kind: must be one of {', '.join(_KEYS)}.", reason="bad-field")
        if len(key) != _KEYS[kind]:
            raise BadRequest(f"key: must have {_KEYS[kind]} parts for a {kind}.", reason="bad-field")
        match kind:
            case "route":
                return lambda view: self._route(view, actor, *key)
            case "target":
                return lambda view: self._target(view, actor, *key)
            case "service":
                return lambda view: self._service(view, actor, *key)
            case _:
                return lambda view: self._principal(view, actor, *key)

    def _route(self, view: DirectoryView, actor: Identity, target: str, name: str) -> Deletion:
        owner_of(view, actor, target)
        route = _found(
            view.find(Route, target, name), f"The target {target} has no route for {name}.", "route"
        )
        if is_over(route, self.ownership.clock.unix_ns()):
            raise NotFound(f"The route for {name} of {target} has ended by itself.", reason="unknown-route")
        # Rights stay unless they are to go, as with an ephemeral route: a route that comes back finds them again.
        dependents: list[Value] = [
            *_bounded(view.under(AclEntry, target, ending=name, limit=MAX_DEPENDENTS + 1)),
            *_bounded(view.under(SourceQuota, target, ending=name, limit=MAX_DEPENDENTS + 1)),
        ]
        return Deletion(route, dependents, routes=(route,))

    def _target(self, view: DirectoryView, actor: Identity, target: str) -> Deletion:
        owner_of(view, actor, target)
        require_not_frozen(view, target, self.ownership.clock.unix_ns())
        value = _found(view.find(Target, target), f"Nobody has claimed the target {target}.", "target")
        most = MAX_DEPENDENTS + 1
        routes = _bounded(view.under(Route, target, limit=most))
        in_the_way: list[Value] = [
            *routes,
            *view.under(AclEntry, target, limit=most),
            *view.under(SourceQuota, target, limit=most),
            *view.under(ProfileLimit, target, limit=most),
        ]
        _bounded(in_the_way)
        # The next owner of the name must not find requests that were made to this one.
        requests = _bounded(view.beginning(AccessRequest, target, limit=most))
        return Deletion(value, [*in_the_way, *requests], in_the_way, routes=tuple(routes))

    def _service(self, view: DirectoryView, actor: Identity, tenant: str, name: str) -> Deletion:
        require_tenant(actor, tenant)
        service = _found(view.find(Service, tenant, name), f"There is no service {tenant}/{name}.", "source")
        rights = _bounded(view.beginning(AclEntry, service.source, limit=MAX_DEPENDENTS + 1))
        requests = view.under(AccessRequest, tenant, ending=service.source, limit=MAX_DEPENDENTS)
        return Deletion(service, [*rights, *requests], rights)

    def _principal(self, view: DirectoryView, actor: Identity, tenant: str, name: str) -> Deletion:
        require_tenant(actor, tenant)
        value = _found(
            view.find(Principal, tenant, name), f"Tenant {tenant} has no principal {name}.", "principal"
        )
        services = view.under(Service, tenant, limit=MAX_DEPENDENTS)
        # Left on the list, a new principal of that name could act as the service.
        changed = [
            replace(service, principals=tuple(each for each in service.principals if each != name))
            for service in services
            if name in service.principals
        ]
        return Deletion(value, (), changed=changed)


def counted(values: Sequence[Value]) -> list[tuple[str, int]]:
    """The number of values of each kind, by kind."""
    kinds = [value.kind for value in values]
    return [(kind, kinds.count(kind)) for kind in sorted(set(kinds))]


def _found(value: D | None, sentence: str, what: str) -> D:
    if value is None:
        raise NotFound(sentence, reason=f"unknown-{what}")
    return value


def _bounded(values: Sequence[D]) -> Sequence[D]:
    if len(values) > MAX_DEPENDENTS:
        # All of them as one write would keep every other caller of Registry waiting.
        raise Conflict(
            f"Over {MAX_DEPENDENTS} {values[0].kind} entries depend on it; delete some of them first.",
            reason="too-many-dependents",
        )
    return values
