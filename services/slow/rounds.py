"""Composes the sizes of Slow's rounds, and the bounds of what waits for them.

Never leaves a bound that one tenant can fill for all.
"""

from __future__ import annotations

from dataclasses import replace

from services.slow.arbitration import Rounds
from services.slow.deficit_round_robin import RETRY_AFTER_MS
from services.slow.settings import SlowSettings
from snavio.host.service import ServiceHost
from snavio.host.shares import Shares


def make_rounds(host: ServiceHost, settings: SlowSettings) -> Rounds:
    """As the settings say; what tenants hold of them is shown to operators."""
    # Sources are tenants': a reserve for the mesh would lie idle.
    share = replace(host.mesh.share("waiting_commands", settings.max_waiting_commands), reserve=0)
    waiting = Shares("waiting_commands", share, retry_after_ms=RETRY_AFTER_MS)
    host.introspection.shares(waiting)
    return Rounds(
        at_once=settings.rounds,
        commands=settings.round_commands,
        quantum=settings.quantum_commands,
        waiting=waiting,
        max_waiting_per_source=settings.max_waiting_per_source,
    )
