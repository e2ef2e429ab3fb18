"""Decides what each reader may see of the directory: entries by their owner, authors by their tenant.

Never tells a tenant whether something of another tenant exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    Ban,
    BanProposal,
    Change,
    DirectoryView,
    ProfileLimit,
    Route,
    SourceQuota,
    Suspension,
    Target,
    Value,
)
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import NotAllowed


def sees_all(reader: Identity) -> bool:
    """Operators and the mesh see everything."""
    return reader.kind in (IdentityKind.OPERATOR, IdentityKind.MESH)


def sees_author(reader: Identity, author: str) -> bool:
    """True if the reader may see the name of an author: that of its own tenant, or all for operators."""
    own = f"spiffe://{reader.trust_domain}/tenant/{reader.tenant}/"
    return sees_all(reader) or (bool(reader.tenant) and author.startswith(own))


def stake(view: DirectoryView, reader: Identity, kind: type[Value], key: Sequence[str]) -> int | None:
    """The version since which an entry concerns the reader; None when it does not.

    It always concerns the owner of its source, and the owner of its target from the claim on: what happened under an
    earlier owner is hidden from the next one.
    """
    if sees_all(reader):
        return 0
    target, source, tenant = "", "", ""
    if kind in (Target, Route, ProfileLimit):
        target = key[0]
    elif kind in (AclEntry, SourceQuota):
        source, target = key[0], key[1]
    elif kind is AccessRequest:
        target, source = key[0], key[2]
    elif kind is Ban:
        source, target = key[0], key[2]
    elif kind is Suspension:
        source = key[0]
    elif kind is BanProposal:
        proposal = view.find(BanProposal, *key)
        source = proposal.source if proposal is not None else ""
    else:
        tenant = key[0]
    if reader.tenant and reader.tenant in (tenant, source.partition("/")[0]):
        return 0
    return claimed_since(view, reader, target) if target else None


def claimed_since(view: DirectoryView, reader: Identity, target: str) -> int | None:
    """The version at which the reader's tenant claimed a target; None when it has not."""
    claimed = view.find(Target, target)
    if claimed is None or not reader.tenant or claimed.tenant != reader.tenant:
        return None
    return view.version_of(Target, target)


def require_stake(view: DirectoryView, reader: Identity, kind: type[Value], key: Sequence[str]) -> int:
    """As `since`; NotAllowed for an entry that does not concern the reader, whether it exists or not."""
    since = stake(view, reader, kind, key)
    if since is None:
        raise NotAllowed(f"{reader} may not read this {kind.kind}.", reason="not-owner")
    return since


def owned_since(view: DirectoryView, reader: Identity, target: str) -> int:
    """Since when the reader may ask about a target's rights; NotAllowed for a target that is not its tenant's."""
    since = 0 if sees_all(reader) else claimed_since(view, reader, target)
    if since is None:
        raise NotAllowed(f"{reader} may not read the rights of target {target}.", reason="not-owner")
    return since


def as_seen(change: Change, reader: Identity) -> Change:
    """The change without the parts that this reader may not see."""
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
    return replace(value, evidence="") if isinstance(value, Ban | BanProposal | Suspension) else value
