"""Ages in the store's own time, which passes only while the mailbox runs.

Never goes by the wall clock: a clock that jumps an hour, while we run or while we do not, must expire nothing early.
So what waited while nobody could receive it does not age either.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.ports.mailbox_store import MailboxStore

SECOND = 1_000_000_000
NOTED_EVERY_NS = 10 * SECOND


class StoreClock:
    """The store's age. Any thread; `note` is called now and then on one for the disk."""

    def __init__(self, *, clock: Clock, age_ns: int) -> None:
        self._clock = clock
        self._base_ns = age_ns - clock.mono_ns()
        self._noted_ns: int | None = None

    def now_ns(self) -> int:
        """Time that the store has been open, in all its lives."""
        return self._base_ns + self._clock.mono_ns()

    def before_ns(self, retention_s: int) -> int:
        """The age at which the store was `retention_s` ago; less than nothing when it is younger."""
        return self.now_ns() - retention_s * SECOND

    @property
    def due(self) -> bool:
        """True once the store has it for long: a crash makes everything as much younger."""
        return self._noted_ns is None or self.now_ns() - self._noted_ns >= NOTED_EVERY_NS

    def note(self, store: MailboxStore) -> None:
        """Have the store keep the age."""
        now = self.now_ns()
        store.note_age(now)
        self._noted_ns = now
