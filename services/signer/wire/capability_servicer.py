"""The wire face of capabilities.

Never answers with a secret but in MailboxRoots, which the authorisation table reserves for the mailbox, and with a
capability except to the caller that had it made.
"""

from __future__ import annotations

from services.signer.capabilities.checking import CapabilityCheck
from services.signer.capabilities.issuing import MAX_LISTED, MILLISECOND, CapabilityIssuer, CapabilityRequest
from snavio.domain.caveat import Operation, Quota
from snavio.domain.identity import parse_identity
from snavio.errors import BadRequest
from snavio.rpc.server import Call, Methods
from snavio.v1 import signer_pb2 as wire


class CapabilityServicer:
    """The methods of `snavio.v1.Signer` that are about capabilities."""

    def __init__(self, *, capabilities: CapabilityIssuer, check: CapabilityCheck, trust_domain: str) -> None:
        self._capabilities = capabilities
        self._check = check
        self._trust_domain = trust_domain

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        at = "/snavio.v1.Signer/"
        methods.unary(at + "IssueCapability", self.issue, wire.IssueCapabilityRequest)
        methods.unary(at + "RevokeCapability", self.revoke, wire.RevokeCapabilityRequest)
        methods.unary(at + "ListCapabilities", self.list, wire.ListCapabilitiesRequest)
        methods.unary(at + "RotateCapabilityRoot", self.rotate, wire.RotateCapabilityRootRequest)
        methods.unary(at + "CheckCapability", self.check, wire.CheckCapabilityRequest)
        methods.unary(at + "MailboxRoots", self.roots, wire.MailboxRootsRequest)
        methods.unary(at + "CapabilityRevocations", self.revocations, wire.CapabilityRevocationsRequest)

    async def issue(self, request: wire.IssueCapabilityRequest, call: Call) -> wire.IssueCapabilityResponse:
        quota = None
        if request.quota_messages or request.quota_interval_ms:
            quota = Quota(request.quota_messages, request.quota_interval_ms)
        made = await self._capabilities.issue(
            CapabilityRequest(
                request.realm, tuple(request.operation), request.holder, request.ttl_seconds, quota
            ),
            caller=call.peer.identity,
        )
        return wire.IssueCapabilityResponse(
            capability=made.text, id=made.cap_id, ttl_seconds=made.ttl_s, expires_unix_ns=made.expires_ns
        )

    async def revoke(
        self, request: wire.RevokeCapabilityRequest, call: Call
    ) -> wire.RevokeCapabilityResponse:
        caller, reason = call.peer.identity, request.reason
        what = request.WhichOneof("what")
        if (request.bar or request.restore) and what != "holder":
            raise BadRequest("bar and restore go with a holder.", reason="bad-field")
        if what == "id":
            version = await self._capabilities.revoke(request.id, reason=reason, caller=caller)
        elif what == "holder" and request.restore:
            await self._capabilities.restore_holder(request.holder, caller=caller)
            version = 0
        elif what == "holder":
            version = await self._capabilities.revoke_holder(
                request.holder, bar=request.bar, reason=reason, caller=caller
            )
        elif what == "root":
            version = await self._capabilities.revoke_root(
                request.root.realm, request.root.version, reason=reason, caller=caller
            )
        else:
            raise BadRequest("Say what to revoke: id, holder or root.", reason="bad-field")
        return wire.RevokeCapabilityResponse(version=version)

    async def list(self, request: wire.ListCapabilitiesRequest, call: Call) -> wire.ListCapabilitiesResponse:
        wanted = min(request.limit, MAX_LISTED) or MAX_LISTED
        page = await self._capabilities.listed(
            realm=request.realm,
            holder=request.holder,
            after=request.after_id,
            limit=wanted + 1,
            caller=call.peer.identity,
        )
        return wire.ListCapabilitiesResponse(
            capability=[
                wire.CapabilityRecord(
                    id=issued.cap_id,
                    realm=issued.realm,
                    operation=issued.operations.split(","),
                    holder=issued.holder,
                    issued_to=issued.issued_to,
                    root_version=issued.root_version,
                    issued_unix_ns=issued.issued_ns,
                    expires_unix_ns=issued.expires_ns,
                    revoked=revoked,
                )
                for issued, revoked in page[:wanted]
            ],
            more=len(page) > wanted,
        )

    async def rotate(
        self, request: wire.RotateCapabilityRootRequest, call: Call
    ) -> wire.RotateCapabilityRootResponse:
        version, until = await self._capabilities.rotate(request.realm, caller=call.peer.identity)
        return wire.RotateCapabilityRootResponse(version=version, overlap_until_unix_ns=until)

    async def check(self, request: wire.CheckCapabilityRequest, _call: Call) -> wire.CheckCapabilityResponse:
        try:
            operation = Operation(request.operation)
        except ValueError:
            raise BadRequest("operation: there is no such one.", reason="bad-field") from None
        bounds = await self._check.check(
            request.capability,
            holder=parse_identity(request.holder, trust_domain=self._trust_domain),
            operation=operation,
            topic=request.topic,
        )
        return wire.CheckCapabilityResponse(
            expires_unix_ns=bounds.expires_ms * MILLISECOND,
            narrowed_to_sources=bounds.sources is not None,
            source=sorted(bounds.sources or ()),
            narrowed_to_families=bounds.families is not None,
            family=sorted(bounds.families or ()),
        )

    async def roots(self, _request: wire.MailboxRootsRequest, _call: Call) -> wire.MailboxRootsResponse:
        return wire.MailboxRootsResponse(
            root=[
                wire.MailboxRoot(root=each.root, secret=each.secret, ends_unix_ns=each.ends_ns)
                for each in await self._capabilities.roots()
            ],
            max_ttl_seconds=self._capabilities.max_ttl_s,
        )

    async def revocations(
        self, request: wire.CapabilityRevocationsRequest, _call: Call
    ) -> wire.CapabilityRevocationsResponse:
        page = await self._capabilities.endings(request.since_version, epoch=request.epoch)
        return wire.CapabilityRevocationsResponse(
            version=page.version,
            epoch=page.epoch,
            capability=[
                wire.RevokedCapability(id=each.subject, forget_unix_ns=each.forget_ns)
                for each in page.capabilities
            ],
            holder=[
                wire.RevokedHolder(
                    holder=each.subject,
                    issued_until_unix_ms=each.issued_until_ms,
                    forget_unix_ns=each.forget_ns,
                )
                for each in page.holders
            ],
            line=[
                wire.RootLine(
                    realm=line.realm,
                    version=line.version,
                    minimum=line.minimum,
                    old_version=[old for old, _ in line.ends],
                    old_ends_unix_ns=[end for _, end in line.ends],
                )
                for line in page.lines
            ],
            root=[each.root for each in await self._capabilities.roots()],
            more=page.more,
        )
