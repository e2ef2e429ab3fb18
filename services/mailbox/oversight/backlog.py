"""Depth and age of topics, as operators read them.

Never tells more than the fullest topics: a reading must not grow with the number of tenants.
"""

from __future__ import annotations

import heapq

from services.mailbox.state.delivery import Delivery

MOST_TOPICS = 50


def backlog(delivery: Delivery) -> dict[str, float]:
    """Gauges: `topics`, `inflight`, and `topic.<topic>.ready`, `.inflight`, `.oldest_age_ms` of the fullest.

    Also `.shard.<number>.depth` where there are several, and `.reorder_depth_max` where something was overtaken.
    """
    names = delivery.topics.names()
    told: dict[str, float] = {"topics": len(names), "inflight": delivery.inflight.total}
    counted = (counts for name in names if (counts := delivery.topics.counts(name)) is not None)
    for counts in heapq.nlargest(MOST_TOPICS, counted, key=lambda topic: topic.ready + topic.inflight):
        told[f"topic.{counts.topic}.ready"] = counts.ready
        told[f"topic.{counts.topic}.inflight"] = counts.inflight
        told[f"topic.{counts.topic}.oldest_age_ms"] = counts.oldest_age_ms
        if len(counts.shards) > 1:
            for shard, messages in counts.shards.items():
                told[f"topic.{counts.topic}.shard.{shard}.depth"] = messages
        for shard, depth in counts.reorder_depth.items():
            told[f"topic.{counts.topic}.shard.{shard}.reorder_depth_max"] = depth
    return told
