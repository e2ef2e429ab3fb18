"""Leased messages, of all topics and by tenant, against their ceilings.

Never lets one tenant lease what others need, and never forgets a topic that a ceiling kept back: it is woken as soon as
a lease ends.
"""

from __future__ import annotations

from collections.abc import Callable

from services.mailbox.state.topics import Limits, Topic


class InflightCounts:
    """`woken(topic)` is called for topics whose messages a ceiling kept back."""

    def __init__(self, limits: Limits, woken: Callable[[str], None]) -> None:
        self.total = 0
        self.by_tenant: dict[str, int] = {}
        """Only of tenants that have some."""
        self.starved: set[str] = set()
        """Topics with ready messages that a ceiling kept back."""
        self._limits = limits
        self._woken = woken

    def ceiling(self, name: str) -> str | None:
        """The bound that keeps messages of this topic from being leased now; None when none does."""
        if self.total >= self._limits.inflight_messages:
            return "inflight-ceiling"
        if self.by_tenant.get(name.partition("/")[0], 0) >= self._limits.tenant_inflight_messages:
            return "tenant-inflight-ceiling"
        return None

    def room(self, topic: Topic) -> int:
        """Number of messages of this topic that may be leased now."""
        held = self.by_tenant.get(topic.tenant, 0)
        limits = self._limits
        return min(limits.inflight_messages - self.total, limits.tenant_inflight_messages - held)

    def forget(self, name: str) -> None:
        """Forget a topic that was let go."""
        self.starved.discard(name)

    def hold(self, topic: Topic, messages: int) -> None:
        """Count so many more leased messages of the topic, or fewer."""
        topic.inflight += messages
        self.total += messages
        held = self.by_tenant.get(topic.tenant, 0) + messages
        if held:
            self.by_tenant[topic.tenant] = held
        else:
            self.by_tenant.pop(topic.tenant, None)
        if messages < 0 and self.starved:
            starved, self.starved = self.starved, set()
            for name in starved:
                self._woken(name)
