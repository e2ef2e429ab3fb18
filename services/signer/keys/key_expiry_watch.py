"""Watches which key versions carry traffic, and records an event when a source uses one that is about to end.

Never decides about a command, and never repeats itself: one event per source, version and kind in an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_traffic import MAX_TRACKED, KeyTraffic
from snavio.clock import Clock
from snavio.domain.key_retirement import HOUR_NS, expiry_is_imminent, is_legacy
from snavio.domain.keyset import Keyset, KeyVersion
from snavio.errors import BadRequest, NotFound
from snavio.ports.keystore import KeyStore
from snavio.telemetry.events import EventJournal, KeyExpiryImminent, LegacyKeyUsed, moment

MAX_ROWS = 10_000
# No Shield lets in more between two reports; sums of it stay far inside what the wire can carry.
MAX_COMMANDS = 1 << 40


class KeyExpiryWatch:
    """Takes Shield's reports."""

    def __init__(
        self, *, store: KeyStore, usage: KeyTraffic, polls: KeyPolls, events: EventJournal, clock: Clock
    ) -> None:
        self._store = store
        self._usage = usage
        self._polls = polls
        self._events = events
        self._clock = clock
        self._said: dict[tuple[str, str, str], int] = {}
        self._log = structlog.get_logger()

    async def report(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Count (source, version, commands); unknown keys are ignored."""
        taken = list(rows)
        if len(taken) > MAX_ROWS:
            raise BadRequest(f"use: at most {MAX_ROWS} rows in a report.", reason="bad-field")
        keysets = await self._store.keysets_of({source for source, _, _ in taken})
        for source, name, commands in taken:
            keyset = keysets.get(source)
            if keyset is None or commands <= 0:
                continue
            try:
                version = keyset.version(name)
            except NotFound:
                continue  # Forgotten meanwhile: its end is long past.
            self._usage.note(source, name, min(commands, MAX_COMMANDS))
            self._judge(keyset, version)

    def told(self) -> list[list[Any]]:
        """Events of the last hour, for `restore`."""
        now = self._clock.unix_ns()
        return [[*key, at] for key, at in self._said.items() if 0 <= now - at < HOUR_NS]

    def restore(self, told: list[list[Any]]) -> None:
        """Load the events of an earlier life, so that they are not repeated."""
        for name, source, version, at in told[: 2 * MAX_TRACKED]:
            self._said[str(name), str(source), str(version)] = int(at)

    def _judge(self, keyset: Keyset, version: KeyVersion) -> None:
        now, polled = self._clock.unix_ns(), self._polls.last_ns(keyset.source)
        if is_legacy(keyset, version, now):
            self._say(LegacyKeyUsed(version.name, keyset.source, moment(polled)), now)
        if expiry_is_imminent(keyset, version, polled_at_ns=polled, now_ns=now):
            self._say(KeyExpiryImminent(version.name, keyset.source, moment(polled)), now)

    def _say(self, event: LegacyKeyUsed | KeyExpiryImminent, now_ns: int) -> None:
        key = (event.name, event.source, event.version_id)
        said = self._said.get(key)
        if said is not None and 0 <= now_ns - said < HOUR_NS:
            return
        if len(self._said) >= 2 * MAX_TRACKED:
            self._said = {k: at for k, at in self._said.items() if now_ns - at < HOUR_NS}
            if len(self._said) >= 2 * MAX_TRACKED:
                return  # More sources than the store can hold have just been warned.
        self._said[key] = now_ns
        self._events.record(event, at_unix_ns=now_ns)
        self._log.warning(event.name, source=event.source, key_version=event.version_id)
