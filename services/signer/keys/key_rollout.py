"""Makes a rotated key primary once every Shield has reported that it has the key.

Never by the clock alone: a Shield that is late would refuse commands signed with a key that it does not know. A Shield
that is silent is waited for as long as it may still let commands in with the keys that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import structlog

from services.signer.keys.keysets import Keysets
from snavio.clock import Clock
from snavio.domain.key_rollout import Holder, awaited
from snavio.domain.keyset import Keyset
from snavio.ports.keystore import KeyStore, Spread

# Far more Shields than one Signer serves. Beyond it the longest silent is forgotten.
MAX_HOLDERS = 1000
# A rotation that takes longer is worth a line in the log; it is not given up.
LATE_NS = 60 * 1_000_000_000
ACTOR = "distribution"


class KeyRollout:
    """`turn` is to be called about once a second, by each Signer; what they know meets in the key store."""

    def __init__(self, *, keysets: Keysets, store: KeyStore, clock: Clock, least_ns: int) -> None:
        self._keysets = keysets
        self._store = store
        self._clock = clock
        self._least_ns = least_ns
        # Before that somebody may have spoken to a Signer that is gone.
        self._since_ns = clock.unix_ns()
        self._heard: dict[str, Holder] = {}
        self._gone: set[str] = set()
        self._late: dict[str, str] = {}
        self._oldest_ns: int | None = None
        self._spreading = 0
        self._log = structlog.get_logger()

    def hear(self, name: str, *, store_epoch: int, version: int, good_for_ns: int) -> None:
        """A Shield has `version`, and goes on with it for so long if it hears no more; 0 if it ends now.

        Never waits for the disk: what is lost in a crash is said again with the Shield's next pull.
        """
        self._heard.pop(name, None)
        if good_for_ns <= 0:
            self._gone.add(name)
            return
        self._gone.discard(name)
        # The newest last: the first is the longest silent.
        self._heard[name] = Holder(name, store_epoch, version, self._clock.unix_ns(), good_for_ns)
        while len(self._heard) > MAX_HOLDERS:
            self._gone.add(next(iter(self._heard)))
            del self._heard[next(iter(self._heard))]

    async def turn(self) -> list[str]:
        """Promote keys that every Shield has; returns the sources."""
        spread = await self._store.spread()
        if await self._record(spread):
            spread = await self._store.spread()
        promoted, waiting = [], []
        for written, keyset in spread.keysets:
            if not self._arrived(spread, written, keyset):
                waiting.append(keyset)
            elif await self._keysets.promote(keyset.source, keyset.versions[-1].name, actor=ACTOR):
                promoted.append(keyset.source)
        self._note(waiting)
        return promoted

    async def holders_of(self, keysets: Sequence[Keyset]) -> Mapping[str, Sequence[tuple[Holder, bool]]]:
        """Per source, every Shield that is waited for, with true if it has the current key set."""
        epoch, recorded = await self._store.holders()
        written = await self._store.written([keyset.source for keyset in keysets])
        holders = sorted(self._known(recorded).values(), key=lambda holder: holder.name)
        return {
            source: [(holder, holder.has(store_epoch=epoch, version=version)) for holder in holders]
            for source, version in written.items()
        }

    def ends_ns(self, holder: Holder) -> int:
        """Time from which that Shield is not waited for any more, unless it reports again."""
        return holder.ends_ns(since_ns=self._since_ns, now_ns=self._clock.unix_ns())

    def gauges(self) -> dict[str, int]:
        """Rotations under way, for Introspection."""
        oldest = self._oldest_ns
        waited_ns = 0 if oldest is None else max(0, self._clock.unix_ns() - oldest)
        return {"spreading": self._spreading, "spreading_longest_s": waited_ns // 1_000_000_000}

    # -- deciding ------------------------------------------------------------------------------------

    def _arrived(self, spread: Spread, written: int, keyset: Keyset) -> bool:
        now, newest = self._clock.unix_ns(), keyset.versions[-1]
        # Made in the future: a clock was set back, and how long it has spread before that is not known.
        began = max(newest.created_ns if newest.created_ns <= now else 0, self._since_ns)
        # Time for those to speak whom this Signer has not heard of.
        if now < began + self._least_ns:
            return False
        late = awaited(
            self._known(spread.holders).values(),
            store_epoch=spread.store_epoch,
            version=written,
            since_ns=began,
            now_ns=now,
        )
        if late and now - newest.created_ns >= LATE_NS and self._late.get(keyset.source) != newest.name:
            self._late[keyset.source] = newest.name
            self._log.warning(
                "rotation waits",
                source=keyset.source,
                key_version=newest.name,
                waits_for=[holder.name for holder in late],
            )
        return not late

    def _known(self, recorded: Iterable[Holder]) -> dict[str, Holder]:
        """Recorded reports of Shields, and newer ones in memory."""
        known = {holder.name: holder for holder in recorded}
        for name, heard in self._heard.items():
            if name not in known or heard.heard_ns >= known[name].heard_ns:
                known[name] = heard
        return {name: holder for name, holder in known.items() if name not in self._gone}

    def _note(self, waiting: Sequence[Keyset]) -> None:
        sources = {keyset.source for keyset in waiting}
        self._late = {source: version for source, version in self._late.items() if source in sources}
        self._spreading = len(waiting)
        self._oldest_ns = min((keyset.versions[-1].created_ns for keyset in waiting), default=None)

    # -- recording -----------------------------------------------------------------------------------

    async def _record(self, spread: Spread) -> bool:
        """Record reports that another Signer, or the next life of this one, needs; returns whether there were any."""
        now = self._clock.unix_ns()
        recorded = {holder.name: holder for holder in spread.holders}
        known = self._known(spread.holders)
        silent = {name for name, holder in known.items() if self.ends_ns(holder) <= now}
        for name in silent:
            self._heard.pop(name, None)
        news = [
            holder
            for name, holder in self._heard.items()
            if name not in recorded or self._is_news(holder, recorded[name], spread)
        ]
        said = frozenset(self._gone)
        gone = (silent | said) & set(recorded)
        if news or gone:
            await self._store.record_holders(news, gone=gone)
        self._gone -= said
        return bool(news or gone)

    def _is_news(self, heard: Holder, recorded: Holder, spread: Spread) -> bool:
        """True if the report must be recorded; without a rotation under way an idle mesh writes nothing."""
        if heard.good_for_ns != recorded.good_for_ns:
            return True
        if spread.keysets and heard.heard_ns - recorded.heard_ns > heard.good_for_ns // 3:
            return True
        return any(
            heard.has(store_epoch=spread.store_epoch, version=written)
            and not recorded.has(store_epoch=spread.store_epoch, version=written)
            for written, _ in spread.keysets
        )
