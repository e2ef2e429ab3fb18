"""Opens the coordination store that Slow's settings choose.

Never opens one whose claims could be taken over while their owner still works.
"""

from __future__ import annotations

from services.slow.settings import SlowSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.claim import Terms
from snavio.errors import BadRequest
from snavio.ports.coordination import Coordination
from snavio.wiring import CoordinationChoice, open_coordination


def require_long_leases(mesh: MeshSettings, settings: SlowSettings) -> None:
    """BadRequest for a lease that can end while its owner waits for the queue or for the commit."""
    least_ms = mesh.budget_ms + settings.coordination_timeout_ms
    if settings.claim_lease_ms <= least_ms:
        raise BadRequest(
            "[slow] claim_lease_ms must be over [mesh] budget_ms and [slow] coordination_timeout_ms together, "
            f"which are {least_ms}.",
            reason="bad-configuration",
        )


async def open_chosen(mesh: MeshSettings, settings: SlowSettings, clock: Clock) -> Coordination:
    """The store, open; one on a server may be away."""
    url = settings.coordination_url
    return await open_coordination(
        CoordinationChoice(
            kind=settings.coordination,
            folder=mesh.state_dir / "slow",
            instance=settings.instance,
            url=url.get_secret_value() if url is not None else "",
            prefix=f"snavio:{mesh.trust_domain}",
            table=settings.coordination_table,
            region=settings.coordination_region or "",
            endpoint_url=settings.coordination_endpoint_url,
            terms=Terms(lease_ms=settings.claim_lease_ms, keep_ms=settings.dedupe_ms),
            max_claims=settings.max_claims,
            max_claims_per_source=settings.max_claims_per_source,
            timeout_s=settings.coordination_timeout_ms / 1000,
            replicas=settings.coordination_replicas,
        ),
        clock=clock,
    )
