"""Lets go of topics that are empty: the next message makes one anew.

Never lets go of a topic with a message in any state, with keys that may still be known, with rules of its own, or with
a receive that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from services.mailbox.oversight.listing import Listing
from services.mailbox.state.delivery import Delivery
from snavio.ports.mailbox_store import MailboxStore

MOST = 256
"""Topics that one step lets go: their rows are deleted in one transaction, which keeps commits waiting."""


class EmptyTopics:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        listing: Listing,
        store: MailboxStore,
        awaited: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        self._delivery = delivery
        self._listing = listing
        self._store = store
        self._awaited = awaited

    async def step(self) -> None:
        """Some of those that are empty now."""
        names = list(islice(filter(self._unneeded, self._delivery.topics.names()), MOST))
        if not names:
            return
        # The store first: while it is asked, a message may come, and its topic stays as it is.
        for name in await self._listing.run(lambda: self._store.drop_topics(names)):
            topic = self._delivery.topics.topic(name)
            if topic is not None and self._delivery.topics.vacant(topic):
                self._delivery.topics.let_go(topic)

    def _unneeded(self, name: str) -> bool:
        topic = self._delivery.topics.topic(name)
        if topic is None or not self._delivery.topics.vacant(topic):
            return False
        return name not in self._delivery.policies.by_topic and not self._awaited(name)
