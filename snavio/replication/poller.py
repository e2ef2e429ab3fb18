"""Keeps a copy fresh by reading its authority again and again, one request at a time.

Never pushes and never overlaps; jitter only shortens the pause, so that it cannot stretch a revocation bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from snavio.clock import Clock
from snavio.errors import Unavailable
from snavio.host.periodic import Periodic

NUDGE_QUIET_SECONDS = 0.1
QUIET_AFTER_FAILURE_S = 0.25


class Poller:
    """Calls `refresh` at start and then about every `interval_s`, and knows how old the copy is."""

    def __init__(
        self, name: str, refresh: Callable[[], Awaitable[None]], *, clock: Clock, interval_s: float
    ) -> None:
        self._name = name
        self._refresh = refresh
        self._clock = clock
        self.interval_s = interval_s
        self._read_mono_ns: int | None = None
        self._pulls = Periodic(
            f"pull {name}",
            self._read,
            every_s=interval_s,
            # Nudges must not hammer a dead authority, which is still asked again in time.
            first_s=QUIET_AFTER_FAILURE_S,
            longest_s=min(QUIET_AFTER_FAILURE_S, interval_s),
            quiet_s=NUDGE_QUIET_SECONDS,
        )

    @property
    def read_mono_ns(self) -> int | None:
        """When the last successful request was sent; None before the first."""
        return self._read_mono_ns

    def age_ns(self) -> int | None:
        """Age of the copy, counted from when the request was sent."""
        return None if self._read_mono_ns is None else self._clock.mono_ns() - self._read_mono_ns

    async def start(self, *, within_s: float) -> None:
        """Succeed once within `within_s`, or raise Unavailable; then go on in the background."""
        try:
            await self._pulls.start_within(within_s)
        except TimeoutError as late:
            raise Unavailable(f"{self._name} could not be read within {within_s:.0f} s: {late}.") from None

    def begin(self, *, read_mono_ns: int | None = None) -> None:
        """Go on in the background at once, for a copy that exists already or need not be waited for.

        `read_mono_ns` is when the existing copy was read from the authority; its age counts from there.
        """
        if self._read_mono_ns is None:
            self._read_mono_ns = read_mono_ns
        self._pulls.start(at_once=True)

    async def start_or_go_on(self, *, within_s: float, read_mono_ns: int) -> None:
        """As `start`, for a copy that was read at `read_mono_ns`: an authority that is away is read later."""
        try:
            await self.start(within_s=within_s)
        except Unavailable:
            self.begin(read_mono_ns=read_mono_ns)

    async def stop(self) -> None:
        """End the background work."""
        await self._pulls.stop()

    def nudge(self) -> None:
        """Read again soon instead of at the end of the pause; many nudges are one."""
        self._pulls.nudge()

    async def _read(self) -> None:
        sent = self._clock.mono_ns()
        await self._refresh()
        self._read_mono_ns = sent
