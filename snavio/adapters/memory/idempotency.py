"""Recognises keyed messages that were stored before, for as long as the replay window of their topic lasts.

Never forgets a key while its window runs: neither for want of room (new ones are refused then) nor because a
clock was set. Time stands still for it while the store is closed, so that a restart only ever lengthens a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snavio.native import ReplayWindow
from snavio.ports.mailbox_store import KEY_BYTES, Keys, NewBatch, Recognised, Send

CAPACITY = 10_000_000
"""Keys that a store remembers; 80 to 150 bytes of memory each."""
SHARE_PER_TENANT = 0.5
MILLISECOND = 1_000_000
_NOTHING = Send(None, b"", ())


class IdempotencyKeys:
    """Called by the committing thread alone, but for `gauges`."""

    def __init__(self, *, secret: bytes, capacity: int) -> None:
        self.secret = secret
        self.capacity = capacity
        share = max(1, int(capacity * SHARE_PER_TENANT))
        self._window = ReplayWindow(capacity=capacity, share_per_owner=share)
        self._began_ns = 0
        self._began_unix_ns: int | None = None
        self._blind_until_ns = -1

    def __len__(self) -> int:
        return len(self._window)

    def gauges(self) -> dict[str, float]:
        """Number of keys that are known, and their bound."""
        return {"replay_keys": len(self._window), "replay_keys_capacity": self.capacity}

    def time(self, now_unix_ns: int) -> int:
        """Nanoseconds for which the store was open, in all its lives; the clock must not step back within one."""
        if self._began_unix_ns is None:
            self._began_unix_ns = now_unix_ns
        return self._began_ns + max(0, now_unix_ns - self._began_unix_ns)

    def load(self, keys: bytes, batch_id: int, *, at_ns: int, until_ns: int) -> None:
        """Keys that an earlier life of the store had remembered."""
        self._window.remember(keys, batch_id, at_ns, until_ns - at_ns)

    def began(self, at_ns: int) -> None:
        """The time at which it stood still, and from which it goes on."""
        self._began_ns = at_ns

    def blind_until(self, until_ns: int) -> None:
        """Keys are lost that held until then: what is not known to be stored may have been, and is refused."""
        self._blind_until_ns = max(self._blind_until_ns, until_ns)

    def recognise(self, sends: Sequence[Send], *, now_unix_ns: int) -> list[Recognised]:
        """See MailboxStore.recognise."""
        columns = [
            (batch.keys.columns, batch.runs, batch.groups, number)
            for number, send in enumerate(sends)
            for batch in send.batches
            if batch.keys is not None
        ]
        if not columns:
            return [Recognised(send) for send in sends]
        now_ns = self.time(now_unix_ns)
        sifted = iter(self._window.sift(columns, now_ns, closed=now_ns <= self._blind_until_ns))
        recognised: list[Recognised] = []
        for send in sends:
            if all(batch.keys is None for batch in send.batches):
                recognised.append(Recognised(send))
                continue
            codes = bytearray(send.codes)
            batches: list[NewBatch] = []
            findings: list[tuple[NewBatch, bytes, bytes]] = []
            for batch in send.batches:
                if batch.keys is None:
                    batches.append(batch)
                    continue
                found, fresh, left, runs, firsts = next(sifted)
                codes[batch.first : batch.first + batch.count] = found
                findings.append((batch, found, firsts))
                if fresh:
                    keys = Keys(left, batch.keys.window_ms)
                    batches.append(replace(batch, count=fresh, runs=runs, keys=keys, groups=b""))
            hint = min(self._retry_after_ms(now_ns), 60_000)
            recognised.append(
                Recognised(
                    replace(send, codes=bytes(codes), batches=tuple(batches)),
                    hint,
                    tuple(findings),
                    self._began_ns,
                    self._began_unix_ns or 0,
                )
            )
        return recognised

    def _retry_after_ms(self, now_ns: int) -> int:
        if now_ns <= self._blind_until_ns:
            return (self._blind_until_ns - now_ns) // MILLISECOND + 1
        return self._window.room_in_ms()

    def first(self, key: bytes, *, now_unix_ns: int) -> tuple[int, int] | None:
        """The first message with a key, while it is known: its id, and its wall-clock time; 0 for an earlier life."""
        found = self._window.first(key, self.time(now_unix_ns))
        if found is None:
            return None
        told = Recognised(_NOTHING, began_ns=self._began_ns, began_unix_ns=self._began_unix_ns or 0)
        return found[0], told.stored_unix_ns(found[1])

    def remember(self, sends: Sequence[Send], ids: Sequence[tuple[int, ...]], *, now_unix_ns: int) -> None:
        """These are stored."""
        for send, batch_ids in zip(sends, ids, strict=True):
            for batch, batch_id in zip(send.batches, batch_ids, strict=True):
                if batch.keys is not None:
                    assert len(batch.keys.columns) == KEY_BYTES * batch.count
                    window_ns = batch.keys.window_ms * MILLISECOND
                    self._window.remember(batch.keys.columns, batch_id, self.time(now_unix_ns), window_ns)
