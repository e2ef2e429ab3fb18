"""Shows the mailbox to operators: backlog, store, retention, latencies and refusals.

Never counts anything itself: each reading asks the part that counts.
"""

from __future__ import annotations

from services.mailbox.access.capabilities import Capabilities
from services.mailbox.composition import MailboxParts
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.oversight import metrics
from services.mailbox.oversight.backlog import backlog
from services.mailbox.settings import MailboxSettings
from services.mailbox.wire.servicer import MailboxServicer
from snavio.host.introspection import Introspection


def show_mailbox(
    introspection: Introspection,
    settings: MailboxSettings,
    parts: MailboxParts,
    *,
    waiters: Waiters,
    capabilities: Capabilities,
    servicer: MailboxServicer,
) -> None:
    """Register every reading of the mailbox."""
    delivery, receiving = parts.delivery, parts.receiving
    kept = metrics.retention(
        settings.policies(), delivery.limits, max_visibility_ms=settings.max_visibility_ms
    )
    introspection.for_people(lambda: backlog(delivery))
    introspection.gauges(lambda: {**parts.store.gauges(), "dlq_ephemeral": float(settings.amnesia)})
    introspection.gauges(lambda: metrics.gauges(delivery))
    introspection.gauges(lambda: kept)
    introspection.gauges(parts.readers.gauges)
    introspection.counts(parts.readers.counters)
    introspection.counts(
        lambda: metrics.counters(
            delivery, delivery.topics.rejected, receiving.refused, capabilities.denials()
        )
    )
    introspection.shares(waiters.shares, *parts.tenants.all)
    introspection.gauges(capabilities.gauges, prefix="capability.")
    introspection.gauges(parts.topic_rules.gauges, prefix="topic_rules.")
    introspection.counts(capabilities.denials, prefix="capability.denied.")
    introspection.counts(parts.events.counters, prefix="event.")
    for name, window in (
        ("commit", parts.commits.latency),
        ("enqueue", servicer.enqueue),
        ("dequeue", receiving.latency),
        ("ack", parts.settlements.latency),
    ):
        introspection.times(name, window.read, ever=window.ever)
