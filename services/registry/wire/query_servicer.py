"""The reading half of Registry's wire face: the present, the past, and preflight checks.

Never writes, and never answers about entries that do not concern the reader.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.message import DecodeError

from services.registry.reads.changes import DirectoryReader
from services.registry.reads.followers import Followers
from services.registry.reads.forecast import Forecast
from services.registry.reads.history import History
from services.registry.reads.preflight import facts_for
from services.registry.reads.unchanged_cache import UnchangedCache
from services.registry.reads.visibility import owned_since, require_stake
from services.registry.writes.access_requests import AccessRequests
from services.registry.writes.ownership import Ownership
from snavio.domain.directory import AclEntry, DirectoryView, Service, is_over, require_name, require_source
from snavio.domain.directory.rules import require_target
from snavio.errors import BadRequest
from snavio.ports.directory import Directory
from snavio.replication.directory_wire import change_to_wire, route_to_wire, value_to_wire
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as wire

MAX_LISTED: Final = 5000
_COMMAND_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class QueryServicer:
    """Every method of `snavio.v1.Registry` that reads."""

    def __init__(self, *, directory: Directory, ownership: Ownership, forecast: Forecast) -> None:
        self._directory = directory
        self._forecast = forecast
        self._clock = ownership.clock
        self._reader = DirectoryReader(directory, ownership.clock)
        self._unchanged = UnchangedCache(directory, ownership.clock)
        self._followers = Followers(ownership.clock)
        self._past = History(directory, ownership.clock)
        self._asking = AccessRequests(ownership)

    def register(self, methods: Methods) -> None:
        """Adds the handlers."""
        at = "/snavio.v1.Registry/"
        methods.unary_raw(at + "Changes", self.changes)
        methods.unary(at + "Resolve", self.resolve, wire.ResolveRequest)
        methods.unary(at + "Followers", self._followers.list, wire.FollowersRequest)
        methods.unary(at + "Dump", self.dump, wire.DumpRequest)
        methods.unary(at + "Check", self.check, wire.CheckRequest)
        methods.unary(at + "History", self.history, wire.HistoryRequest)
        methods.unary(at + "AccessAt", self.access_at, wire.AccessAtRequest)
        methods.unary(at + "AclDiff", self.acl_diff, wire.AclDiffRequest)
        methods.unary(at + "ListAccess", self.list_access, wire.ListAccessRequest)
        methods.unary(at + "ListAccessRequests", self.list_requests, wire.ListAccessRequestsRequest)

    async def changes(self, request: bytes, call: Call) -> bytes:
        try:
            asked = wire.ChangesRequest.FromString(request)
        except DecodeError:
            raise BadRequest("The request of Changes cannot be read.", reason="malformed") from None
        same = asked.directory_epoch == self._directory.standing[0]
        self._followers.heard(
            call.peer.identity,
            asked.instance,
            version=asked.since_version if same else 0,
            bound_ms=asked.bound_ms,
        )
        known = self._unchanged.answer(asked)
        if known is not None:
            return known
        answer = await self._reader.changes(
            since=asked.since_version,
            epoch=asked.directory_epoch,
            limit=asked.limit,
            reader=call.peer.identity,
        )
        told: bytes = answer.SerializeToString()
        return told

    async def resolve(self, request: wire.ResolveRequest, call: Call) -> wire.ResolveResponse:
        version, answers = await self._reader.resolve(
            [(key.source, key.target, key.name) for key in request.key]
        )
        self._followers.heard(
            call.peer.identity, request.instance, version=version, bound_ms=request.bound_ms
        )
        return wire.ResolveResponse(
            version=version,
            resolution=[
                wire.Resolution(
                    route=route_to_wire(answer.route) if answer.route is not None else None,
                    allowed=answer.allowed,
                    suspended=answer.suspended,
                    warm_banned=answer.warm_banned,
                    source_quota=value_to_wire(answer.source_quota) if answer.source_quota else None,
                    frozen=answer.freeze is not None,
                    frozen_until_unix_ns=answer.freeze.until_unix_ns if answer.freeze is not None else 0,
                    acl_version=answer.acl_version,
                )
                for answer in answers
            ],
        )

    async def dump(self, request: wire.DumpRequest, _call: Call) -> wire.DumpResponse:
        return await self._reader.dump(
            version=request.version,
            epoch=request.directory_epoch,
            after=request.page_token,
            limit=request.limit,
            kind=request.kind,
        )

    async def check(self, request: wire.CheckRequest, call: Call) -> wire.CheckResponse:
        if request.command_id and not _COMMAND_ID.fullmatch(request.command_id):
            raise BadRequest("command_id: must be a UUID in lower case.", reason="bad-field")
        question = facts_for(request.source, request.target, request.name, self._clock.unix_ns())
        version, facts = await self._directory.read(question)
        return await self._forecast.of(
            facts,
            reader=call.peer.identity,
            version=version,
            caller_unix_ns=request.caller_unix_ns,
            command_id=request.command_id,
        )

    async def history(self, request: wire.HistoryRequest, call: Call) -> wire.HistoryResponse:
        changes = await self._past.history(
            request.kind, tuple(request.key), limit=request.limit, reader=call.peer.identity
        )
        return wire.HistoryResponse(
            change=[change_to_wire(change, show_actor=True, with_before=True) for change in changes]
        )

    async def access_at(self, request: wire.AccessAtRequest, call: Call) -> wire.AccessAtResponse:
        access = await self._past.access_at(
            request.target, request.name, request.at_unix_ns, reader=call.peer.identity
        )
        return wire.AccessAtResponse(
            version=access.version,
            routed=access.routed,
            access=[
                wire.Access(
                    acl=value_to_wire(right.value),
                    version=right.version,
                    since_unix_ns=right.at_ns,
                    actor=right.actor,
                    reason=right.reason,
                    suspended=access.was_suspended(right.value.key[0]),
                )
                for right in access.rights
            ],
            more=access.more,
        )

    async def acl_diff(self, request: wire.AclDiffRequest, call: Call) -> wire.AclDiffResponse:
        moved = await self._past.acl_diff(
            request.from_unix_ns, request.to_unix_ns, target=request.target, reader=call.peer.identity
        )
        return wire.AclDiffResponse(
            from_version=moved.from_version,
            to_version=moved.to_version,
            difference=[
                wire.AclDifference(
                    acl=value_to_wire(change.value),
                    granted=not change.deleted,
                    version=change.version,
                    at_unix_ns=change.at_ns,
                    actor=change.actor,
                    reason=change.reason,
                )
                for change in moved.changes
            ],
            more=moved.more,
        )

    async def list_access(self, request: wire.ListAccessRequest, call: Call) -> wire.ListAccessResponse:
        reader, target, source = call.peer.identity, request.target, request.source
        if not target and not source:
            raise BadRequest("target: must be given when source is not.", reason="bad-field")
        service = require_source(source, "source") if source else None
        if target:
            require_target(target, "target")

        now = self._clock.unix_ns()

        def question(view: DirectoryView) -> list[AclEntry]:
            if service is not None and target:
                require_stake(view, reader, AclEntry, (source, target, ""))
                return list(view.beginning(AclEntry, source, target, limit=MAX_LISTED + 1))
            if service is not None:
                require_stake(view, reader, Service, service.key)
                return list(view.beginning(AclEntry, source, limit=MAX_LISTED + 1))
            owned_since(view, reader, target)
            return list(view.under(AclEntry, target, limit=MAX_LISTED + 1))

        version, found = await self._directory.read(question)
        return wire.ListAccessResponse(
            version=version,
            acl=[value_to_wire(entry) for entry in found[:MAX_LISTED] if not is_over(entry, now)],
            more=len(found) > MAX_LISTED,
        )

    async def list_requests(
        self, request: wire.ListAccessRequestsRequest, call: Call
    ) -> wire.ListAccessRequestsResponse:
        tenant = request.tenant or call.peer.identity.tenant
        require_name(tenant, "tenant")
        _, (incoming, outgoing, gone) = await self._directory.read(
            self._asking.concerning(call.peer.identity, tenant)
        )
        lists = []
        for requests in (incoming, outgoing):
            lists.append([value_to_wire(asked) for asked in requests])
            for asked, told in zip(requests, lists[-1], strict=True):
                told.right_ended = asked.acl in gone
        return wire.ListAccessRequestsResponse(incoming=lists[0], outgoing=lists[1])
