"""Client of operators and principals for the directory at Registry: queries and registrations.

Never retries a write: what became of one that was not answered is asked by writing it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from snavio.admin.client import RegistryClient
from snavio.domain.directory import AclEntry, Profile, Value
from snavio.replication.directory_wire import entry_to_wire, value_to_wire
from snavio.v1 import registry_pb2 as wire

CALL_SECONDS = 10.0

Triple = tuple[str, str, str]
"""Source, target, command."""


class DirectoryClient(RegistryClient):
    """A client of Registry under the certificate in `certificates`."""

    call_seconds = CALL_SECONDS

    async def apply(
        self,
        values: Iterable[Value],
        *,
        deleted: Iterable[Value] = (),
        reason: str = "",
        dry_run: bool = False,
        check: Sequence[Triple] = (),
        tell_mistakes: bool = False,
    ) -> wire.ApplyResponse:
        """Write all of them, or none; `check` is answered as it will be after that.

        With `tell_mistakes` every refused write is in the answer's `mistake`; otherwise the first one is raised.
        """
        writes = [wire.Write(entry=entry_to_wire(value)) for value in values]
        writes += [wire.Write(entry=entry_to_wire(value), delete=True) for value in deleted]
        request = wire.ApplyRequest(
            write=writes,
            reason=reason,
            dry_run=dry_run,
            check=[
                wire.CheckRequest(source=source, target=target, name=name) for source, target, name in check
            ],
            tell_mistakes=tell_mistakes,
        )
        return await self._call("Apply", request, wire.ApplyResponse)

    async def new_token(self, tenant: str, *, principal: str = "", ttl_s: int = 0) -> wire.EnrolmentToken:
        """A one-time token for a principal of a tenant; it cannot be asked for again. NotFound without that tenant."""
        request = wire.EnrolmentTokenRequest(tenant=tenant, principal=principal, ttl_seconds=ttl_s)
        return await self._call("CreateEnrolment", request, wire.EnrolmentToken)

    async def check(
        self, source: str, target: str, name: str, *, caller_unix_ns: int = 0, command_id: str = ""
    ) -> wire.CheckResponse:
        """The decisions that a command would meet; with the caller's clock, whether that is right; with an id, whether
        a strict route knows it.
        """
        request = wire.CheckRequest(
            source=source, target=target, name=name, caller_unix_ns=caller_unix_ns, command_id=command_id
        )
        return await self._call("Check", request, wire.CheckResponse)

    async def history(self, kind: str, *key: str, limit: int = 0) -> Sequence[wire.Change]:
        """Versions of one entry, newest last."""
        request = wire.HistoryRequest(kind=kind, key=key, limit=limit)
        answer = await self._call("History", request, wire.HistoryResponse)
        return list(answer.change)

    async def access(self, *, target: str = "", source: str = "") -> wire.ListAccessResponse:
        """Rights as they are, of a target, a source or both."""
        request = wire.ListAccessRequest(target=target, source=source)
        return await self._call("ListAccess", request, wire.ListAccessResponse)

    async def access_at(self, target: str, name: str, at_unix_ns: int) -> wire.AccessAtResponse:
        """Sources that could send a command at a time."""
        request = wire.AccessAtRequest(target=target, name=name, at_unix_ns=at_unix_ns)
        return await self._call("AccessAt", request, wire.AccessAtResponse)

    async def acl_diff(
        self, from_unix_ns: int, to_unix_ns: int = 0, *, target: str = ""
    ) -> wire.AclDiffResponse:
        """Rights that came and went between two times."""
        request = wire.AclDiffRequest(from_unix_ns=from_unix_ns, to_unix_ns=to_unix_ns, target=target)
        return await self._call("AclDiff", request, wire.AclDiffResponse)

    async def grant(
        self,
        source: str,
        target: str,
        name: str,
        *,
        profile: Profile | None = None,
        ttl_seconds: int = 0,
        reason: str = "",
    ) -> wire.WriteResponse:
        """Let a source send a command to a target; for as long as `ttl_seconds`, if they are given."""
        acl = value_to_wire(AclEntry(source, target, name, profile, ttl_seconds))
        request = wire.GrantAccessRequest(acl=acl, options=_because(reason))
        return await self._call("GrantAccess", request, wire.WriteResponse)

    async def revoke(self, source: str, target: str, name: str, *, reason: str = "") -> wire.WriteResponse:
        """Take that right away."""
        request = wire.RevokeAccessRequest(
            acl=wire.AclEntry(source=source, target=target, name=name), options=_because(reason)
        )
        return await self._call("RevokeAccess", request, wire.WriteResponse)

    async def request_access(self, source: str, target: str, name: str, *, reason: str) -> wire.WriteResponse:
        """Ask a target's owner for a right."""
        asked = wire.AccessRequest(source=source, target=target, name=name, reason=reason)
        return await self._call(
            "RequestAccess", wire.RequestAccessRequest(access_request=asked), wire.WriteResponse
        )

    async def answer_access(
        self,
        source: str,
        target: str,
        name: str,
        *,
        grant: bool,
        profile: Profile | None = None,
        ttl_seconds: int = 0,
        reason: str = "",
    ) -> wire.WriteResponse:
        """Grant what was asked for, or decline it; profile and life are those of the right that is granted."""
        request = wire.AnswerAccessRequest(
            source=source,
            target=target,
            name=name,
            grant=grant,
            profile=int(profile or 0),  # type: ignore[arg-type]
            ttl_seconds=ttl_seconds,
            options=_because(reason),
        )
        return await self._call("AnswerAccess", request, wire.WriteResponse)

    async def access_requests(self, tenant: str = "") -> wire.ListAccessRequestsResponse:
        """Requests to a tenant's targets, and of its own sources."""
        request = wire.ListAccessRequestsRequest(tenant=tenant)
        return await self._call("ListAccessRequests", request, wire.ListAccessRequestsResponse)


def _because(reason: str) -> wire.WriteOptions:
    return wire.WriteOptions(reason=reason)
