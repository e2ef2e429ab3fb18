"""As much of Signer as a mailbox under test needs: roots, revocations, and capabilities."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from snavio.clock import Clock
from snavio.domain.capability import Capability, Identifier, derive_root, mint
from snavio.domain.caveat import Caveat, Operation
from snavio.errors import Unavailable
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Leaf
from snavio.rpc.server import Call, Methods
from snavio.v1 import signer_pb2 as wire

MONTH_S = 30 * 86_400
EVERYTHING = frozenset(Operation)


@dataclass
class CapabilityMint:
    """Makes whatever is asked of it, and tells the mailbox what a test says."""

    clock: Clock
    secrets: dict[str, bytes] = field(default_factory=lambda: {"00112233445566ff": b"r" * 32}, repr=False)
    version: int = 1
    away: bool = False
    asked: int = 0
    issued: int = 0
    revoked: list[wire.RevokedCapability] = field(default_factory=list)
    holders: list[wire.RevokedHolder] = field(default_factory=list)
    lines: list[wire.RootLine] = field(default_factory=list)

    def register(self, methods: Methods) -> None:
        at = "/snavio.v1.Signer/"
        methods.unary(at + "MailboxRoots", self._roots, wire.MailboxRootsRequest)
        methods.unary(at + "CapabilityRevocations", self._revocations, wire.CapabilityRevocationsRequest)
        methods.unary(at + "IssueCapability", self._issue, wire.IssueCapabilityRequest)

    def make(
        self,
        holder: str,
        *more: Caveat,
        realm: str = "*",
        operations: frozenset[Operation] = EVERYTHING,
        ttl_s: float = MONTH_S,
        root: str = "",
        version: int = 1,
    ) -> Capability:
        root = root or list(self.secrets)[-1]
        now_ms = self.clock.unix_ns() // 1_000_000
        return mint(
            derive_root(self.secrets[root], realm=realm, version=version),
            Identifier(root, version, secrets.token_hex(16), now_ms, realm),
            Caveat(holder=holder),
            Caveat(operations=operations),
            Caveat(expires_ms=now_ms + round(ttl_s * 1000)),
            *more,
        )

    def capability_provider(
        self, files: CertificateFiles, capability: Capability | None = None
    ) -> CapabilityProvider:
        """Presents `capability`, or one with which the owner of the certificate may do everything."""
        holder = Leaf.in_folder(files.certificate.parent).spiffe_id
        text = (capability or self.make(holder)).text()
        return CapabilityProvider(CapabilityScope("*", ()), None, clock=self.clock, fixed=text)

    def revoke(self, capability: Capability) -> None:
        forget_ns = capability.bounds().expires_ms * 1_000_000
        self.revoked.append(wire.RevokedCapability(id=capability.identifier.cap_id, forget_unix_ns=forget_ns))
        self.version += 1

    def revoke_holder(self, holder: str) -> None:
        now = self.clock.unix_ns()
        self.holders.append(
            wire.RevokedHolder(
                holder=holder,
                issued_until_unix_ms=now // 1_000_000,
                forget_unix_ns=now + MONTH_S * 1_000_000_000,
            )
        )
        self.version += 1

    def put_line(self, realm: str, **values: Any) -> None:
        self.lines.append(wire.RootLine(realm=realm, **values))
        self.version += 1

    async def _roots(self, _request: wire.MailboxRootsRequest, _call: Call) -> wire.MailboxRootsResponse:
        self._answer()
        return wire.MailboxRootsResponse(
            root=[wire.MailboxRoot(root=root, secret=secret) for root, secret in self.secrets.items()],
            max_ttl_seconds=MONTH_S,
        )

    async def _revocations(
        self, request: wire.CapabilityRevocationsRequest, _call: Call
    ) -> wire.CapabilityRevocationsResponse:
        self._answer()
        self.asked += 1
        news = request.since_version != self.version
        return wire.CapabilityRevocationsResponse(
            version=self.version,
            epoch=1,
            capability=self.revoked if news else (),
            holder=self.holders if news else (),
            line=self.lines if news else (),
            root=self.secrets,
        )

    async def _issue(self, request: wire.IssueCapabilityRequest, call: Call) -> wire.IssueCapabilityResponse:
        self._answer()
        self.issued += 1
        ttl_s = request.ttl_seconds or 3600
        made = self.make(
            call.peer.identity.spiffe_id,
            realm=request.realm,
            operations=frozenset(map(Operation, request.operation)),
            ttl_s=ttl_s,
        )
        return wire.IssueCapabilityResponse(
            capability=made.text(), id=made.identifier.cap_id, ttl_seconds=ttl_s
        )

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("scripted")
