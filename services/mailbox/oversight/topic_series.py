"""The metrics of each topic, for a scrape: depth, leases, age, deaths.

Never tells more than a bounded number of topics, nor gives up one that it has told: the others are one row, `other`, so
that a tenant with many topics neither makes scrapes long nor hides anybody's numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from services.mailbox.delivery.standstill import Standstill, standstill
from services.mailbox.oversight.metrics import DLQ_TOTAL, LOST_TOTAL, PRUNED_TOTAL, inflight_by_shard
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.topics import Topic
from snavio.host.introspection import Sample
from snavio.observe.metric import OTHER

MOST_TOPICS: Final = 2000
TENANT_PARTS: Final = 4
"""One tenant's topics take at most this part of the places."""
FORGETS: Final = frozenset({DLQ_TOTAL, PRUNED_TOTAL, LOST_TOTAL})
"""A topic that is let go takes its counts with it."""
Labels = tuple[str, ...]


class TopicSeries:
    """Remembers which topics it has told."""

    def __init__(self, delivery: Delivery, *, most: int = MOST_TOPICS) -> None:
        self._delivery = delivery
        self._most = most
        self._told: set[str] = set()
        self._by_tenant: Counter[str] = Counter()

    def read(self) -> Mapping[str, list[Sample]]:
        """By metric."""
        delivery = self._delivery
        sums: dict[str, defaultdict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        most: dict[str, defaultdict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        for name in delivery.topics.names():
            topic = delivery.topics.topic(name)
            if topic is not None:
                self._topic(topic, name if self._tells(name) else OTHER, sums, most)
        return {metric: list(rows.items()) for table in (sums, most) for metric, rows in table.items()}

    def _tells(self, name: str) -> bool:
        if name in self._told:
            return True
        tenant = name.partition("/")[0]
        if len(self._told) >= self._most or self._by_tenant[tenant] >= max(1, self._most // TENANT_PARTS):
            return False
        self._told.add(name)
        self._by_tenant[tenant] += 1
        return True

    def _topic(
        self,
        topic: Topic,
        told: str,
        sums: dict[str, defaultdict[Labels, float]],
        most: dict[str, defaultdict[Labels, float]],
    ) -> None:
        delivery = self._delivery
        capacity, leased = delivery.limits.topic_messages, inflight_by_shard(topic)
        for shard in {0, *topic.by_shard}:
            # Shards of `other` are nobody's in particular.
            where = (told, "0" if told == OTHER else str(shard))
            messages, held = topic.by_shard.get(shard, 0), leased.get(shard, 0)
            sums["queue_depth"][where] += max(0, messages - held)
            sums["inflight"][where] += held
            _raise(most["saturation"], where, min(1.0, messages / capacity))
            _raise(most["reorder_depth_max"], where, topic.ordering.deepest.get(shard, 0))
        counts = delivery.topics.counts(topic.name)
        _raise(most["oldest_age_seconds"], (told,), counts.oldest_age_ms / 1000 if counts else 0.0)
        sums["dlq_depth"][told,] += topic.dead
        sums["canceled"][told,] += topic.canceled
        sums["delivered_retained"][told,] += topic.delivered
        why = standstill(delivery, topic.name)
        if why not in (Standstill.NONE, Standstill.LEASED):
            _raise(most["standstill"], (told, why.label), 1.0)
        for metric, by in ((DLQ_TOTAL, topic.died), (PRUNED_TOTAL, topic.pruned)):
            for reason, messages in by.items():
                sums[metric][told, reason] += messages
        sums[LOST_TOTAL][told,] += topic.lost


def _raise(rows: defaultdict[Labels, float], where: Labels, value: float) -> None:
    rows[where] = max(rows[where], value)
