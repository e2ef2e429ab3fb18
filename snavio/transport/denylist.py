"""Feeds the gate with the serials that Signer has revoked.

Never forgets a serial whose certificate could still be used.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.errors import Saturated
from snavio.transport.channel import MeshChannel
from snavio.transport.gate import Gate
from snavio.transport.pull import Pull
from snavio.v1.signer_pb2 import DenylistRequest, DenylistResponse

CALL_SECONDS = 2.0
PATIENCE = 5
LONGEST_SECONDS = 10.0


def denylist_pull(signer: MeshChannel, gate: Gate, *, clock: Clock, interval_s: float) -> Pull:
    """A pull that keeps `gate` up to date."""
    version = 0

    async def ask(since: int) -> DenylistResponse:
        return await signer.call(
            "/snavio.v1.Signer/Denylist",
            DenylistRequest(since_version=since),
            DenylistResponse,
            timeout_s=CALL_SECONDS,
        )

    async def refresh() -> None:
        nonlocal version
        answer = await ask(version)
        try:
            gate.revoke(answer.serial)
        except Saturated:
            # The gate has kept serials of certificates that have expired since; the whole list has not.
            answer = await ask(0)
            gate.replace(answer.serial)
        version = answer.version

    # Five services ask. A revocation is to be felt within 30 s, so they need not ask as often as for routes;
    # an idle mesh spends most of its CPU on asking.
    seldom_s = max(interval_s, min(PATIENCE * interval_s, LONGEST_SECONDS))
    return Pull("denylist", refresh, clock=clock, interval_s=seldom_s)
