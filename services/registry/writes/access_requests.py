"""Access requests: producers ask, owners grant or decline.

Never grants by itself, and never writes a right without the request that says it was granted, or the other
way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.registry.writes.ownership import Ownership, owner_of
from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    DirectoryView,
    Draft,
    RequestState,
    Service,
    Target,
    acts_for,
    is_over,
    require_source,
    require_tenant,
)
from snavio.domain.directory.access import REQUEST_LIFE_NS
from snavio.domain.identity import Identity
from snavio.errors import Conflict, NotAllowed, NotFound

MAX_LISTED: Final = 1000


@dataclass(frozen=True, slots=True)
class AccessRequests:
    """The rules of asking."""

    ownership: Ownership

    def ask(self, actor: Identity, request: AccessRequest) -> Callable[[DirectoryView], Draft]:
        """A principal asks for one of its tenant's services."""
        service = require_source(request.source, "access_request.source")
        require_tenant(actor, service.tenant)
        now = self.ownership.clock.unix_ns()

        def decide(view: DirectoryView) -> Draft:
            if view.find(Service, *service.key) is None:
                raise NotFound(f"There is no service {request.source}.", reason="unknown-source")
            if view.find(Target, request.target) is None:
                raise NotFound(f"Nobody has claimed the target {request.target}.", reason="unknown-target")
            self.ownership.require_route(view, request.target, request.name)
            standing_right = view.find(AclEntry, *request.acl.key)
            if standing_right is not None and not is_over(standing_right, now):
                raise Conflict(f"{request.source} may send this already.", reason="already-granted")
            asked = replace(
                request,
                state=RequestState.PENDING,
                requested_by=actor.spiffe_id,
                answer="",
                expires_unix_ns=now + REQUEST_LIFE_NS,
            )
            standing = _asked(view, request.target, request.name, request.source)
            # The same question again changes nothing: its time goes on from when it was first asked.
            if standing is not None and not is_over(standing, now):
                same = replace(asked, expires_unix_ns=standing.expires_unix_ns)
                if standing == same:
                    return Draft(standing)
            return self.ownership.bounds.added(view, asked)

        return decide

    def answer(
        self, actor: Identity, acl: AclEntry, *, grant: bool, words: str
    ) -> Callable[[DirectoryView], Sequence[Draft]]:
        """The owner answers; a grant writes request and right together."""
        now = self.ownership.clock.unix_ns()

        def decide(view: DirectoryView) -> Sequence[Draft]:
            owner_of(view, actor, acl.target)
            request = _asked(view, acl.target, acl.name, acl.source)
            if request is None or is_over(request, now):
                raise NotFound(f"{acl.source} has not asked for this.", reason="unknown-request")
            state = RequestState.GRANTED if grant else RequestState.DECLINED
            if request.state is not RequestState.PENDING and request.state is not state:
                raise Conflict(
                    f"The request was {request.state.name.lower()} before; it must be asked again.",
                    reason="already-answered",
                )
            if request.state is state:
                # Said twice is said once: only the right itself is written again, in case it was revoked. One that
                # stands keeps its end and its profile.
                standing = view.find(AclEntry, *acl.key)
                if not grant or (standing is not None and not is_over(standing, now)):
                    return [Draft(request)]
                return [self.ownership.grant(actor, acl)(view)]
            answered = replace(request, state=state, answer=words, expires_unix_ns=now + REQUEST_LIFE_NS)
            drafts = [Draft(answered)]
            if grant:
                drafts.append(self.ownership.grant(actor, acl)(view))
            return drafts

        return decide

    def concerning(
        self, reader: Identity, tenant: str
    ) -> Callable[[DirectoryView], tuple[list[AccessRequest], list[AccessRequest], frozenset[AclEntry]]]:
        """Requests for the targets of a tenant, requests by the tenant, and the granted rights that are gone."""
        if not acts_for(reader, tenant):
            raise NotAllowed(f"{reader} may not read the requests of tenant {tenant}.", reason="not-owner")
        now = self.ownership.clock.unix_ns()

        def question(
            view: DirectoryView,
        ) -> tuple[list[AccessRequest], list[AccessRequest], frozenset[AclEntry]]:
            incoming: list[AccessRequest] = []
            for target in view.under(Target, tenant, limit=self.ownership.bounds.targets_per_tenant):
                room = MAX_LISTED - len(incoming)
                if room <= 0:
                    break
                incoming += [
                    request
                    for request in view.beginning(AccessRequest, target.target, limit=room)
                    if _asked(view, *request.key) is not None
                ]
            outgoing = view.under(AccessRequest, tenant, limit=MAX_LISTED)
            shown = [
                [request for request in requests if not is_over(request, now)]
                for requests in (incoming, outgoing)
            ]
            granted = {
                request.acl
                for requests in shown
                for request in requests
                if request.state is RequestState.GRANTED
            }
            rights = {acl: view.find(AclEntry, *acl.key) for acl in granted}
            gone = (acl for acl, right in rights.items() if right is None or is_over(right, now))
            return shown[0], shown[1], frozenset(gone)

        return question


def _asked(view: DirectoryView, target: str, name: str, source: str) -> AccessRequest | None:
    """The request, if it was made to the present owner of the target.

    A target may have been released and claimed again since: requests to its earlier owner are hidden from the next one,
    and must not prevent a new request.
    """
    since = view.version_of(Target, target)
    if view.version_of(AccessRequest, target, name, source) < since:
        return None
    return view.find(AccessRequest, target, name, source)
