"""Remembers the last sends of every peer, so that one that comes again is answered and not stored twice.

Never says NEW for a send that it may have forgotten while its peer is known.
"""

from __future__ import annotations

from collections import OrderedDict

from snavio.ports.mailbox_store import RECALL_SLOTS, Origin, Recall

MAX_PEERS = 256

_Slots = list[tuple[int, int, bytes] | None]


class Recollection:
    """(epoch, seq, codes) per peer and slot; `remember` is called by one thread, `recall` by any."""

    def __init__(self, *, max_peers: int = MAX_PEERS) -> None:
        self._max_peers = max_peers
        self._peers: OrderedDict[str, _Slots] = OrderedDict()

    def recall(self, origin: Origin) -> bytes | Recall:
        """See MailboxStore.recall."""
        slots = self._peers.get(origin.peer)
        held = slots[origin.seq % RECALL_SLOTS] if slots is not None else None
        if held is None or held[:2] < (origin.epoch, origin.seq):
            return Recall.NEW
        epoch, seq, codes = held
        return codes if (epoch, seq) == (origin.epoch, origin.seq) else Recall.FORGOTTEN

    def remember(self, origin: Origin, codes: bytes) -> None:
        """Put it into its slot."""
        slots = self._peers.get(origin.peer)
        if slots is None:
            slots = self._peers[origin.peer] = [None] * RECALL_SLOTS
        slots[origin.seq % RECALL_SLOTS] = (origin.epoch, origin.seq, codes)
        self._peers.move_to_end(origin.peer)

    def surplus(self) -> list[str]:
        """Peers beyond the bound, those that sent longest ago first."""
        excess = len(self._peers) - self._max_peers
        return [peer for peer, _ in zip(self._peers, range(excess), strict=False)] if excess > 0 else []

    def forget(self, peers: list[str]) -> None:
        """Drop whole peers."""
        for peer in peers:
            self._peers.pop(peer, None)
