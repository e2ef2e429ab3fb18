"""A mailbox between a client and the real one: it changes payloads on their way, and keeps what is given back.

Never changes what it was not asked to: every other byte passes as it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.rpc.capability import CapabilityScope
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.methods import UnaryHandler
from snavio.rpc.server import Call, MeshServer, Methods
from snavio.sdk.consumer import OPERATIONS
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.v1.mailbox_pb2 import NackRequest
from tests.support.mesh import DemoMesh

CALL_S = 30.0


class TamperingMailbox:
    """Forwards calls under the client's own certificate; the first response that holds `mark` has one bit changed."""

    def __init__(self, real: MeshChannel, mark: bytes) -> None:
        self._real = real
        self._mark = mark
        self.changed = 0
        self.nacks: list[NackRequest] = []

    def methods(self) -> Methods:
        methods = Methods()
        for name in ("Receive", "Ack", "Nack", "Extend"):
            methods.unary_raw(f"/snavio.v1.Mailbox/{name}", self._forwarding(name))
        return methods

    def _forwarding(self, name: str) -> UnaryHandler:
        async def forward(request: bytes, _call: Call) -> bytes:
            if name == "Nack":
                self.nacks.append(NackRequest.FromString(request))
            answer = await self._real.call_raw(f"/snavio.v1.Mailbox/{name}", request, timeout_s=CALL_S)
            at = answer.find(self._mark) if name == "Receive" and not self.changed else -1
            if at < 0:
                return answer
            self.changed += 1
            return answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]

        return forward


@asynccontextmanager
async def tampering_mailbox(
    mesh: DemoMesh, topic: str, certificates: Path, mark: bytes
) -> AsyncIterator[tuple[TamperingMailbox, str]]:
    """One in front of the mesh's mailbox, and its address."""
    real = mailbox_channel(
        mesh.addresses["mailbox"],
        CapabilityScope(topic, OPERATIONS),
        certificates=certificates,
        signer=mesh.addresses["signer"],
        capability=None,
        trust_domain=DEFAULT_TRUST_DOMAIN,
    )
    tampering = TamperingMailbox(real, mark)
    server = MeshServer(
        listen="127.0.0.1:0",
        files=CertificateFiles.in_folder(mesh.certificates("mailbox")),
        methods=tampering.methods(),
        gate=CertificateGate(clock=SystemClock()),
        clock=SystemClock(),
        trust_domain=DEFAULT_TRUST_DOMAIN,
    )
    port = await server.start()
    try:
        yield tampering, f"127.0.0.1:{port}"
    finally:
        await server.drain(0)
        await real.close()
