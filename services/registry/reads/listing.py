"""Lists the entries of one kind in pages: everything for operators, what is a tenant's own for its principals.

Never examines more of the directory for one page than a bound, however much of it the page leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from services.registry.reads.visibility import sees_all
from snavio.domain.directory import (
    KINDS,
    AclEntry,
    AlertChannel,
    Ban,
    BanList,
    DirectoryView,
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
    every_source,
    is_over,
    require_name,
)
from snavio.domain.directory.rules import require_target
from snavio.domain.identity import Identity
from snavio.errors import BadRequest, NotAllowed

MAX_LISTED: Final = 1000
GROUPS: Final = 500
"""Targets or services that one page looks through."""
LISTED: Final[dict[str, type[Value]]] = {
    name: kind for name, kind in KINDS.items() if name not in ("access_request", "ban_proposal")
}
OF_TARGET: Final = (Route, AclEntry, SourceQuota, ProfileLimit)
_MARK: Final = "~"
_FROZEN: Final = BanList.FROZEN.name.lower()
GroupReading: TypeAlias = Callable[[tuple[str, ...], int], Sequence[Value]]
"""Reads the entries of one group beyond a key, at most so many."""


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """The entries that one reader asks for."""

    kind: type[Value]
    tenant: str
    """The tenant that they belong to; empty for everything."""
    target: str
    limit: int

    @classmethod
    def read(cls, kind: str, tenant: str, target: str, limit: int, *, reader: Identity) -> EntryQuery:
        """The query of a request; NotAllowed for what belongs to another tenant."""
        if kind not in LISTED:
            raise BadRequest(f"kind: must be one of {', '.join(sorted(LISTED))}.", reason="bad-field")
        if tenant:
            require_name(tenant, "tenant")
        if target:
            require_target(target, "target")
            if LISTED[kind] not in OF_TARGET:
                raise BadRequest(f"target: a {kind} is not one of a target's.", reason="bad-field")
        if not sees_all(reader):
            if not reader.tenant or tenant not in ("", reader.tenant):
                raise NotAllowed(f"{reader} may list what is of its own tenant.", reason="not-owner")
            tenant = reader.tenant
        return cls(LISTED[kind], tenant, target, min(limit, MAX_LISTED) or MAX_LISTED)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Some of the entries, each with its version, and where the next page begins; empty at the end."""

    entries: Sequence[tuple[Value, int]]
    after: str


def page_of(view: DirectoryView, query: EntryQuery, token: str, now_unix_ns: int) -> EntryPage:
    """The page of `query` that begins at `token`: the name of a group, and a key in it."""
    start, _, rest = token.partition("\n")
    after = tuple(rest.split("\n")) if rest else ()
    found: list[Value] = []
    next_token = ""
    for examined, (name, read) in enumerate(_groups(view, query, start)):
        if examined == GROUPS:
            next_token = f"{name}\n"
            break
        room = query.limit - len(found)
        values = read(after if name == start else (), room)
        found += values
        if len(values) == room:
            # Possibly nothing is left; the next page is then empty, and the last.
            next_token = "\n".join((name, *values[-1].key))
            break
    standing = [_shown(value) for value in found if not is_over(value, now_unix_ns)]
    return EntryPage([(value, view.version_of(type(value), *value.key)) for value in standing], next_token)


def _groups(view: DirectoryView, query: EntryQuery, start: str) -> Iterator[tuple[str, GroupReading]]:
    """Groups of entries in order, from `start` on. A token comes from the caller: it may name anything."""
    kind, tenant, target = query.kind, query.tenant, query.target
    if target:
        owner = view.find(Target, target)
        if not tenant or (owner is not None and owner.tenant == tenant):
            yield "", partial(_under, view, kind, target)
    elif not tenant or kind in (Tenant, Principal, Service, AlertChannel, TopicRule, Endpoint):
        yield "", partial(_beginning, view, kind, (tenant,) if tenant else ())
    elif kind is Target:
        yield "", partial(_under, view, kind, tenant)
    elif kind in OF_TARGET:
        for name in _targets(view, tenant, start):
            yield name, partial(_under, view, kind, name)
    else:
        yield from _lists(view, kind, tenant, start)


def _lists(
    view: DirectoryView, kind: type[Value], tenant: str, start: str
) -> Iterator[tuple[str, GroupReading]]:
    if kind is Suspension and not start:
        yield "", partial(_beginning, view, kind, (every_source(tenant),))
    # Services before targets, whose groups are marked: no name begins with the mark.
    if not start.startswith(_MARK):
        for name in _services(view, tenant, start):
            yield name, partial(_beginning, view, kind, (f"{tenant}/{name}",))
    if kind is Ban:
        for name in _targets(view, tenant, start[1:] if start.startswith(_MARK) else ""):
            yield _MARK + name, partial(_beginning, view, kind, ("", _FROZEN, name))


def _targets(view: DirectoryView, tenant: str, start: str) -> Iterator[str]:
    if start and (first := view.find(Target, start)) is not None and first.tenant == tenant:
        yield start
    for target in view.under(Target, tenant, limit=GROUPS + 1, after=(start,) if start else ()):
        yield target.target


def _services(view: DirectoryView, tenant: str, start: str) -> Iterator[str]:
    if start and view.find(Service, tenant, start) is not None:
        yield start
    after = (tenant, start) if start else ()
    for service in view.under(Service, tenant, limit=GROUPS + 1, after=after):
        yield service.service


def _under(
    view: DirectoryView, kind: type[Value], parent: str, after: tuple[str, ...], limit: int
) -> Sequence[Value]:
    return view.under(kind, parent, limit=limit, after=after)


def _beginning(
    view: DirectoryView, kind: type[Value], prefix: tuple[str, ...], after: tuple[str, ...], limit: int
) -> Sequence[Value]:
    return view.beginning(kind, *prefix, limit=limit, after=after)


def _shown(value: Value) -> Value:
    # Evidence may quote what other tenants sent, and a page of it would be too large for one message.
    return replace(value, evidence="") if isinstance(value, Ban | Suspension) else value
