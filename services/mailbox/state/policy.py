"""Rules for one topic's retries, retention and keys, each with a bound.

Values only. Nothing here may mean "for ever".
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from snavio.domain.directory import TopicRule, WhenFull
from snavio.domain.directory.topic_rule import BOUNDS

SECOND = 1_000_000_000
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Policy:
    """One topic's rules. Times of retention are counted while the mailbox runs; see `ageing`."""

    max_attempts: int = 10
    """Deliveries of one message; the next would be one too many, and it goes to the DLQ."""
    backoff_base_ms: int = 250
    backoff_max_ms: int = 60_000
    ready_s: int = 7 * DAY_S
    """Time without an acknowledgement after which a message goes to the DLQ as expired."""
    ready_messages: int = 0
    """Messages that wait before the oldest go to the DLQ as expired, so that a full topic takes new ones; 0: no such
    bound, and senders are refused."""
    inflight_visibilities: int = 10
    """A lease can be extended to this many times its visibility, and then ends."""
    delivered_s: int = 0
    """Time that acknowledged messages are kept; 0 removes them at once."""
    delivered_messages: int = 10_000
    dlq_s: int = 14 * DAY_S
    """For dead and for canceled messages."""
    dlq_messages: int = 100_000
    replay_ms: int = 300_000
    """Time that a key is known after its message was stored, in whatever state that is."""
    shards: int = 1
    capacity: int = 0
    """Ready and leased messages of a shard; 0, and anything beyond it, is the installation's bound."""
    when_full: WhenFull = WhenFull.REFUSE

    @property
    def retains(self) -> bool:
        """True when acknowledged messages are kept for a while."""
        return self.delivered_s > 0 and self.delivered_messages > 0

    def backoff_ms(self, attempt: int, chance: random.Random) -> int:
        """A pause before the attempt after `attempt`, anywhere between nothing and the bound (full jitter)."""
        # Beyond 2^32 every bound is reached, and a larger power would only be a larger number.
        most = min(self.backoff_max_ms, self.backoff_base_ms << min(attempt, 32))
        return chance.randint(0, most)


@dataclass(slots=True)
class Policies:
    """Policy of every topic, and of some topics instead. What a tenant wrote for its own comes before the settings."""

    default: Policy = field(default_factory=Policy)
    by_topic: Mapping[str, Policy] = field(default_factory=dict)
    written: dict[str, Policy] = field(default_factory=dict)
    """By topics' names, from the directory."""
    known: bool = True
    """False while nobody can say what tenants have written: nothing ends by age or number until then."""

    def of(self, topic: str) -> Policy:
        """The rules of a topic."""
        return self.written.get(topic) or self.set_up(topic)

    def set_up(self, topic: str) -> Policy:
        """The rules of a topic by the settings alone."""
        found = self.by_topic.get(topic)
        if found is None and self.by_topic:
            # A rule of every tenant's topic with this name.
            found = self.by_topic.get("*/" + topic.partition("/")[2])
        return found or self.default

    def follow(self, rules: Iterable[TopicRule]) -> None:
        """These are the rules that tenants have written, and no others."""
        self.written = {rule.topic: self._with(rule) for rule in rules}
        self.known = True

    def _with(self, rule: TopicRule) -> Policy:
        base = self.set_up(rule.topic)
        return replace(base, when_full=rule.when_full or base.when_full, **rule.numbers())


assert {*BOUNDS, "when_full"} == {one.name for one in fields(Policy)}


def topic_rules(text: str, default: Policy) -> dict[str, Policy]:
    """The rules of topics that have their own: `<topic> <rule>=<number> …; <topic> …`. ValueError with a sentence.

    `*/<name>` is the topic of that name of every tenant that has no rules of its own for it.
    """
    found: dict[str, Policy] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        topic, *rules = part.split()
        if "/" not in topic or topic in found:
            raise ValueError(f"{topic!r} is not a topic, or stands twice")
        numbers: dict[str, Any] = {}
        for rule in rules:
            name, _, number = rule.partition("=")
            if name == "when_full":
                numbers[name] = _when_full(topic, number)
                continue
            if name not in BOUNDS or not number.isascii() or not number.isdigit():
                raise ValueError(f"{rule!r} is not a rule; rules are {', '.join(BOUNDS)}, each with a number")
            least, most = BOUNDS[name]
            if not least <= int(number) <= most:
                raise ValueError(f"{name} of {topic} must be {least} to {most}")
            numbers[name] = int(number)
        found[topic] = replace(default, **numbers)
    return found


def _when_full(topic: str, word: str) -> WhenFull:
    for one in WhenFull:
        if one.label == word:
            return one
    raise ValueError(f"when_full of {topic} must be {' or '.join(one.label for one in WhenFull)}")
