"""Begins the repeated work beside the traffic: expired leases, health of writes, retention.

Never runs before the server does: health has to know whether writes are taken from the first call on.
"""

from __future__ import annotations

from typing import Final

from services.mailbox.composition import MailboxParts
from services.mailbox.retention import pruning
from snavio.host.service import ServiceHost

SCAN_SECONDS: Final = 0.025
IDLE_SCAN_SECONDS: Final = 0.1
READINESS_SECONDS: Final = 0.25
WRITES: Final = "snavio.v1.Mailbox.Send"
"""Name of the health check for sends; that for receives is the service's own."""


def begin_upkeep(host: ServiceHost, parts: MailboxParts) -> None:
    """Run all of it on the host."""
    delivery = parts.delivery

    async def scan() -> None:
        """Wake receivers of messages whose lease or delay ends while there are no calls."""
        delivery.tick()

    def show_readiness() -> None:
        """A full disk is no reason to stop receivers, which would empty it: only sends are not ready."""
        host.server.set_part(WRITES, parts.commits.takes_sends)

    async def readiness() -> None:
        show_readiness()

    # A health check before the first turn must know of writes too.
    show_readiness()
    host.every(
        lambda: SCAN_SECONDS if delivery.expecting else IDLE_SCAN_SECONDS,
        "scan",
        scan,
        longest_s=1.0,
        jitter=0.0,
    )
    host.every(READINESS_SECONDS, "readiness", readiness)
    host.every(lambda: pruning.TICK_SECONDS, "retention", parts.retention.step)
    host.at_stop("topic rules", parts.topic_rules.stop)
    parts.topic_rules.begin()
