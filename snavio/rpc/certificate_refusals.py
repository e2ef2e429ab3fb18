"""Counts refused certificates by reason, and emits rate-limited events about them.

Never emits more than one event a minute about one caller and reason, and never remembers more callers than its bound:
beyond that, refusals are only counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind
from snavio.rpc.peer import Peer

WINDOW_S: Final = 60.0
REMEMBERED: Final = 1024
REMEMBERED_OF_A_TENANT: Final = 64
SHOWN: Final = 20

Tell = Callable[[Identity | None, str, int], None]
"""Called with the identity of the certificate, None for one without; the reason; and the number of refusals."""


@dataclass(frozen=True, slots=True)
class RefusedCertificate:
    """Refusals of one identity for one reason."""

    identity: Identity
    reason: str
    count: int
    last_unix_ns: int


class CertificateRefusals:
    """The callback of `CertificateGate.refused`."""

    def __init__(
        self, tell: Tell, *, clock: Clock, window_s: float = WINDOW_S, remembered: int = REMEMBERED
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._window_ns = round(window_s * 1e9)
        self._remembered = remembered
        self._counts: Counter[str] = Counter()
        # Time of the last event, and refusals since; the longest unreported first.
        self._recent: OrderedDict[tuple[Identity, str], tuple[int, int]] = OrderedDict()
        """Number and time of the last, the newest last; for `explain`."""
        self._told: OrderedDict[tuple[Identity | None, str], tuple[int, int]] = OrderedDict()

    def refused(self, peer: Peer | None, reason: str) -> None:
        """Count a refusal, and emit an event if one is due."""
        self._counts[reason] += 1
        if peer is not None:
            self._keep(peer.identity, reason)
        key = (None if peer is None else peer.identity, reason)
        now = self._clock.mono_ns()
        at, since = self._told.get(key, (None, 0))
        if at is not None and now - at < self._window_ns:
            self._told[key] = (at, since + 1)
            return
        if at is None and not self._room(now):
            return
        self._told[key] = (now, 0)
        self._told.move_to_end(key)
        self._tell(*key, since + 1)

    def recent(self, reader: Identity) -> list[RefusedCertificate]:
        """The newest refusals of the reader's tenant, or for an operator of all."""
        found: list[RefusedCertificate] = []
        for (identity, reason), (count, last_unix_ns) in reversed(self._recent.items()):
            concerns = reader.kind is IdentityKind.OPERATOR or identity.tenant == reader.tenant != ""
            if concerns and len(found) < SHOWN:
                found.append(RefusedCertificate(identity, reason, count, last_unix_ns))
        return found

    def _keep(self, identity: Identity, reason: str) -> None:
        key = (identity, reason)
        count, _ = self._recent.pop(key, (0, 0))
        if not count:
            # A tenant with many certificates that are good no more must not push out another's.
            own = [kept for kept in self._recent if kept[0].tenant == identity.tenant]
            if len(own) >= min(REMEMBERED_OF_A_TENANT, self._remembered):
                del self._recent[own[0]]
            elif len(self._recent) >= self._remembered:
                self._recent.popitem(last=False)
        self._recent[key] = (count + 1, self._clock.unix_ns())

    def _room(self, now: int) -> bool:
        if len(self._told) < self._remembered:
            return True
        oldest, (at, _) = next(iter(self._told.items()))
        if now - at < self._window_ns:
            return False
        del self._told[oldest]
        return True

    def counters(self) -> dict[str, int]:
        """Refusals by reason."""
        return dict(self._counts)
