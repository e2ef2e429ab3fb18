"""The writing half of Registry's wire face: protobuf in, decisions, protobuf out.

Never writes a service into the directory before it has a key set: a service without one could send nothing
and would not say why.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.registry.reads.forecast import Forecast
from services.registry.reads.preflight import facts_for
from services.registry.signer.joint_writes import JointWrites
from services.registry.signer.signer_calls import SignerCalls
from services.registry.signer.signer_sync import SignerSync
from services.registry.writes.access_requests import AccessRequests
from services.registry.writes.batch import MAX_MISTAKES, BatchWriter, Mistakes, wanted_from_wire
from services.registry.writes.ownership import Ownership, expecting
from services.registry.writes.queue_proofs import QueueProofs, is_new
from snavio.domain.directory import (
    AccessRequest,
    Ban,
    BanList,
    Draft,
    Principal,
    QueueKind,
    Route,
    Service,
    Suspension,
    Target,
    Tenant,
    require_text,
)
from snavio.domain.directory.rules import require_name
from snavio.domain.identity import IdentityKind
from snavio.errors import NotAllowed, NotFound, SnavioError
from snavio.ports.directory import Decision, Directory
from snavio.replication.directory_wire import (
    acl_from_wire,
    difference_to_wire,
    route_from_wire,
    value_from_wire,
)
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as wire


class WriteServicer:
    """Every method of `snavio.v1.Registry` that writes; `trust` has its calls to Signer."""

    def __init__(
        self,
        *,
        directory: Directory,
        ownership: Ownership,
        trust: SignerCalls,
        forecast: Forecast,
        queues: QueueProofs,
        spares: Callable[[str], bool] = lambda _source: False,
    ) -> None:
        self._directory = directory
        self._spares = spares
        self._ownership = ownership
        self._trust = trust
        self._asking = AccessRequests(ownership)
        self._forecast = forecast
        self._queues = queues
        self._signer_sync = SignerSync(directory, trust, ownership.clock)
        self.joint_writes = JointWrites()
        """Writes at Signer and in the directory; finish them before the directory is closed."""
        self.batches = BatchWriter(directory, ownership, trust, self._signer_sync, queues, self.joint_writes)
        self._log = structlog.get_logger()

    def methods(self) -> Methods:
        """Handlers for the server."""
        methods = Methods()
        at = "/snavio.v1.Registry/"
        methods.unary(at + "CreateTenant", self.create_tenant, wire.CreateTenantRequest)
        methods.unary(at + "CreateEnrolment", self.create_enrolment, wire.EnrolmentTokenRequest)
        methods.unary(at + "RegisterService", self.register_service, wire.RegisterServiceRequest)
        methods.unary(at + "ClaimTarget", self.claim_target, wire.ClaimTargetRequest)
        methods.unary(at + "PutRoute", self.put_route, wire.PutRouteRequest)
        methods.unary(at + "DeleteRoute", self.delete_route, wire.DeleteRouteRequest)
        methods.unary(at + "GrantAccess", self.grant_access, wire.GrantAccessRequest)
        methods.unary(at + "RevokeAccess", self.revoke_access, wire.RevokeAccessRequest)
        methods.unary(at + "SetSuspension", self.set_suspension, wire.SetSuspensionRequest)
        methods.unary(at + "Apply", self.apply, wire.ApplyRequest)
        methods.unary(at + "RequestAccess", self.request_access, wire.RequestAccessRequest)
        methods.unary(at + "AnswerAccess", self.answer_access, wire.AnswerAccessRequest)
        methods.unary(at + "SetBan", self.set_ban, wire.SetBanRequest)
        return methods

    async def create_tenant(self, request: wire.CreateTenantRequest, call: Call) -> wire.CreateTenantResponse:
        tenant = Tenant(request.tenant.tenant)
        if request.principal:
            require_name(request.principal, "principal")
        written = await self._write(
            self._ownership.create_tenant(call.peer.identity, tenant), call, request.options
        )
        # After the write: a token must not outlive a tenant that was never made. And only by the write that made
        # it, or whoever repeats a harmless request would collect tokens.
        enrolment = await self._trust.enrolment(tenant.tenant, request.principal) if written.changed else None
        return wire.CreateTenantResponse(
            version=written.version,
            changed=written.changed,
            enrolment_token=enrolment.token if enrolment else "",
            enrolment_expires_unix_ns=enrolment.expires_unix_ns if enrolment else 0,
        )

    async def create_enrolment(self, request: wire.EnrolmentTokenRequest, call: Call) -> wire.EnrolmentToken:
        require_name(request.tenant, "tenant")
        _, (tenant, principal) = await self._directory.read(
            lambda view: (
                view.find(Tenant, request.tenant),
                view.find(Principal, request.tenant, request.principal) if request.principal else None,
            )
        )
        if tenant is None:
            # Whoever enrolled with it would be a principal of whatever tenant gets this name.
            raise NotFound(
                f"There is no tenant {request.tenant}: `snavio tenant invite {request.tenant} --contact "
                "ADDRESS` makes and invites one.",
                reason="no-tenant",
            )
        if request.principal and principal is None:
            # A misspelled name would become a principal that no registration names and nobody looks for.
            raise NotFound(
                f"There is no principal {request.principal} of {request.tenant}: a registration's `principals` "
                f"makes it, and so does `snavio tenant invite {request.tenant} --principal {request.principal}`.",
                reason="no-principal",
            )
        made = await self._trust.token(
            tenant.tenant,
            request.principal,
            ttl_s=request.ttl_seconds,
            actor=call.peer.identity.spiffe_id,
        )
        return wire.EnrolmentToken(token=made.token, expires_unix_ns=made.expires_unix_ns)

    async def register_service(self, request: wire.RegisterServiceRequest, call: Call) -> wire.WriteResponse:
        service = value_from_wire(Service, request.service)
        require_text(request.options.reason, "options.reason")
        decision = expecting(
            self._ownership.register_service(call.peer.identity, service), _expected(request.options)
        )
        # Asked once before Signer is: a refused registration must not leave a key set behind, nor end certificates.
        _, (_, suspended) = await self._directory.read(
            lambda view: (decision(view), self._signer_sync.suspended(view, service.source))
        )
        return await self.joint_writes.whole(
            self._register(service, decision, call, request.options, suspended=suspended),
            tenant=call.peer.identity.tenant,
        )

    async def _register(
        self,
        service: Service,
        decision: Decision,
        call: Call,
        options: wire.WriteOptions,
        *,
        suspended: bool,
    ) -> wire.WriteResponse:
        await self._trust.keyset(service.source)
        # Before the directory: a principal that is named no more is then without its right even if we fail here,
        # and the same registration again sets everything straight.
        told = await self._signer_sync.tell(service, suspended=suspended)
        try:
            written = await self._write(decision, call, options)
        except SnavioError:
            # Another write came first, or none was possible. Signer must not go on with what the directory never took.
            await self._signer_sync.agree(service.source, told)
            raise
        await self._signer_sync.agree(service.source, told)
        return written

    async def claim_target(self, request: wire.ClaimTargetRequest, call: Call) -> wire.WriteResponse:
        target = Target(request.target.target, request.target.tenant)
        decision = self._ownership.claim_target(call.peer.identity, target)
        return await self._write(decision, call, request.options)

    async def put_route(self, request: wire.PutRouteRequest, call: Call) -> wire.WriteResponse:
        route = route_from_wire(request.route)
        decision = self._ownership.put_route(call.peer.identity, route)
        if route.queue_kind is not QueueKind.MAILBOX:
            _, (before, draft) = await self._directory.read(
                lambda view: (view.find(Route, *route.key), decision(view))
            )
            if isinstance(draft, Draft) and isinstance(draft.value, Route) and is_new(before, draft.value):
                await self._queues.require([draft.value])
        return await self._write(decision, call, request.options)

    async def delete_route(self, request: wire.DeleteRouteRequest, call: Call) -> wire.WriteResponse:
        route = Route(request.target, request.name)
        decision = self._ownership.remove(call.peer.identity, route)
        return await self._write(decision, call, request.options)

    async def grant_access(self, request: wire.GrantAccessRequest, call: Call) -> wire.WriteResponse:
        acl = acl_from_wire(request.acl)
        decision = self._ownership.grant(call.peer.identity, acl)
        return await self._write(decision, call, request.options)

    async def revoke_access(self, request: wire.RevokeAccessRequest, call: Call) -> wire.WriteResponse:
        acl = acl_from_wire(request.acl)
        decision = self._ownership.remove(call.peer.identity, acl)
        return await self._write(decision, call, request.options)

    async def set_suspension(self, request: wire.SetSuspensionRequest, call: Call) -> wire.WriteResponse:
        suspension = value_from_wire(Suspension, request.suspension)
        decision = self._ownership.set_suspension(call.peer.identity, suspension, suspended=request.suspended)
        return await self.joint_writes.whole(
            self._suspend(suspension, decision, call, request.options), tenant=call.peer.identity.tenant
        )

    async def _suspend(
        self, suspension: Suspension, decision: Decision, call: Call, options: wire.WriteOptions
    ) -> wire.WriteResponse:
        written = await self._write(decision, call, options)
        # After the write, which Shield obeys; an error here is answered, and the same request again repairs it.
        await self._signer_sync.agree_on(suspension)
        return written

    async def apply(self, request: wire.ApplyRequest, call: Call) -> wire.ApplyResponse:
        require_text(request.reason, "reason")
        actor = call.peer.identity
        now = self._ownership.clock.unix_ns()
        try:
            done = await self.batches.apply(
                wanted_from_wire(request),
                actor=actor,
                reason=request.reason,
                dry_run=request.dry_run,
                questions=[facts_for(asked.source, asked.target, asked.name, now) for asked in request.check],
                tell_mistakes=request.tell_mistakes,
            )
        except Mistakes as mistakes:
            told = mistakes.found[:MAX_MISTAKES]
            return wire.ApplyResponse(
                mistake=[
                    wire.WriteMistake(write=number, reason=refused.reason, message=str(refused))
                    for number, refused in told
                ],
                more_mistakes=len(mistakes.found) - len(told),
            )
        written = done.written
        if written.changed:
            self._log.info("directory changed", version=written.version, actor=actor.spiffe_id)
        return wire.ApplyResponse(
            version=written.version,
            changed=written.changed,
            difference=[difference_to_wire(difference) for difference in done.differences],
            check=[
                await self._forecast.of(facts, reader=actor, version=written.version, provided=done.provided)
                for facts in done.facts
            ],
            enrolment=done.enrolments,
        )

    async def request_access(self, request: wire.RequestAccessRequest, call: Call) -> wire.WriteResponse:
        asked = value_from_wire(AccessRequest, request.access_request)
        options = wire.WriteOptions(reason=asked.reason)
        return await self._write(self._asking.ask(call.peer.identity, asked), call, options)

    async def answer_access(self, request: wire.AnswerAccessRequest, call: Call) -> wire.WriteResponse:
        wanted = wire.AclEntry(
            source=request.source,
            target=request.target,
            name=request.name,
            profile=request.profile,
            ttl_seconds=request.ttl_seconds,
        )
        acl = acl_from_wire(wanted)
        require_text(request.options.reason, "options.reason")
        decision = self._asking.answer(
            call.peer.identity, acl, grant=request.grant, words=request.options.reason
        )
        return await self._write(decision, call, wire.WriteOptions(reason=request.options.reason))

    async def set_ban(self, request: wire.SetBanRequest, call: Call) -> wire.WriteResponse:
        if request.lifted and not request.ban.until_unix_ns:
            request.ban.until_unix_ns = (
                1  # A ban that goes needs no end; its tombstone says what stood there.
            )
        ban = value_from_wire(Ban, request.ban)
        automatic = call.peer.identity.kind is not IdentityKind.OPERATOR
        if automatic and not request.lifted and self._spares(ban.source):
            # An operator who bans such a source means it; a counter does not know who it is.
            raise NotAllowed(f"{ban.source} is never banned without an operator.", reason="allowlisted")
        if automatic and ban.list is not BanList.WARM_BAN:
            raise NotAllowed("Only operators write this list.", reason="not-operator")
        decision = self._ownership.set_ban(ban, lifted=request.lifted)
        return await self._write(decision, call, request.options)

    async def _write(self, decision: Decision, call: Call, options: wire.WriteOptions) -> wire.WriteResponse:
        require_text(options.reason, "options.reason")
        written = await self._directory.write(
            expecting(decision, _expected(options)), actor=call.peer.identity.spiffe_id, reason=options.reason
        )
        if written.changed:
            self._log.info("directory changed", version=written.version, actor=call.peer.identity.spiffe_id)
        return wire.WriteResponse(version=written.version, changed=written.changed)


def _expected(options: wire.WriteOptions) -> int | None:
    version: int | None = options.expected_version if options.HasField("expected_version") else None
    return version
