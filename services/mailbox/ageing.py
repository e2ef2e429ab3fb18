"""How long ago something happened in this store's own time, which passes only while the mailbox runs.

Never goes by the wall clock: a clock that jumps an hour, while we run or while we do not, must expire nothing early.
So what waited while nobody could receive it does not age either.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from snavio.clock import Clock
from snavio.ports.mailbox_store import MailboxStore, Milestone

SECOND = 1_000_000_000
PER_RETENTION = 128
"""Milestones within the longest retention: so exact is the age of a batch, and always on the side of younger."""


class Age:
    """The store's age. `note` is called now and then on a thread for the disk, the rest on the event loop."""

    def __init__(
        self, *, clock: Clock, age_ns: int, milestones: Sequence[Milestone] = (), longest_s: int = 86_400
    ) -> None:
        self._clock = clock
        self._base_ns = age_ns - clock.mono_ns()
        self._milestones = list(milestones)
        self._longest_ns = longest_s * SECOND
        self._step_ns = max(SECOND, self._longest_ns // PER_RETENTION)

    def now_ns(self) -> int:
        """How long the store has been open, in all its lives."""
        return self._base_ns + self._clock.mono_ns()

    def through(self, retention_s: int) -> int:
        """Every batch up to this id was stored at least `retention_s` ago; 0 when that is true of none."""
        limit = self.now_ns() - retention_s * SECOND
        place = bisect_right(self._milestones, limit, key=lambda one: one.age_ns)
        return self._milestones[place - 1].batch_id if place else 0

    @property
    def due(self) -> bool:
        """Whether it is time for another milestone."""
        last = self._milestones[-1].age_ns if self._milestones else -self._step_ns
        return self.now_ns() - last >= self._step_ns

    def note(self, store: MailboxStore) -> Milestone | None:
        """Have the store keep the age, and a milestone if one is due."""
        now = self.now_ns()
        # One that is older than the longest retention still says what has surely expired; more say nothing new.
        forget = max(0, now - self._longest_ns - 2 * self._step_ns)
        return store.note_age(now, milestone=self.due, forget_before_ns=forget)

    def noted(self, milestone: Milestone | None) -> None:
        """The store has it."""
        if milestone is not None:
            self._milestones.append(milestone)
            old = bisect_right(self._milestones, self.now_ns() - self._longest_ns, key=lambda one: one.age_ns)
            del self._milestones[: max(0, old - 1)]
