"""Metrics of the mailbox: depth, leases, saturation, rejections and the DLQ, by topic and shard.

Never counts on the way of a message what the rules count anyway, and never tells more than the fullest topics: a
reading must not grow with the number of tenants.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from services.mailbox.delivery.standstill import Standstill, standstill
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.topics import Limits, Topic

MOST_TOPICS = 50
DLQ_TOTAL, PRUNED_TOTAL, REJECTED_TOTAL = "dlq_total", "pruned_total", "rejected_total"
LOST_TOTAL = "lost_total"


def labelled(name: str, **labels: object) -> str:
    """Such as `queue_depth{topic="acme/billing",shard="0"}`."""
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return name + "{" + inside + "}" if inside else name


def gauges(delivery: Delivery) -> dict[str, float]:
    """`queue_depth`, `inflight`, `saturation` and `reorder_depth_max` by topic and shard, of the fullest topics."""
    told: dict[str, float] = {"inflight_total": delivery.inflight.total}
    told["timers"] = len(delivery.window.timers)
    told["inflight_saturation"] = delivery.inflight.total / delivery.limits.inflight_messages
    for topic in _fullest(delivery):
        inflight = inflight_by_shard(topic)
        for shard in sorted({0, *topic.by_shard}):
            where = {"topic": topic.name, "shard": shard}
            messages, leased = topic.by_shard.get(shard, 0), inflight.get(shard, 0)
            told[labelled("queue_depth", **where)] = max(0, messages - leased)
            told[labelled("inflight", **where)] = leased
            told[labelled("saturation", **where)] = min(1.0, messages / delivery.topics.capacity(topic.name))
            told[labelled("reorder_depth_max", **where)] = topic.ordering.deepest.get(shard, 0)
        why = standstill(delivery, topic.name)
        if why not in (Standstill.NONE, Standstill.LEASED):
            told[labelled("standstill", topic=topic.name, reason=why.label)] = 1
        told[labelled("dlq_depth", topic=topic.name)] = topic.dead
        told[labelled("canceled", topic=topic.name)] = topic.canceled
        told[labelled("delivered_retained", topic=topic.name)] = topic.delivered
    return told


def retention(policies: Policies, limits: Limits, *, max_visibility_ms: int) -> dict[str, float]:
    """Retention of each state in time and messages: of every topic, and of those with rules of their own.

    Under `inflight` the longest that a lease can be made to last. The rules of `MOST_TOPICS` topics at the most.
    """

    def windows(policy: Policy, **where: str) -> dict[str, float]:
        lease_s = policy.inflight_visibilities * max_visibility_ms / 1000
        seconds = {
            "ready": policy.ready_s,
            "inflight": lease_s,
            "delivered": policy.delivered_s,
            "dlq": policy.dlq_s,
        }
        messages = {"ready": limits.topic_messages, "inflight": limits.inflight_messages}
        messages |= {"delivered": policy.delivered_messages, "dlq": policy.dlq_messages}
        told = {labelled("retention_seconds", **where, state=one): most for one, most in seconds.items()}
        told |= {labelled("retention_messages", **where, state=one): most for one, most in messages.items()}
        return told | {labelled("retention_visibilities", **where): policy.inflight_visibilities}

    default = windows(policies.default)
    told = dict(default)
    for topic in sorted(policies.by_topic)[:MOST_TOPICS]:
        own = windows(policies.by_topic[topic], topic=topic)
        told |= {
            name: most
            for (name, most), usual in zip(own.items(), default.values(), strict=True)
            if most != usual
        }
    return told


def counters(delivery: Delivery, *rejected: Mapping[str, int]) -> dict[str, int]:
    """`dlq_total` by topic and reason, `pruned_total` by topic and cause, `lost_total`, `rejected_total` by reason."""
    told: Counter[str] = Counter()
    for topic in _fullest(delivery):
        for reason, messages in topic.died.items():
            told[labelled(DLQ_TOTAL, topic=topic.name, reason=reason)] += messages
        for cause, messages in topic.pruned.items():
            told[labelled(PRUNED_TOTAL, topic=topic.name, cause=cause)] += messages
    for name in delivery.topics.names():
        # Of every topic, however empty: this is the one number that must never grow unseen.
        if (known := delivery.topics.topic(name)) is not None and known.lost:
            told[labelled(LOST_TOTAL, topic=name)] = known.lost
    for reasons in rejected:
        for reason, times in reasons.items():
            told[labelled(REJECTED_TOTAL, reason=reason)] += times
    return dict(told)


def inflight_by_shard(topic: Topic) -> dict[int, int]:
    """Leased messages of a topic by shard; a walk over what is in memory, for a reading."""
    if len(topic.by_shard) <= 1:
        return {next(iter(topic.by_shard), 0): topic.inflight + topic.settling}
    found: dict[int, int] = {}
    for batch in topic.batches.values():
        held = sum(hi - lo for lo, hi, _ in batch.held)
        if held:
            found[batch.shard] = found.get(batch.shard, 0) + held
    return found


def _fullest(delivery: Delivery) -> list[Topic]:
    topics = (topic for name in delivery.topics.names() if (topic := delivery.topics.topic(name)) is not None)
    return heapq.nlargest(MOST_TOPICS, topics, key=lambda one: one.messages + one.dead)
