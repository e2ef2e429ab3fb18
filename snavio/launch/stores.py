"""The stores of a state folder, in the order in which a backup takes them.

Never lists what can be made again from them: snapshots, caches and their bookmarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Store:
    """One SQLite file, by its place in the state folder."""

    name: str
    place: str
    holds: str

    def path(self, state: Path) -> Path:
        """Its file."""
        return state / self.place


# The mailbox first and Signer last: messages need routes, routes need keys, and each store that is taken later knows
# all that those before it refer to.
STORES: Final = (
    Store("mailbox", "mailbox/mailbox.db", "messages"),
    Store("outbox", "relay/outbox.db", "telemetry that is not archived yet"),
    Store("streams", "relay/streams.db", "signed streams of tenants"),
    Store("alerts", "relay/alerts.db", "alerts and their deliveries"),
    Store("coordination", "slow/coordination.db", "limits in use and strict ids"),
    Store("directory", "registry/directory.db", "tenants, routes, rights, bans and their history"),
    Store("capabilities", "signer/capabilities.db", "issued and revoked capabilities"),
    Store("certificates", "signer/certificates.db", "issued certificates"),
)
KEYS_PLACE: Final = "signer/keys.sealed"
SEALING_KEY_PLACE: Final = "signer/sealing.key"
FOLDERS: Final = ("mailbox", "relay", "slow", "registry", "fast", "shield", "signer", "certs")
"""Everything of an installation that a backup brings back; the archive and the logs stay where they are."""
LEFT_OUT: Final = (".lock", "-wal", "-shm", "-mark", ".db", ".seg", ".epoch", ".snapshot", ".opening", ".new")
"""Endings of files that are copied as stores, or that only hold a reader's position."""
