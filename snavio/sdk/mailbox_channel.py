"""A channel to the mailbox that presents a capability with every call.

Never asks for a capability before the first call needs one, nor for more than is wanted.
"""

from __future__ import annotations

from pathlib import Path

from snavio.clock import SystemClock
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.capability_request import ask_signer
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles


def mailbox_channel(
    mailbox: str,
    wanted: CapabilityScope,
    *,
    certificates: str | Path,
    signer: str | None,
    capability: str | None,
    trust_domain: str,
) -> MeshChannel:
    """With `capability`, or else one that is asked for: of `signer`, or where the mailbox says that Signer is."""
    files = CertificateFiles.in_folder(certificates)
    capability_provider = CapabilityProvider(
        wanted,
        ask_signer(signer, files=files, trust_domain=trust_domain),
        clock=SystemClock(),
        fixed=capability,
    )
    return MeshChannel(
        mailbox,
        files=files,
        service="mailbox",
        trust_domain=trust_domain,
        capability_provider=capability_provider,
    )
