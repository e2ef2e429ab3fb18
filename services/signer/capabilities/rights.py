"""Rules of capabilities: which caller may have one made for which holder, and list, end or rotate those of a realm.

Pure; denies by default. Never lets anything but Fast and Slow send to a route's topic, and never lets a service have
more than its own work needs: a stolen certificate must not be able to make rights for others.
"""

from __future__ import annotations

from typing import Final

from snavio.domain.caveat import CONSUMING, Operation, require_pattern
from snavio.domain.directory import acts_for
from snavio.domain.identity import Identity, IdentityKind, parse_identity, valid_name
from snavio.errors import BadRequest, NotAllowed

EVERYWHERE: Final = "*"
WHOLE: Final = ("*", "own/*")
SENDERS: Final = frozenset({"fast", "slow", "relay"})
WATCHERS: Final = frozenset({"registry"})
"""They look at the queues of routes, and touch nothing."""

_SENDING: Final = frozenset({Operation.SEND})
_ANY_BUT_SENDING: Final = frozenset(Operation) - _SENDING
_OPERATIONS: Final = {
    IdentityKind.MESH: _SENDING,
    IdentityKind.SERVICE: CONSUMING | {Operation.PEEK},
    IdentityKind.PRINCIPAL: _ANY_BUT_SENDING,
    IdentityKind.OPERATOR: _ANY_BUT_SENDING,
    IdentityKind.JOB: frozenset[Operation](),
}


def require_realm(realm: str) -> None:
    """BadRequest unless it is a topic, `<tenant>/*`, `<tenant>/own/*` or `*`; what is finer is said in a caveat."""
    require_pattern(realm)
    tenant, slash, target = realm.partition("/")
    named = bool(target) and not target.endswith("*")
    if realm != EVERYWHERE and not (valid_name(tenant) and slash and (named or target in WHOLE)):
        raise BadRequest("realm: must be <tenant>/<target>, <tenant>/* or *.", reason="bad-field")


def require_may_issue(
    caller: Identity, *, realm: str, operations: frozenset[Operation], holder: str, trust_domain: str
) -> None:
    """NotAllowed unless `caller` may have this made for `holder`."""
    allowed = _OPERATIONS[caller.kind]
    if caller.kind is IdentityKind.MESH and caller.name in WATCHERS:
        allowed = frozenset({Operation.STATS})
    # A tenant sends to the queues that are its own; topics of routes are filled through Shield alone.
    if caller.tenant and realm.startswith(f"{caller.tenant}/own/"):
        allowed |= _SENDING
    beyond = operations - allowed
    if beyond or (caller.kind is IdentityKind.MESH and caller.name not in SENDERS | WATCHERS):
        words = ", ".join(sorted(beyond)) or "send"
        raise NotAllowed(f"{caller} may not have a capability for {words}.", reason="not-your-operation")
    if caller.tenant and realm.partition("/")[0] != caller.tenant:
        raise NotAllowed("This topic belongs to another tenant.", reason="not-owner")
    if holder == caller.spiffe_id:
        return
    tenant = tenant_of(holder, trust_domain=trust_domain)
    if caller.kind is IdentityKind.OPERATOR and not _is_mesh(holder, trust_domain=trust_domain):
        return
    if caller.kind is not IdentityKind.PRINCIPAL or tenant != caller.tenant:
        raise NotAllowed(f"{caller} may not have a capability made for {holder}.", reason="not-your-holder")


def require_may_govern(caller: Identity, tenant: str) -> None:
    """NotAllowed unless `caller` may end, list or rotate what is of `tenant`; without one, only operators may."""
    if caller.kind is not IdentityKind.OPERATOR and not (tenant and acts_for(caller, tenant)):
        raise NotAllowed(f"{caller} may not do this for {tenant or 'all tenants'}.", reason="not-owner")


def tenant_of(holder: str, *, trust_domain: str) -> str:
    """The tenant of a holder, if any; BadRequest when it is no holder."""
    kind, _, rest = holder.partition(":")
    if kind == "tenant":
        if not valid_name(rest):
            raise BadRequest("holder: must be spiffe://… or tenant:<name>.", reason="bad-field")
        return rest
    return parse_identity(holder, trust_domain=trust_domain).tenant


def share_of(holder: str, *, trust_domain: str) -> str:
    """The share of the ledger that a holder's capability uses: its tenant's, the mesh's or the operators'.

    Apart from each other, so that an operator's script that asks every second cannot keep Fast from its next one.
    """
    tenant = tenant_of(holder, trust_domain=trust_domain)
    # No tenant can be called so.
    return tenant or ("~mesh" if _is_mesh(holder, trust_domain=trust_domain) else "~operator")


def _is_mesh(holder: str, *, trust_domain: str) -> bool:
    return not holder.startswith("tenant:") and (
        parse_identity(holder, trust_domain=trust_domain).kind is IdentityKind.MESH
    )
