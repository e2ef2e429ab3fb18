"""The wire's face of Registry: protobuf in, decisions, protobuf out.

Never writes a service into the directory before it has a key set: a service without one could send nothing
and would not say why.
"""

from __future__ import annotations

import structlog

from services.registry.changes import Reader
from services.registry.ownership import Decision, Ownership
from services.registry.translation import acl_from_wire, route_from_wire, route_to_wire
from services.registry.trust import Trust
from snavio.domain.directory import Route, Service, Suspension, Target, Tenant, require_source
from snavio.domain.directory.rules import require_name
from snavio.ports.directory import Directory
from snavio.transport.server import Call, Methods
from snavio.v1 import registry_pb2 as wire


class RegistryServicer:
    """Every method of `snavio.v1.Registry`; `trust` is what it asks of Signer."""

    def __init__(self, *, directory: Directory, ownership: Ownership, trust: Trust) -> None:
        self._directory = directory
        self._ownership = ownership
        self._trust = trust
        self._reader = Reader(directory)
        self._log = structlog.get_logger()

    def methods(self) -> Methods:
        """Handlers for the server."""
        methods = Methods()
        at = "/snavio.v1.Registry/"
        methods.unary(at + "CreateTenant", self.create_tenant, wire.CreateTenantRequest)
        methods.unary(at + "RegisterService", self.register_service, wire.RegisterServiceRequest)
        methods.unary(at + "ClaimTarget", self.claim_target, wire.ClaimTargetRequest)
        methods.unary(at + "PutRoute", self.put_route, wire.PutRouteRequest)
        methods.unary(at + "DeleteRoute", self.delete_route, wire.DeleteRouteRequest)
        methods.unary(at + "GrantAccess", self.grant_access, wire.GrantAccessRequest)
        methods.unary(at + "RevokeAccess", self.revoke_access, wire.RevokeAccessRequest)
        methods.unary(at + "SetSuspension", self.set_suspension, wire.SetSuspensionRequest)
        methods.unary(at + "Changes", self.changes, wire.ChangesRequest)
        methods.unary(at + "Resolve", self.resolve, wire.ResolveRequest)
        return methods

    async def create_tenant(self, request: wire.CreateTenantRequest, call: Call) -> wire.CreateTenantResponse:
        tenant = Tenant(request.tenant.tenant)
        if request.principal:
            require_name(request.principal, "principal")
        written = await self._write(self._ownership.create_tenant(call.peer.identity, tenant), call)
        # After the write: a token must not outlive a tenant that was never made. And only by the write that made
        # it, or whoever repeats a harmless request would collect tokens.
        enrolment = await self._trust.enrolment(tenant.tenant, request.principal) if written.changed else None
        return wire.CreateTenantResponse(
            version=written.version,
            changed=written.changed,
            enrolment_token=enrolment.token if enrolment else "",
            enrolment_expires_unix_ns=enrolment.expires_unix_ns if enrolment else 0,
        )

    async def register_service(self, request: wire.RegisterServiceRequest, call: Call) -> wire.WriteResponse:
        service = Service(request.service.tenant, request.service.service, tuple(request.service.principal))
        decision = self._ownership.register_service(call.peer.identity, service)
        # Asked once before Signer is: a refused registration must not leave a key set behind.
        _, (_, suspended) = await self._directory.read(
            lambda view: (decision(view), view.find(Suspension, service.source) is not None)
        )
        await self._trust.keyset(service.source)
        # Before the directory: a principal that is named no more is then without its right even if we fail here,
        # and the same registration again sets everything straight.
        await self._trust.principals(service, suspended=suspended)
        return await self._write(decision, call)

    async def claim_target(self, request: wire.ClaimTargetRequest, call: Call) -> wire.WriteResponse:
        target = Target(request.target.target, request.target.tenant)
        return await self._write(self._ownership.claim_target(call.peer.identity, target), call)

    async def put_route(self, request: wire.PutRouteRequest, call: Call) -> wire.WriteResponse:
        route = route_from_wire(request.route)
        return await self._write(self._ownership.put_route(call.peer.identity, route), call)

    async def delete_route(self, request: wire.DeleteRouteRequest, call: Call) -> wire.WriteResponse:
        route = Route(request.target, request.name)
        return await self._write(self._ownership.delete_route(call.peer.identity, route), call)

    async def grant_access(self, request: wire.GrantAccessRequest, call: Call) -> wire.WriteResponse:
        acl = acl_from_wire(request.acl)
        return await self._write(self._ownership.grant(call.peer.identity, acl), call)

    async def revoke_access(self, request: wire.RevokeAccessRequest, call: Call) -> wire.WriteResponse:
        acl = acl_from_wire(request.acl)
        return await self._write(self._ownership.revoke(call.peer.identity, acl), call)

    async def set_suspension(self, request: wire.SetSuspensionRequest, call: Call) -> wire.WriteResponse:
        suspension = Suspension(request.suspension.source, request.suspension.reason)
        decision = self._ownership.set_suspension(call.peer.identity, suspension, suspended=request.suspended)
        written = await self._write(decision, call)
        # After the write, which Shield obeys; an error here is answered, and the same request again repairs it.
        named = require_source(suspension.source, "suspension.source")
        _, service = await self._directory.read(lambda view: view.find(Service, *named.key))
        if service is not None:
            await self._trust.principals(service, suspended=request.suspended)
        return written

    async def changes(self, request: wire.ChangesRequest, call: Call) -> wire.ChangesResponse:
        return await self._reader.changes(
            since=request.since_version,
            epoch=request.directory_epoch,
            limit=request.limit,
            reader=call.peer.identity,
        )

    async def resolve(self, request: wire.ResolveRequest, _call: Call) -> wire.ResolveResponse:
        version, answers = await self._reader.resolve(
            [(key.source, key.target, key.name) for key in request.key]
        )
        return wire.ResolveResponse(
            version=version,
            resolution=[
                wire.Resolution(
                    route=route_to_wire(answer.route) if answer.route is not None else None,
                    allowed=answer.allowed,
                    suspended=answer.suspended,
                )
                for answer in answers
            ],
        )

    async def _write(self, decision: Decision, call: Call) -> wire.WriteResponse:
        written = await self._directory.write(decision, actor=call.peer.identity.spiffe_id)
        if written.changed:
            self._log.info("directory changed", version=written.version, actor=call.peer.identity.spiffe_id)
        return wire.WriteResponse(version=written.version, changed=written.changed)
