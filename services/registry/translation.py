"""Turns the wire's values into the directory's and back.

Never takes a topic from a request, and never takes an unknown number for a known one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from snavio.domain.directory import (
    DEFAULT_DRAIN_SECONDS,
    AclEntry,
    Change,
    DedupeMode,
    Profile,
    QueueKind,
    Route,
    Service,
    Suspension,
    Target,
    Tenant,
    Value,
)
from snavio.errors import BadRequest
from snavio.v1 import registry_pb2 as wire

E = TypeVar("E", bound=IntEnum)


def route_from_wire(route: wire.Route) -> Route:
    """The route that a request describes; its topic is ignored."""
    return Route(
        target=route.target,
        name=route.name,
        queue_kind=_choice(QueueKind, route.queue_kind, QueueKind.MAILBOX, "route.queue_kind"),
        profile=_choice(Profile, route.profile, Profile.LOW, "route.profile"),
        dedupe_mode=_choice(DedupeMode, route.dedupe_mode, DedupeMode.NONE, "route.dedupe_mode"),
        expected_drain_seconds=route.expected_drain_seconds or DEFAULT_DRAIN_SECONDS,
    )


def acl_from_wire(acl: wire.AclEntry) -> AclEntry:
    """The right that a request names."""
    return AclEntry(acl.source, acl.target, acl.name)


def route_to_wire(route: Route) -> wire.Route:
    """The route with its derived topic."""
    return wire.Route(
        target=route.target,
        name=route.name,
        queue_kind=f"QUEUE_KIND_{route.queue_kind.name}",
        topic=route.topic,
        profile=f"PROFILE_{route.profile.name}",
        dedupe_mode=f"DEDUPE_MODE_{route.dedupe_mode.name}",
        expected_drain_seconds=route.expected_drain_seconds,
    )


def change_to_wire(change: Change, *, show_actor: bool) -> wire.Change:
    """One line of the changelog."""
    entry = wire.Change(
        version=change.version,
        at_unix_ns=change.at_ns,
        actor=change.actor if show_actor else "",
        deleted=change.deleted,
    )
    _fill(entry, change.value)
    return entry


def _fill(entry: wire.Change, value: Value) -> None:
    match value:
        case Tenant():
            entry.tenant.tenant = value.tenant
        case Service():
            entry.service.CopyFrom(
                wire.Service(tenant=value.tenant, service=value.service, principal=value.principals)
            )
        case Target():
            entry.target.CopyFrom(wire.Target(target=value.target, tenant=value.tenant))
        case Route():
            entry.route.CopyFrom(route_to_wire(value))
        case AclEntry():
            entry.acl.CopyFrom(wire.AclEntry(source=value.source, target=value.target, name=value.name))
        case Suspension():
            entry.suspension.CopyFrom(wire.Suspension(source=value.source, reason=value.reason))


def _choice(choices: type[E], number: int, default: E, where: str) -> E:
    if number == 0:
        return default
    try:
        return choices(number)
    except ValueError:
        known = ", ".join(f"{choice.name} ({choice.value})" for choice in choices)
        raise BadRequest(f"{where}: must be one of {known}.", reason="bad-field") from None
