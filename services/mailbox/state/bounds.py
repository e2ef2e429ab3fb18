"""Bounds that tenants of the mailbox share, each with its way of counting: topics, stored bytes, ranges in memory.

Never lets one tenant use up what another needs. Stored bytes are counted by the store, so that no restart forgets them
and no other count can drift away from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.mailbox.state.topics import Limits, Topic
from snavio.host.shares import ShareLimit, Shares

TENANT_SHARE = "tenant-share"
RETRIES = "retries"
"""Reason of a topic that hands out nothing new: so many of its messages were tried and given back one by one."""


class StoredBytes:
    """The bytes of every tenant: what the store holds, and what is on its way there. Lives on one event loop."""

    def __init__(self, shares: Shares, held: Callable[[], Mapping[str, int]] = dict) -> None:
        self.shares = shares
        self._held = held
        self._underway: dict[str, int] = {}
        self.recount()

    def reserve(self, tenant: str, size: int) -> None:
        """Take up room for what is about to be stored. Saturated when there is none."""
        underway = self._underway.get(tenant, 0)
        self.shares.found(tenant, self._held().get(tenant, 0) + underway)
        self.shares.take(tenant, size)
        self._underway[tenant] = underway + size

    def decided(self, tenant: str, size: int) -> None:
        """It is stored, and counted by the store, or refused."""
        left = self._underway.get(tenant, 0) - size
        if left > 0:
            self._underway[tenant] = left
        else:
            self._underway.pop(tenant, None)

    def recount(self) -> None:
        """Bring every tenant's count up to date, for those who look at it."""
        held = dict(self._held())
        for tenant in {*held, *self._underway, *self.shares.holders()}:
            self.shares.found(tenant, held.get(tenant, 0) + self._underway.get(tenant, 0))


class Spans:
    """Ranges of tried messages in memory. No send is refused for them: a tenant with too many gets no untried ones."""

    def __init__(self, shares: Shares, *, per_topic: int) -> None:
        self.shares = shares
        self._per_topic = per_topic

    def held_up(self, topic: Topic) -> str | None:
        """Why nothing untried of this topic is handed out before tried messages end; None when it is."""
        limit, held = self.shares.limit, self.shares.held(topic.tenant)
        # When all tenants together have too many, those that hold no more than an equal part go on.
        most = limit.per_tenant if not self.crowded else (limit.total - limit.reserve) // self.shares.tenants
        if held > most:
            return TENANT_SHARE
        return RETRIES if topic.spans > self._per_topic else None

    @property
    def crowded(self) -> bool:
        """All tenants together have too many."""
        return self.shares.used > self.shares.limit.total - self.shares.limit.reserve

    def changed(self, topic: Topic, change: int) -> None:
        """The topic has so many more, or fewer."""
        topic.spans += change
        self.shares.found(topic.tenant, self.shares.held(topic.tenant) + change)


@dataclass(frozen=True, slots=True)
class MailboxShares:
    """Every bound of the mailbox that its tenants share, but for the waiting receives."""

    topics: Shares
    spans: Spans
    stored: StoredBytes

    @classmethod
    def of(
        cls,
        limits: Limits,
        divided: Callable[[str, int], ShareLimit],
        *,
        store_bytes: int,
        held: Callable[[], Mapping[str, int]],
    ) -> MailboxShares:
        """`divided(bound, total)` says how a bound is shared, `held` what the store holds of each tenant."""
        return cls(
            Shares("topics", divided("topics", limits.topics)),
            Spans(Shares("spans", divided("spans", limits.all_spans)), per_topic=limits.topic_spans),
            StoredBytes(Shares("store_bytes", divided("store_bytes", store_bytes)), held),
        )

    @classmethod
    def undivided(cls, limits: Limits) -> MailboxShares:
        """No shares: the first tenant may take all of it, and any number of bytes."""
        return cls.of(limits, lambda _, total: ShareLimit(total, total), store_bytes=1 << 62, held=dict)

    @property
    def all(self) -> tuple[Shares, ...]:
        """For those who look at them."""
        return self.topics, self.spans.shares, self.stored.shares
