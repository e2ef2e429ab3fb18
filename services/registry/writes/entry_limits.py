"""Bounds on the number of entries of each kind; without them one tenant could fill the caches of all services."""

from __future__ import annotations

from dataclasses import dataclass

from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    AlertChannel,
    Ban,
    BanProposal,
    DirectoryView,
    Draft,
    Endpoint,
    Principal,
    ProfileLimit,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    TopicRule,
    Value,
)
from snavio.domain.directory.route import Profile
from snavio.errors import Saturated


@dataclass(frozen=True, slots=True)
class EntryLimits:
    """One number per kind, counted by each entry's parent."""

    tenants: int = 10_000
    principals_per_tenant: int = 1_000
    services_per_tenant: int = 1_000
    targets_per_tenant: int = 1_000
    routes_per_target: int = 1_000
    acl_per_target: int = 50_000
    requests_per_tenant: int = 1_000
    quotas_per_target: int = 10_000
    channels_per_tenant: int = 20
    bans_per_source: int = 1_000
    proposals_per_source: int = 1_000
    rules_per_tenant: int = 10_000
    endpoints_per_tenant: int = 10_000

    def of(self, kind: type[Value]) -> int | None:
        """The bound for one kind; suspensions are bounded by the services that they suspend."""
        return {
            Tenant: self.tenants,
            Principal: self.principals_per_tenant,
            Service: self.services_per_tenant,
            Target: self.targets_per_tenant,
            Route: self.routes_per_target,
            AclEntry: self.acl_per_target,
            AccessRequest: self.requests_per_tenant,
            SourceQuota: self.quotas_per_target,
            AlertChannel: self.channels_per_tenant,
            Ban: self.bans_per_source,
            BanProposal: self.proposals_per_source,
            # One for each profile.
            ProfileLimit: len(Profile),
            TopicRule: self.rules_per_tenant,
            Endpoint: self.endpoints_per_tenant,
        }.get(kind)

    def added(self, view: DirectoryView, value: Value) -> Draft:
        """A draft of `value`; Saturated if it is new and the bound is reached."""
        bound = self.of(type(value))
        is_new = view.find(type(value), *value.key) is None
        if bound is not None and is_new and view.count(type(value), value.parent) >= bound:
            under = f" of {value.parent}" if value.parent else ""
            raise Saturated(
                f"There are {bound} {value.kind} entries{under} and may not be more.",
                retry_after_ms=60_000,
                reason="limit-reached",
            )
        return Draft(value)
