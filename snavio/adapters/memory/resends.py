"""Remembers the last sends of every sender, so that one that comes again is answered and not stored twice.

A sender is one life of a process: peer and epoch, compared for equality only. It is remembered until no resend of it
can come. Never says NEW for a send that it may have forgotten while its sender is known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from snavio.ports.mailbox_store import MAX_SENDERS, RECALL_SLOTS, RESEND_NS, Origin, Recall

SenderKey = tuple[str, int]
"""Peer and epoch."""

_UNDATED = -1


class _Sender:
    __slots__ = ("at_unix_ns", "slots")

    def __init__(self) -> None:
        self.at_unix_ns = _UNDATED
        self.slots: list[tuple[int, bytes] | None] = [None] * RECALL_SLOTS


class ResentBatches:
    """(seq, codes) per sender and slot; `recall` may be called by any thread, the rest by one."""

    def __init__(self) -> None:
        # The one that sent longest ago first.
        self._senders: OrderedDict[SenderKey, _Sender] = OrderedDict()
        self._dated = False

    def recall(self, origin: Origin) -> bytes | Recall:
        """See MailboxStore.recall."""
        sender = self._senders.get((origin.peer, origin.epoch))
        if sender is None:
            return Recall.FULL if len(self._senders) >= MAX_SENDERS else Recall.NEW
        held = sender.slots[origin.seq % RECALL_SLOTS]
        if held is None or held[0] < origin.seq:
            return Recall.NEW
        return held[1] if held[0] == origin.seq else Recall.FORGOTTEN

    def remember(self, origin: Origin, codes: bytes, *, now_unix_ns: int = _UNDATED) -> None:
        """Put it into its slot. Without a time it was found in a store, and counts from the first `expired` on."""
        key = (origin.peer, origin.epoch)
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = _Sender()
        sender.slots[origin.seq % RECALL_SLOTS] = (origin.seq, codes)
        sender.at_unix_ns = now_unix_ns
        self._senders.move_to_end(key)

    def expired(self, now_unix_ns: int, *, sending: Collection[SenderKey] = ()) -> list[SenderKey]:
        """Senders of which no resend can come any more, without those that are `sending` now."""
        if not self._dated:
            # Not by the times in the store: the wall clock may have been set while nobody ran.
            self._dated = True
            for sender in self._senders.values():
                if sender.at_unix_ns == _UNDATED:
                    sender.at_unix_ns = now_unix_ns
        ended: list[SenderKey] = []
        for key, sender in self._senders.items():
            if now_unix_ns - sender.at_unix_ns <= RESEND_NS:
                break
            if key not in sending:
                ended.append(key)
        return ended

    def forget(self, senders: list[SenderKey]) -> None:
        """Drop whole senders."""
        for key in senders:
            self._senders.pop(key, None)
