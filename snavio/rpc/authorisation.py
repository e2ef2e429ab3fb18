"""The authorisation table: one row per method, nothing allowed without a row.

A row says which kinds of caller may call at all. That a tenant owns the topic, the target or the certificate it names
is for the servicer to check; never let a row replace that check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from snavio.domain.identity import Identity, IdentityKind


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Callers of one kind, all of them or only those named. No kind means anybody who is authenticated."""

    kind: IdentityKind | None = None
    names: frozenset[str] = frozenset()

    def admits(self, identity: Identity) -> bool:
        """True if `identity` is one of these callers."""
        if self.kind is None:
            return True
        return identity.kind is self.kind and (not self.names or identity.name in self.names)


def mesh(*names: str) -> AccessRule:
    """These services of the mesh."""
    # Without names the rule would admit every mesh service, which is never intended.
    if not names:
        raise ValueError("name the mesh services, or use ANY_MESH")
    return AccessRule(IdentityKind.MESH, frozenset(names))


ANYBODY: Final = AccessRule()
ANY_MESH: Final = AccessRule(IdentityKind.MESH)
OPERATOR: Final = AccessRule(IdentityKind.OPERATOR)
PRINCIPAL: Final = AccessRule(IdentityKind.PRINCIPAL)
SERVICE: Final = AccessRule(IdentityKind.SERVICE)
JOB: Final = AccessRule(IdentityKind.JOB, frozenset({"spark"}))
"""The auditor. Another job has no right that this one has."""
SCRAPER: Final = AccessRule(IdentityKind.JOB, frozenset({"scraper"}))
"""A collector of metrics, such as Prometheus."""

TABLE: Final[Mapping[str, tuple[AccessRule, ...]]] = MappingProxyType(
    {
        # Producers.
        "/snavio.v1.Shield/Greet": (SERVICE,),
        "/snavio.v1.Shield/Submit": (SERVICE,),
        "/snavio.v1.Shield/SubmitBatch": (SERVICE,),
        "/snavio.v1.Shield/SubmitStream": (SERVICE,),
        # The path of a command. Each hop accepts only the hop before it, so Shield cannot be bypassed.
        "/snavio.v1.Fast/Dispatch": (mesh("shield"),),
        "/snavio.v1.Slow/Arbitrate": (mesh("fast"),),
        "/snavio.v1.Slow/Grants": (mesh("fast"),),
        "/snavio.v1.Slow/ReturnPermits": (mesh("fast"),),
        "/snavio.v1.Slow/ReportBans": (mesh("fast"),),
        "/snavio.v1.Slow/Forecast": (mesh("registry"),),
        "/snavio.v1.Slow/ExamineQueue": (mesh("registry"),),
        "/snavio.v1.Mailbox/SendStream": (mesh("fast", "slow"),),
        # It tells of ids of every source: Registry decides who may ask.
        "/snavio.v1.Mailbox/Probe": (mesh("slow"),),
        # Tenants send to their own topics; the servicer checks that none of them is a route's topic.
        "/snavio.v1.Mailbox/Send": (SERVICE, ANY_MESH),
        "/snavio.v1.Mailbox/SendAll": (SERVICE,),
        # Consumers; the servicer checks that the caller's tenant owns the topic.
        "/snavio.v1.Mailbox/Receive": (SERVICE,),
        "/snavio.v1.Mailbox/Ack": (SERVICE,),
        "/snavio.v1.Mailbox/Nack": (SERVICE,),
        "/snavio.v1.Mailbox/Extend": (SERVICE,),
        "/snavio.v1.Mailbox/RecvStream": (SERVICE,),
        # A tenant's own topics or, for operators, all; the servicer checks.
        "/snavio.v1.Mailbox/Stats": (SERVICE, PRINCIPAL, OPERATOR, mesh("registry")),
        "/snavio.v1.Mailbox/Peek": (SERVICE, PRINCIPAL, OPERATOR),
        "/snavio.v1.Mailbox/List": (SERVICE, PRINCIPAL, OPERATOR),
        "/snavio.v1.Mailbox/Change": (PRINCIPAL, OPERATOR),
        # Mesh and tenant services and principals renew their own certificate and no other; the servicer checks.
        "/snavio.v1.Signer/IssueCertificate": (OPERATOR, ANY_MESH, SERVICE, PRINCIPAL),
        "/snavio.v1.Signer/RevokeCertificate": (OPERATOR,),
        "/snavio.v1.Signer/Denylist": (ANY_MESH,),
        # Not for operators: who can make a service's certificate is that service, and has every right of it.
        "/snavio.v1.Signer/CreateJoining": (mesh("signer"),),
        "/snavio.v1.Signer/CreateKeyset": (mesh("registry"), OPERATOR),
        "/snavio.v1.Signer/RotateKeyset": (OPERATOR,),
        "/snavio.v1.Signer/RevokeKey": (OPERATOR,),
        # Those that answer with secrets.
        "/snavio.v1.Signer/SnapshotKey": (mesh("shield"),),
        "/snavio.v1.Signer/KeysetChanges": (mesh("shield"),),
        "/snavio.v1.Signer/TenantConfig": (SERVICE,),
        "/snavio.v1.Signer/SetMinimumKey": (OPERATOR,),
        # Principals see their tenant's; the servicer checks.
        "/snavio.v1.Signer/DescribeKeysets": (OPERATOR, mesh("registry", "gateway", "relay"), PRINCIPAL),
        "/snavio.v1.Signer/ReportKeyUsage": (mesh("shield"),),
        "/snavio.v1.Signer/ProvisionScope": (mesh("registry", "relay"), OPERATOR),
        "/snavio.v1.Signer/RotateScope": (OPERATOR,),
        # Registry signs for the platform only; the servicer checks.
        "/snavio.v1.Signer/Sign": (mesh("relay", "registry"),),
        # Nobody else speaks for many tenants at once.
        "/snavio.v1.Signer/SignMany": (mesh("relay"),),
        # Tenants read the platform's and their own; the servicer checks.
        "/snavio.v1.Signer/GetPublicKeys": (ANYBODY,),
        "/snavio.v1.Signer/Events": (OPERATOR,),
        # Certificates. Registry acts for the directory; the servicer checks that a principal may act as a service, or
        # is that service.
        "/snavio.v1.Signer/CreateEnrolment": (mesh("registry"),),
        "/snavio.v1.Signer/SetServicePrincipals": (mesh("registry"),),
        "/snavio.v1.Signer/AssumeService": (PRINCIPAL, SERVICE),
        # Registry for principals that a tenant removed; the servicer checks.
        "/snavio.v1.Signer/RevokeIdentity": (OPERATOR, mesh("registry")),
        "/snavio.v1.Signer/RestoreIdentity": (OPERATOR,),
        "/snavio.v1.Signer/ListCertificates": (OPERATOR,),
        # Capabilities; the servicer checks which ones the caller may get, end or list.
        "/snavio.v1.Signer/IssueCapability": (
            OPERATOR,
            PRINCIPAL,
            SERVICE,
            mesh("fast", "slow", "relay", "registry"),
        ),
        "/snavio.v1.Signer/RevokeCapability": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Signer/ListCapabilities": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Signer/RotateCapabilityRoot": (OPERATOR, PRINCIPAL),
        # For a service without the root secret.
        "/snavio.v1.Signer/CheckCapability": (mesh("gateway"),),
        # The root secret suffices to make any capability.
        "/snavio.v1.Signer/MailboxRoots": (mesh("mailbox"),),
        "/snavio.v1.Signer/CapabilityRevocations": (mesh("mailbox"),),
        # Served apart from the mesh, to callers without a certificate; the token is the right.
        "/snavio.v1.Enrolment/Enroll": (ANYBODY,),
        # The directory; principals write what their tenant owns, the servicer checks.
        "/snavio.v1.Registry/CreateTenant": (OPERATOR,),
        "/snavio.v1.Registry/CreateEnrolment": (OPERATOR,),
        "/snavio.v1.Registry/SetSuspension": (OPERATOR,),
        "/snavio.v1.Registry/RegisterService": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/ClaimTarget": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/PutRoute": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/DeleteRoute": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/GrantAccess": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/RevokeAccess": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/Changes": (ANY_MESH,),
        # Shield and Fast ask for the owner of a target, to let it explain a command.
        "/snavio.v1.Registry/Resolve": (mesh("slow", "fast", "shield"),),
        "/snavio.v1.Registry/Followers": (OPERATOR,),
        "/snavio.v1.Registry/Dump": (ANY_MESH, JOB),
        "/snavio.v1.Registry/Apply": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/Check": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/History": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/AccessAt": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/AclDiff": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/ListAccess": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/RequestAccess": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/AnswerAccess": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/ListAccessRequests": (OPERATOR, PRINCIPAL),
        # Only services that see the traffic of all sources: a tenant must not ban a rival.
        "/snavio.v1.Registry/SetBan": (OPERATOR, mesh("slow")),
        # Jobs propose and never write: Registry's allowlist and cap protect sources from them.
        "/snavio.v1.Registry/ProposeBans": (JOB, mesh("slow")),
        "/snavio.v1.Registry/ConcludeAudit": (JOB,),
        # Tenants see their own sources'; the servicer checks.
        "/snavio.v1.Registry/ListBans": (OPERATOR, PRINCIPAL, JOB),
        "/snavio.v1.Registry/ExplainBan": (OPERATOR, PRINCIPAL, JOB),
        "/snavio.v1.Registry/LiftBan": (OPERATOR,),
        # Tenants list, delete and read the past of what is theirs; the servicer checks.
        "/snavio.v1.Registry/ListEntries": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/DeleteEntry": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/ReadLog": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/ListRouteHealth": (OPERATOR, PRINCIPAL, mesh("relay")),
        "/snavio.v1.Registry/ListDeadLetters": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Registry/RedriveDeadLetters": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Relay/Append": (ANY_MESH,),
        # Over HTTPS at the gateway, which also checks tenant and capability.
        "GET /v1/tenants/{tenant}/events": (PRINCIPAL, SERVICE, OPERATOR),
        "GET /v1/tenants/{tenant}/state": (PRINCIPAL, OPERATOR),
        "GET /v1/tenants/{tenant}/config": (PRINCIPAL, OPERATOR),
        # At the health port of every service, where it listens beyond loopback.
        "GET /metrics": (OPERATOR, SCRAPER),
        "GET /v1/tenants/{tenant}/alerts": (PRINCIPAL, OPERATOR),
        # The gateway decides which reader may read which tenant.
        "/snavio.v1.Relay/ReadStream": (mesh("gateway"),),
        "/snavio.v1.Relay/StreamWindow": (mesh("gateway"),),
        "/snavio.v1.Relay/TenantState": (mesh("gateway"),),
        "/snavio.v1.Relay/ReEmit": (OPERATOR,),
        # Tenants see and change their own; the servicer checks.
        "/snavio.v1.Relay/ListAlerts": (OPERATOR, PRINCIPAL, mesh("gateway")),
        "/snavio.v1.Relay/AckAlerts": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Relay/TestAlertChannel": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Relay/MuteAlerts": (OPERATOR, PRINCIPAL),
        "/snavio.v1.Relay/RotateWebhookSecret": (OPERATOR, PRINCIPAL),
        # Introspection is for operators and the mesh; health is for every caller.
        "/snavio.v1.Introspection/Status": (OPERATOR, ANY_MESH),
        # The servicer checks that the command is the caller's.
        "/snavio.v1.Explain/Explain": (OPERATOR, PRINCIPAL, SERVICE),
        "/grpc.health.v1.Health/Check": (ANYBODY,),
        "/grpc.health.v1.Health/List": (ANYBODY,),
        "/grpc.health.v1.Health/Watch": (ANYBODY,),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (ANYBODY,),
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": (ANYBODY,),
    }
)


def whose(method: str) -> str:
    """Those who may call a method, in words; `nobody` for one without a row."""
    kinds = {
        rule.kind: ("services of the mesh" if rule.kind is IdentityKind.MESH else f"{rule.kind.value}s")
        for rule in TABLE.get(method, ())
        if rule.kind is not None
    }
    return " and ".join(sorted(kinds.values())) or "nobody"


def refusal(method: str, identity: Identity) -> str:
    """The sentence for a caller that the table does not admit."""
    return f"{identity} may not call {method}, which is for {whose(method)}."


def authorise(method: str, identity: Identity) -> bool:
    """True if `identity` may call `method`, such as `/snavio.v1.Shield/Submit`."""
    return any(rule.admits(identity) for rule in TABLE.get(method, ()))
