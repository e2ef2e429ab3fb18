"""Every method of every service, called by every kind of identity, against a table written for this test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from services.gateway.openapi import OPERATIONS
from snavio.domain.identity import MESH_SERVICES, Identity, IdentityKind
from snavio.errors import NotAllowed
from snavio.rpc.authorisation import TABLE, authorise, mesh
from snavio.rpc.server import Call, Methods
from snavio.rpc.status import error_of
from snavio.v1 import (
    batch_pb2,
    command_pb2,
    edge_pb2,
    enrolment_pb2,
    explain_pb2,
    fast_pb2,
    introspection_pb2,
    mailbox_pb2,
    registry_pb2,
    relay_pb2,
    shield_pb2,
    signer_pb2,
    slow_pb2,
    snapshot_pb2,
    telemetry_pb2,
)
from tests.support.pki import Authority
from tests.support.servers import calling, serving

TD = "snavio.local"
FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        batch_pb2,
        command_pb2,
        edge_pb2,
        enrolment_pb2,
        explain_pb2,
        fast_pb2,
        introspection_pb2,
        mailbox_pb2,
        registry_pb2,
        relay_pb2,
        shield_pb2,
        signer_pb2,
        slow_pb2,
        snapshot_pb2,
        telemetry_pb2,
        health_pb2,
        reflection_pb2,
    )
)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
# Reflection has the same messages under a later name, for which grpcio-reflection has no file.
METHODS |= {name.replace("v1alpha", "v1"): method for name, method in METHODS.items() if "v1alpha" in name}

# Over HTTPS, where the gateway looks up the same table.
OVER_HTTP = {operation.name for operation in OPERATIONS} | {"GET /metrics"}

CALLERS = {
    **{f"mesh/{name}": Identity(TD, IdentityKind.MESH, name) for name in MESH_SERVICES},
    "operator": Identity(TD, IdentityKind.OPERATOR, "ada"),
    "principal": Identity(TD, IdentityKind.PRINCIPAL, "ada", "acme"),
    "service": Identity(TD, IdentityKind.SERVICE, "billing", "acme"),
    "job": Identity(TD, IdentityKind.JOB, "spark"),
    # Names that mean something elsewhere must mean nothing here.
    "service named shield": Identity(TD, IdentityKind.SERVICE, "shield", "acme"),
    "principal named fast": Identity(TD, IdentityKind.PRINCIPAL, "fast", "mesh"),
    "operator named registry": Identity(TD, IdentityKind.OPERATOR, "registry"),
    "scraper": Identity(TD, IdentityKind.JOB, "scraper"),
    "another job": Identity(TD, IdentityKind.JOB, "slow"),
}

# Caller classes by method, in words; "mesh" is every mesh service. Kept apart from the table on purpose:
# a right that is given by mistake has to be written down by mistake twice.
EXPECTED = """
    snavio.v1.Shield              Greet                 service
    snavio.v1.Shield              Submit                service
    snavio.v1.Shield              SubmitBatch           service
    snavio.v1.Shield              SubmitStream          service
    snavio.v1.Fast                Dispatch              mesh/shield
    snavio.v1.Slow                Arbitrate             mesh/fast
    snavio.v1.Slow                Grants                mesh/fast
    snavio.v1.Slow                ReturnPermits         mesh/fast
    snavio.v1.Slow                ReportBans            mesh/fast
    snavio.v1.Slow                Forecast              mesh/registry
    snavio.v1.Slow                ExamineQueue          mesh/registry
    snavio.v1.Mailbox             SendStream            mesh/fast mesh/slow
    snavio.v1.Mailbox             Send                  service mesh
    snavio.v1.Mailbox             SendAll               service
    snavio.v1.Mailbox             Receive               service
    snavio.v1.Mailbox             Ack                   service
    snavio.v1.Mailbox             Nack                  service
    snavio.v1.Mailbox             Extend                service
    snavio.v1.Mailbox             Stats                 service principal operator mesh/registry
    snavio.v1.Mailbox             RecvStream            service
    snavio.v1.Mailbox             Peek                  service principal operator
    snavio.v1.Mailbox             List                  service principal operator
    snavio.v1.Mailbox             Change                principal operator
    snavio.v1.Mailbox             Probe                 mesh/slow
    snavio.v1.Signer              IssueCertificate      operator mesh service principal
    snavio.v1.Signer              RevokeCertificate     operator
    snavio.v1.Signer              Denylist              mesh
    snavio.v1.Signer              CreateKeyset          mesh/registry operator
    snavio.v1.Signer              RotateKeyset          operator
    snavio.v1.Signer              RevokeKey             operator
    snavio.v1.Signer              KeysetChanges         mesh/shield
    snavio.v1.Signer              TenantConfig          service
    snavio.v1.Signer              SetMinimumKey         operator
    snavio.v1.Signer              DescribeKeysets       operator principal mesh/registry mesh/gateway mesh/relay
    snavio.v1.Signer              CheckCapability       mesh/gateway
    snavio.v1.Signer              ReportKeyUsage        mesh/shield
    snavio.v1.Signer              ProvisionScope        mesh/registry mesh/relay operator
    snavio.v1.Signer              RotateScope           operator
    snavio.v1.Signer              Sign                  mesh/relay mesh/registry
    snavio.v1.Signer              SignMany              mesh/relay
    snavio.v1.Signer              GetPublicKeys         anybody
    snavio.v1.Signer              Events                operator
    snavio.v1.Signer              CreateEnrolment       mesh/registry
    snavio.v1.Signer              CreateJoining         mesh/signer
    snavio.v1.Signer              SetServicePrincipals  mesh/registry
    snavio.v1.Signer              AssumeService         principal service
    snavio.v1.Signer              RevokeIdentity        operator mesh/registry
    snavio.v1.Signer              RestoreIdentity       operator
    snavio.v1.Signer              ListCertificates      operator
    snavio.v1.Signer              SnapshotKey           mesh/shield
    snavio.v1.Signer             IssueCapability operator principal service mesh/fast mesh/slow mesh/relay mesh/registry
    snavio.v1.Signer              RevokeCapability      operator principal
    snavio.v1.Signer              ListCapabilities      operator principal
    snavio.v1.Signer              RotateCapabilityRoot  operator principal
    snavio.v1.Signer              MailboxRoots          mesh/mailbox
    snavio.v1.Signer              CapabilityRevocations  mesh/mailbox
    snavio.v1.Enrolment           Enroll                anybody
    snavio.v1.Registry            CreateTenant          operator
    snavio.v1.Registry            CreateEnrolment       operator
    snavio.v1.Registry            RegisterService       operator principal
    snavio.v1.Registry            ClaimTarget           operator principal
    snavio.v1.Registry            PutRoute              operator principal
    snavio.v1.Registry            DeleteRoute           operator principal
    snavio.v1.Registry            GrantAccess           operator principal
    snavio.v1.Registry            RevokeAccess          operator principal
    snavio.v1.Registry            SetSuspension         operator
    snavio.v1.Registry            Changes               mesh
    snavio.v1.Registry            Resolve               mesh/slow mesh/fast mesh/shield
    snavio.v1.Registry            Followers             operator
    snavio.v1.Registry            Dump                  mesh job
    snavio.v1.Registry            Apply                 operator principal
    snavio.v1.Registry            Check                 operator principal
    snavio.v1.Registry            History               operator principal
    snavio.v1.Registry            AccessAt              operator principal
    snavio.v1.Registry            AclDiff               operator principal
    snavio.v1.Registry            ListAccess            operator principal
    snavio.v1.Registry            RequestAccess         operator principal
    snavio.v1.Registry            AnswerAccess          operator principal
    snavio.v1.Registry            ListAccessRequests    operator principal
    snavio.v1.Registry            SetBan                operator mesh/slow
    snavio.v1.Registry            ProposeBans           job mesh/slow
    snavio.v1.Registry            ConcludeAudit         job
    snavio.v1.Registry            ListBans              operator principal job
    snavio.v1.Registry            ExplainBan            operator principal job
    snavio.v1.Registry            LiftBan               operator
    snavio.v1.Registry            ListEntries           operator principal
    snavio.v1.Registry            DeleteEntry           operator principal
    snavio.v1.Registry            ReadLog               operator principal
    snavio.v1.Registry            ListRouteHealth       operator principal mesh/relay
    snavio.v1.Registry            ListDeadLetters       operator principal
    snavio.v1.Registry            RedriveDeadLetters    operator principal
    snavio.v1.Relay               Append                mesh
    snavio.v1.Relay               ReadStream            mesh/gateway
    snavio.v1.Relay               StreamWindow          mesh/gateway
    snavio.v1.Relay               TenantState           mesh/gateway
    GET                           /v1/tenants/{tenant}/events  principal service operator
    GET                           /v1/tenants/{tenant}/state   principal operator
    GET                           /v1/tenants/{tenant}/config  principal operator
    GET                           /metrics              operator scraper
    GET                           /v1/tenants/{tenant}/alerts  principal operator
    snavio.v1.Relay               ReEmit                operator
    snavio.v1.Relay               ListAlerts            operator principal mesh/gateway
    snavio.v1.Relay               AckAlerts             operator principal
    snavio.v1.Relay               TestAlertChannel      operator principal
    snavio.v1.Relay               MuteAlerts            operator principal
    snavio.v1.Relay               RotateWebhookSecret   operator principal
    snavio.v1.Introspection       Status                operator mesh
    snavio.v1.Explain             Explain               operator principal service
    grpc.health.v1.Health         Check                 anybody
    grpc.health.v1.Health         List                  anybody
    grpc.health.v1.Health         Watch                 anybody
    grpc.reflection.v1alpha.ServerReflection  ServerReflectionInfo  anybody
    grpc.reflection.v1.ServerReflection  ServerReflectionInfo  anybody
"""


def expected_callers() -> dict[str, frozenset[str]]:
    rights = {}
    for line in EXPECTED.strip().splitlines():
        service, method, *callers = line.split()
        name = f"{service} {method}" if method.startswith("/") else f"/{service}/{method}"
        rights[name] = frozenset(callers)
    return rights


RIGHTS = expected_callers()


def expected(method: str, caller: str) -> bool:
    words = {caller, caller.split(" ", maxsplit=1)[0], caller.split("/", maxsplit=1)[0], "anybody"}
    return not words.isdisjoint(RIGHTS[method])


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert set(TABLE) == {*METHODS, *OVER_HTTP}


def test_this_test_knows_every_method() -> None:
    assert set(RIGHTS) == {*METHODS, *OVER_HTTP}


def test_every_proto_file_is_walked() -> None:
    written = {path.name for path in (Path(__file__).parents[2] / "proto/snavio/v1").glob("*.proto")}
    assert written <= {Path(file.name).name for file in FILES}
    assert written


def test_every_row_admits_somebody() -> None:
    for method in (*METHODS, *OVER_HTTP):
        assert any(authorise(method, identity) for identity in CALLERS.values()), method


@pytest.mark.parametrize("caller", sorted(CALLERS))
def test_caller_may_call_what_is_written_here_and_nothing_else(caller: str) -> None:
    differences = [
        method
        for method in (*METHODS, *OVER_HTTP)
        if authorise(method, CALLERS[caller]) is not expected(method, caller)
    ]
    assert differences == []


@pytest.mark.parametrize(
    "method",
    [
        "",
        "/",
        "/snavio.v1.Shield/NoSuchMethod",
        "/snavio.v1.Shield/submit",
        "snavio.v1.Shield/Submit",
        "/snavio.v1.Shield/Submit/",
        "//snavio.v1.Shield/Submit",
        "/grpc.health.v1.Health/",
    ],
)
def test_method_without_a_row_is_for_nobody(method: str) -> None:
    assert not any(authorise(method, identity) for identity in CALLERS.values())


def test_rule_for_no_mesh_service_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="ANY_MESH"):
        mesh()


def test_method_without_a_row_cannot_be_served() -> None:
    async def anything(request: bytes, _call: Call) -> bytes:
        return request

    methods = Methods()
    with pytest.raises(ValueError, match="no row"):
        methods.unary_raw("/snavio.v1.Shield/NoSuchMethod", anything)
    methods.unary_raw("/snavio.v1.Shield/Submit", anything)
    with pytest.raises(ValueError, match="already"):
        methods.unary_raw("/snavio.v1.Shield/Submit", anything)


async def end_of(stream: grpc.aio.StreamStreamCall) -> None:
    """Read a stream to its end, raising what the server raised."""
    try:
        async with asyncio.timeout(20.0):
            while await stream.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from None


async def test_server_holds_every_caller_to_the_table_on_every_method(tmp_path: Path) -> None:
    """The same walk over the wire: unary calls and streams, refused before any handler runs."""
    reached: set[str] = set()

    def unary(method: str) -> None:
        async def handler(request: bytes, _call: Call) -> bytes:
            reached.add(method)
            return request

        methods.unary_raw(method, handler)

    def stream(method: str) -> None:
        async def handler(_call: Call) -> None:
            reached.add(method)

        methods.stream_raw(method, handler)

    methods = Methods()
    ours = {name: method for name, method in METHODS.items() if name.startswith("/snavio.")}
    for name, method in ours.items():
        (stream if method.client_streaming else unary)(name)
    authority = Authority(tmp_path)
    async with serving(authority, methods=methods) as served:
        for caller, identity in CALLERS.items():
            async with calling(served, authority.leaf(identity)) as channel:
                for name, method in ours.items():
                    reached.clear()
                    refused = None
                    try:
                        if method.client_streaming:
                            await end_of(channel.stream(name))
                        else:
                            await channel.call_raw(name, b"", timeout_s=20.0)
                    except NotAllowed as error:
                        refused = error.reason
                    allowed = expected(name, caller)
                    assert (refused is None) is allowed, (caller, name)
                    assert reached == ({name} if allowed else set()), (caller, name)
                    if not allowed:
                        assert refused == "not-allowed"
