"""Rules of one mailbox topic: retries, retention, keys, and what happens to a message that finds it full.

Never means "for ever": every rule has a bound, and what a tenant leaves out is the installation's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar, Final

from snavio.domain.directory.rules import require, require_name, require_number

RESERVED: Final = "snavio."
TOPIC_NAME: Final = re.compile(r"(?:own/)?[a-z0-9][a-z0-9._-]{0,127}")
BOUNDS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "max_attempts": (1, 1000),
        "backoff_base_ms": (1, 3_600_000),
        "backoff_max_ms": (1, 43_200_000),
        "ready_s": (1, 315_360_000),
        "ready_messages": (0, 1_000_000_000_000),
        "inflight_visibilities": (1, 10_000),
        "delivered_s": (0, 315_360_000),
        "delivered_messages": (0, 1_000_000_000),
        "dlq_s": (1, 315_360_000),
        "dlq_messages": (1, 1_000_000_000),
        "replay_ms": (1000, 604_800_000),
        "shards": (1, 64),
        "capacity": (1, 1_000_000_000_000),
    }
)
"""Least and most of every number, by its name."""


class WhenFull(IntEnum):
    """The fate of a message that finds its topic full; same numbers as the wire's."""

    REFUSE = 1
    BURY_OLDEST = 2
    """The oldest message that nobody has leased goes to the DLQ in its place."""

    @property
    def label(self) -> str:
        """As it is written in settings and shown to people."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """A tenant's rule for one topic of its own; None leaves the installation's rule."""

    kind: ClassVar[str] = "topic_rule"
    tenant: str
    topic: str
    capacity: int | None = None
    when_full: WhenFull | None = None
    max_attempts: int | None = None
    backoff_base_ms: int | None = None
    backoff_max_ms: int | None = None
    ready_s: int | None = None
    ready_messages: int | None = None
    inflight_visibilities: int | None = None
    delivered_s: int | None = None
    delivered_messages: int | None = None
    dlq_s: int | None = None
    dlq_messages: int | None = None
    replay_ms: int | None = None
    shards: int | None = None

    def __post_init__(self) -> None:
        require_name(self.tenant, "topic_rule.tenant")
        tenant, _, name = self.topic.partition("/")
        require(
            tenant == self.tenant and TOPIC_NAME.fullmatch(name) is not None,
            "topic_rule.topic",
            "`<tenant>/own/<name>` or `<tenant>/<target>` of its own tenant",
        )
        # Relay must never wait for a tenant's telemetry queue.
        require(not name.startswith(RESERVED), "topic_rule.topic", "no topic of the mesh's own")
        for name, number in self.numbers().items():
            require_number(number, f"topic_rule.{name}", *BOUNDS[name])

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.topic)

    @property
    def parent(self) -> str:
        return self.tenant

    def numbers(self) -> dict[str, int]:
        """The rules that it has, but for `when_full`."""
        return {
            each.name: number
            for each in fields(self)
            if each.name in BOUNDS and (number := getattr(self, each.name)) is not None
        }
