"""The request for a capability to Signer: one call under the process's own certificate, over its own connection.

Never asks any server but Signer: an address that the mailbox named is used only if its certificate is Signer's.
"""

from __future__ import annotations

from typing import Final

from snavio.clock import Clock
from snavio.domain.caveat import Operation
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.errors import Unavailable
from snavio.rpc.capability import Ask, CapabilityProvider, CapabilityScope, HeldCapability
from snavio.rpc.channel import MeshChannel, call_once
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.signer_pb2 import IssueCapabilityRequest, IssueCapabilityResponse

METHOD: Final = "/snavio.v1.Signer/IssueCapability"
CALL_SECONDS: Final = 5.0


def sender(signer: str, *, files: CertificateFiles, trust_domain: str, clock: Clock) -> CapabilityProvider:
    """The scope that Fast and Slow present to the mailbox: send to every topic, and nothing else."""
    ask = ask_signer(signer, files=files, trust_domain=trust_domain)
    return CapabilityProvider(CapabilityScope("*", (Operation.SEND,)), ask, clock=clock)


def ask_signer(
    address: str | None, *, files: CertificateFiles, trust_domain: str = DEFAULT_TRUST_DOMAIN
) -> Ask:
    """Ask Signer at `address`, or else at the address that the mailbox named."""

    async def ask(wanted: CapabilityScope, told: str) -> HeldCapability:
        where = address or told
        if not where:
            raise Unavailable("Nobody has said where Signer is.", reason="no-signer")
        channel = MeshChannel(where, files=files, service="signer", trust_domain=trust_domain)
        request = IssueCapabilityRequest(
            realm=wanted.realm, operation=wanted.operations, ttl_seconds=wanted.ttl_s
        )
        answer = await call_once(channel, METHOD, request, IssueCapabilityResponse, timeout_s=CALL_SECONDS)
        return HeldCapability(answer.capability, answer.ttl_seconds)

    return ask
