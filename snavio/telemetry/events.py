"""Things that happen seldom and matter: typed values under the catalogue's names, in a bounded, numbered journal.

Never waits, never grows, never repeats a number, and never holds a secret: an event has the fields below and
no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol

from snavio.native import format_timestamp


class Event(Protocol):
    """A value that says what happened."""

    name: ClassVar[str]

    def fields(self) -> Mapping[str, str | None]:
        """By their names in the catalogue."""
        ...


@dataclass(frozen=True, slots=True)
class _Secret:
    name: ClassVar[str] = ""

    version_id: str
    source: str
    time_of_last_config_poll: str | None
    """RFC 3339; None if the source has never polled."""

    def fields(self) -> Mapping[str, str | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LegacyKeyUsed(_Secret):
    """A producer signs with the previous version, which is still accepted."""

    name: ClassVar[str] = "snavio.secret.legacy_key_used"


@dataclass(frozen=True, slots=True)
class KeyExpiryImminent(_Secret):
    """A producer signs with a version that ends soon and has not asked for a newer one."""

    name: ClassVar[str] = "snavio.secret.key_expiry_imminent"


@dataclass(frozen=True, slots=True)
class SigningKeyRotated:
    """A scope has a new Ed25519 key: whoever keeps its public keys asks again."""

    name: ClassVar[str] = "signing_key_rotated"

    event_id: str
    occurred_at: str
    domain_id: str
    scope_kind: str
    scope_id: str
    old_key_id: str
    new_key_id: str
    new_public_key: str
    """32 bytes in base64."""
    valid_from: str
    opened_at: str
    closes_at: str
    """When the old key verifies nothing any more."""

    def fields(self) -> Mapping[str, str | None]:
        return asdict(self)


def moment(unix_ns: int | None) -> str | None:
    """A time as events carry it."""
    return None if unix_ns is None else format_timestamp(unix_ns)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in the journal."""

    seq: int
    at_unix_ns: int
    event: Event


class EventJournal:
    """The last events of one process; `epoch` tells its numbers from those of an earlier life."""

    def __init__(self, *, epoch: int, max_events: int = 4096) -> None:
        self.epoch = epoch
        self._kept: deque[Recorded] = deque(maxlen=max_events)
        self._last_seq = 0
        self._counts: dict[str, int] = {}

    def record(self, event: Event, *, at_unix_ns: int) -> None:
        """Add an event; the oldest makes room when there is none."""
        self._last_seq += 1
        self._kept.append(Recorded(self._last_seq, at_unix_ns, event))
        self._counts[event.name] = self._counts.get(event.name, 0) + 1

    def after(self, seq: int, *, limit: int) -> list[Recorded]:
        """Events numbered above `seq`, oldest first."""
        found = [recorded for recorded in self._kept if recorded.seq > seq]
        return found[:limit]

    def missed_since(self, seq: int) -> int:
        """How many events after `seq` are not kept any more."""
        oldest = self._kept[0].seq if self._kept else self._last_seq + 1
        return max(0, oldest - 1 - seq)

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_seq

    def counters(self) -> dict[str, int]:
        """How many of each kind there were."""
        return dict(self._counts)
