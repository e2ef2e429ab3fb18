"""Turns the wire's values into the directory's and back; fields have the same names on both sides.

Never takes from a request what Registry derives, and never takes an unknown number for a known one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, cast

from snavio.domain.directory import (
    KINDS,
    AccessRequest,
    AclEntry,
    BanProposal,
    Change,
    Difference,
    Endpoint,
    Limit,
    Route,
    Service,
    V,
    Value,
    shape_of,
)
from snavio.errors import BadRequest
from snavio.v1 import registry_pb2 as wire

# Registry's own word; a tenant that could say them would choose its address, its end or its answer.
DERIVED: Final[Mapping[type[Any], frozenset[str]]] = {
    Route: frozenset({"topic", "expires_unix_ns"}),
    AclEntry: frozenset({"expires_unix_ns"}),
    Limit: frozenset({"by_profile"}),
    AccessRequest: frozenset({"state", "requested_by", "answer", "expires_unix_ns"}),
    BanProposal: frozenset(
        {
            "state",
            "covers",
            "decided_unix_ns",
            "concluded_unix_ns",
            "opens_window",
            "announced_unix_ns",
            "expires_unix_ns",
        }
    ),
}
# Repeated fields are in the singular on the wire.
SPELLED: Final[Mapping[tuple[type[Any], str], str]] = {
    (Service, "principals"): "principal",
    (BanProposal, "abuse"): "kind",
    (BanProposal, "affected_targets"): "affected_target",
    (BanProposal, "covers"): "cover",
    (Endpoint, "targets"): "target",
    (Endpoint, "topics"): "topic",
}


def value_from_wire(kind: type[V], message: Any) -> V:
    """The value that a request describes; derived fields are ignored, absent ones have their default."""
    return cast("V", _read(kind, message, kind.kind))


def entry_from_wire(entry: wire.Entry, where: str) -> Value:
    """The value in an entry."""
    kind = entry.WhichOneof("value")
    if kind is None:
        raise BadRequest(f"{where}: must have a value of a kind that Registry knows.", reason="bad-field")
    return value_from_wire(KINDS[kind], getattr(entry, kind))


def route_from_wire(route: wire.Route) -> Route:
    """The route that a request describes; its topic is ignored."""
    return value_from_wire(Route, route)


def acl_from_wire(acl: wire.AclEntry) -> AclEntry:
    """The right that a request names."""
    return value_from_wire(AclEntry, acl)


def value_to_wire(value: Value) -> Any:
    """The message of a value, such as a `Route`."""
    return _write(value, _message_of(value.kind))


def entry_to_wire(value: Value) -> wire.Entry:
    """The value as an entry."""
    return wire.Entry(**{value.kind: value_to_wire(value)})


def route_to_wire(route: Route) -> wire.Route:
    """The route with everything derived."""
    return cast("wire.Route", value_to_wire(route))


def change_to_wire(change: Change, *, show_actor: bool, with_before: bool = False) -> wire.Change:
    """One line of the changelog."""
    entry = wire.Change(
        version=change.version,
        at_unix_ns=change.at_ns,
        actor=change.actor if show_actor else "",
        reason=change.reason if show_actor else "",
        deleted=change.deleted,
        **{change.value.kind: value_to_wire(change.value)},
    )
    if with_before and change.before is not None:
        entry.before.CopyFrom(entry_to_wire(change.before))
    return entry


def difference_to_wire(difference: Difference) -> wire.Difference:
    """The difference that a batch makes to one entry."""
    return wire.Difference(
        before=entry_to_wire(difference.before) if difference.before is not None else None,
        after=entry_to_wire(difference.after) if difference.after is not None else None,
        version=difference.version,
    )


def _message_of(kind: str) -> Any:
    return wire.Entry.DESCRIPTOR.fields_by_name[kind].message_type._concrete_class


def _write(value: Any, message: Any) -> Any:
    plain, kind = {}, cast("Any", type(value))
    for name, spelled, inner in _fields(kind, message):
        item = getattr(value, name)
        if item is not None:
            plain[spelled] = _write(item, inner) if inner is not None else item
    return message(**plain)


@cache
def _fields(kind: Any, message: Any) -> Sequence[tuple[str, str, Any]]:
    """Each field's name here and on the wire, and the message of one that is a value itself. Worked out once."""
    found = []
    for name, hint in shape_of(kind).items():
        spelled = SPELLED.get((kind, name), name)
        inner = (
            message.DESCRIPTOR.fields_by_name[spelled].message_type._concrete_class
            if is_dataclass(hint)
            else None
        )
        found.append((name, spelled, inner))
    return tuple(found)


def _read(kind: type[Any], message: Any, where: str) -> Any:
    shape = shape_of(kind)
    given: dict[str, Any] = {}
    derived = DERIVED.get(kind, frozenset())
    for field in fields(kind):
        if field.name in derived:
            continue
        name = SPELLED.get((kind, field.name), field.name)
        spot, inner = f"{where}.{field.name}", shape[field.name]
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        described = message.DESCRIPTOR.fields_by_name[name]
        item = getattr(message, name)
        if isinstance(inner, type) and issubclass(inner, IntEnum):
            if item or not has_default:
                given[field.name] = _choice(inner, item, spot)
        elif described.has_presence:
            if message.HasField(name):
                given[field.name] = _read(inner, item, spot) if is_dataclass(inner) else item
        elif described.is_repeated:
            given[field.name] = tuple(item)
        elif item or not has_default:
            given[field.name] = item
    return kind(**given)


def _choice(choices: type[IntEnum], number: int, where: str) -> IntEnum:
    try:
        return choices(number)
    except ValueError:
        known = ", ".join(f"{choice.name} ({choice.value})" for choice in choices)
        raise BadRequest(f"{where}: must be one of {known}.", reason="bad-field") from None
