"""Capabilities for a tenant's event stream, checked by Signer.

Never verifies one itself: that would take the secret that makes them.
"""

from __future__ import annotations

from typing import Final

from services.gateway.callers import StreamScope
from snavio.clock import Clock
from snavio.domain.caveat import Operation
from snavio.domain.queue_address import telemetry_topic
from snavio.errors import NotAllowed
from snavio.rpc.channel import MeshChannel
from snavio.rpc.peer import Peer
from snavio.v1.signer_pb2 import CheckCapabilityRequest, CheckCapabilityResponse

METHOD: Final = "/snavio.v1.Signer/CheckCapability"
CALL_SECONDS: Final = 2.0
CACHE_NS: Final = 3_000_000_000
"""Readers of one service share a check; a revoked capability ends its streams this much later at most."""
MAX_CACHED: Final = 4096


class StreamCapabilities:
    """Asks Signer, and keeps what it permits for a moment. Refusals are not kept."""

    def __init__(self, signer: MeshChannel, *, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock
        self._kept: dict[tuple[str, str, str], tuple[int, StreamScope]] = {}

    async def check(self, text: str, peer: Peer, tenant: str) -> StreamScope:
        """The part of the tenant's stream that it permits; Unauthenticated or NotAllowed if none."""
        question = (text, peer.identity.spiffe_id, tenant)
        kept = self._kept.get(question)
        if kept is not None and self._clock.mono_ns() < kept[0]:
            return kept[1]
        asked = self._clock.mono_ns()
        answer = await self._signer.call(
            METHOD,
            CheckCapabilityRequest(
                capability=text,
                holder=peer.identity.spiffe_id,
                operation=Operation.STREAM,
                topic=telemetry_topic(tenant),
            ),
            CheckCapabilityResponse,
            timeout_s=CALL_SECONDS,
        )
        if (answer.narrowed_to_sources and not answer.source) or (
            answer.narrowed_to_families and not answer.family
        ):
            raise NotAllowed("The capability was narrowed until nothing was left.", reason="cap-scope")
        scope = StreamScope(frozenset(answer.source), frozenset(answer.family))
        if len(self._kept) >= MAX_CACHED:
            self._kept.pop(next(iter(self._kept)))
        self._kept[question] = (asked + CACHE_NS, scope)
        return scope
