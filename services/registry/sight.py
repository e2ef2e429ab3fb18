"""What each reader may see of the directory: entries by whose they are, authors by whose people they are.

Never tells a tenant whether something of another tenant exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    Ban,
    Change,
    Route,
    SourceQuota,
    Suspension,
    Target,
    Value,
    View,
)
from snavio.domain.identity import Identity, Kind
from snavio.errors import NotAllowed


def sees_all(reader: Identity) -> bool:
    """Operators and the mesh see everything."""
    return reader.kind in (Kind.OPERATOR, Kind.MESH)


def sees_author(reader: Identity, author: str) -> bool:
    """A tenant knows its own people by name, and nobody else's."""
    own = f"spiffe://{reader.trust_domain}/tenant/{reader.tenant}/"
    return sees_all(reader) or (bool(reader.tenant) and author.startswith(own))


def stakeholders(view: View, kind: type[Value], key: Sequence[str]) -> frozenset[str]:
    """The tenants that an entry concerns: the owner of its target, and whoever its source belongs to."""
    target, source, tenant = "", "", ""
    if kind in (Target, Route):
        target = key[0]
    elif kind in (AclEntry, SourceQuota):
        source, target = key[0], key[1]
    elif kind is AccessRequest:
        target, source = key[0], key[2]
    elif kind is Ban:
        source, target = key[0], key[2]
    elif kind is Suspension:
        source = key[0]
    else:
        tenant = key[0]
    owner = view.find(Target, target) if target else None
    concerned = {tenant, source.partition("/")[0], owner.tenant if owner is not None else ""}
    return frozenset(concerned - {""})


def require_stake(view: View, reader: Identity, kind: type[Value], key: Sequence[str]) -> None:
    """NotAllowed for a reader whom an entry does not concern, whether it exists or not."""
    if not sees_all(reader) and reader.tenant not in stakeholders(view, kind, key):
        raise NotAllowed(f"{reader} may not read this {kind.kind}.", reason="not-owner")


def owner_seen(view: View, reader: Identity, target: str) -> str:
    """The owner of a target, for a reader who is one of its people; empty for an operator and a free name."""
    claimed = view.find(Target, target)
    owner = claimed.tenant if claimed is not None else ""
    if not sees_all(reader) and (not owner or owner != reader.tenant):
        raise NotAllowed(f"{reader} may not read the rights of target {target}.", reason="not-owner")
    return owner


def as_seen(change: Change, reader: Identity) -> Change:
    """The change without what this reader may not know."""
    if sees_all(reader):
        return change
    known = sees_author(reader, change.actor)
    return replace(
        change,
        actor=change.actor if known else "",
        reason=change.reason if known else "",
        value=_without_evidence(change.value),
        before=_without_evidence(change.before) if change.before is not None else None,
    )


def _without_evidence(value: Value) -> Value:
    # Evidence may quote what other tenants sent.
    return replace(value, evidence="") if isinstance(value, Ban | Suspension) else value
