"""`snavio whoami`: who this command line is to the mesh, until when, and what that identity may do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import typer

from snavio.cli.caller import Caller
from snavio.cli.exits import ExitCode
from snavio.cli.output import ago
from snavio.cli.render import Record, time_text

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.config import MeshSettings
    from snavio.domain.identity import Identity

# What methods are for, in words. Methods that no words name are told by their own names: a right that is new must not
# be kept from whoever has it.
_WORDS = """
send commands | Shield/Greet Shield/Submit Shield/SubmitBatch Shield/SubmitStream Signer/TenantConfig
receive and acknowledge commands of {tenant}'s targets | Mailbox/Receive Mailbox/Ack Mailbox/Nack Mailbox/Extend Mailbox/RecvStream
send to {tenant}'s own topics | Mailbox/Send
see {whose} topics and what waits in them | Mailbox/Stats Mailbox/Peek Mailbox/List
cancel, resume, requeue and purge messages | Mailbox/Change
explain {whose} commands | Explain/Explain
register {whose} services, targets, routes and rights | Registry/Apply Registry/RegisterService Registry/ClaimTarget Registry/PutRoute Registry/DeleteRoute Registry/GrantAccess Registry/RevokeAccess
see {whose} rights, now and in the past, and try a command | Registry/Check Registry/History Registry/AccessAt Registry/AclDiff Registry/ListAccess
list what is {whose} in the directory, delete from it, and read its log | Registry/ListEntries Registry/DeleteEntry Registry/ReadLog
follow {whose} signed events | GET:/v1/tenants/{tenant}/events
see {whose} state and configuration of the stream | GET:/v1/tenants/{tenant}/state GET:/v1/tenants/{tenant}/config
ask for rights, and answer who asks | Registry/RequestAccess Registry/AnswerAccess Registry/ListAccessRequests
see bans of {whose} sources | Registry/ListBans Registry/ExplainBan
act as the services whose registration names you | Signer/AssumeService
renew your own certificate | Signer/IssueCertificate
issue and revoke capabilities for the mailbox | Signer/IssueCapability Signer/RevokeCapability Signer/ListCapabilities Signer/RotateCapabilityRoot
create and invite tenants | Registry/CreateTenant Registry/CreateEnrolment
suspend sources, ban them and let them back | Registry/SetSuspension Registry/SetBan Registry/LiftBan
see which processes follow the directory | Registry/Followers
see the keys that {whose} services sign with, and their last poll | Signer/DescribeKeysets
rotate and revoke keys | Signer/CreateKeyset Signer/RotateKeyset Signer/RevokeKey Signer/SetMinimumKey Signer/ProvisionScope Signer/RotateScope Signer/Events
see, revoke and restore certificates | Signer/RevokeCertificate Signer/RevokeIdentity Signer/RestoreIdentity Signer/ListCertificates
see what every service does | Introspection/Status
send a tenant's events to its queue again | Relay/ReEmit
propose bans from the archive | Registry/ProposeBans Registry/ConcludeAudit Registry/Dump
"""  # noqa: E501  a table
# What anybody may do who is authenticated.
_OF_ALL = ("grpc.", "snavio.v1.Signer/GetPublicKeys", "snavio.v1.Enrolment/")


def whoami(*, caller: Caller) -> None:
    """Show who you are to the mesh, of which tenant, until when, and what you may do.

    Exit code 0 when the mesh accepts the certificate, 1 when it refuses it, 3 when it does not answer.

    \b
    Examples:
      snavio whoami
      snavio whoami --as acme/billing
      snavio whoami --json | jq -r .identity
    """
    from snavio.cli.actor import read_actor
    from snavio.cli.caller import certificates_of
    from snavio.clock import SystemClock

    installation = caller.attach()
    folder = certificates_of(caller.by, installation)
    who = read_actor(folder, trust_domain=installation.mesh.trust_domain)
    now = SystemClock().unix_ns()
    code, standing = _standing(who, installation.mesh, now)
    left_s = (who.not_after_unix_ns - now) / 1e9
    until = time_text(who.not_after_unix_ns)
    document: dict[str, Any] = {
        "identity": who.identity.spiffe_id,
        "kind": who.identity.kind.value,
        "name": who.identity.name,
        "tenant": who.identity.tenant or None,
        "not_after": until,
        "standing": standing,
        "accepted": code is ExitCode.OK,
        "context": installation.context.name if installation.context is not None else None,
        "folder": str(folder),
        "rights": rights(who.identity),
    }
    caller.show(
        document,
        Record(
            (
                ("you are", who.label),
                ("identity", who.identity.spiffe_id),
                ("until", f"{until}, in {ago(left_s)}" if left_s > 0 else f"{until}, {ago(-left_s)} ago"),
                ("mesh", standing),
                ("context", document["context"] or f"none: the state folder {installation.mesh.state_dir}"),
                ("folder", folder),
            )
        ),
        "You may:",
        *(f"  {words}" for words in document["rights"]),
    )
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def rights(identity: Identity) -> list[str]:
    """The rights of an identity by the authorisation table, in words."""
    from snavio.rpc.authorisation import TABLE, authorise

    left = [
        method.removeprefix("/").removeprefix("snavio.v1.").replace(" ", ":")
        for method in TABLE
        if authorise(method, identity) and not method.removeprefix("/").startswith(_OF_ALL)
    ]
    whose = f"{identity.tenant}'s" if identity.tenant else "every tenant's"
    found = []
    for row in _WORDS.strip().splitlines():
        words, _, methods = row.partition(" | ")
        allowed = [method for method in methods.split() if method in left]
        if allowed:
            found.append(words.format(tenant=identity.tenant, whose=whose))
            left = [method for method in left if method not in allowed]
    return found + [method.replace(":", " ") for method in left]


def _standing(who: Actor, mesh: MeshSettings, now_unix_ns: int) -> tuple[ExitCode, str]:
    """The exit code for, and a sentence about, the mesh's opinion of this certificate."""
    from snavio.cli.actor import require_serving
    from snavio.errors import Unauthenticated, Unavailable

    try:
        who.require_living(now_unix_ns)
        # Signer itself decides which certificates are good; every tenant can reach it.
        asyncio.run(require_serving("signer", mesh, who))
    except Unauthenticated as error:
        return ExitCode.REFUSED, str(error)
    except Unavailable as error:
        return ExitCode.UNREACHABLE, str(error)
    return ExitCode.OK, f"accepts you, at {mesh.signer}"
