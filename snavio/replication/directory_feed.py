"""Follows Registry's directory: all of it once, then what changed, up to the newest version.

Never mixes entries of two epochs, and never reports a list as read while there are more pages: a half-read list lacks
revocations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from snavio.clock import Clock
from snavio.errors import Conflict, NotFound
from snavio.replication.directory_dump import DumpReading
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change, ChangesRequest, ChangesResponse

METHOD: Final = "/snavio.v1.Registry/Changes"
CALL_SECONDS: Final = 2.0


class DirectoryFeed:
    """Gives entries and changes to `take`, in order; with `kind`, the first reading has only that kind.

    `forget` is called when another directory has replaced this one, before anything of the new one is taken: with the
    monotonic time of the request that showed it, or with None when the first reading failed because of it.
    `hear_time` is called with Registry's clock and the monotonic time of the request that it answered.
    `instance` and `bound_ms` tell Registry which process follows, and how long it acts on what it has read.
    """

    def __init__(
        self,
        registry: MeshChannel,
        *,
        clock: Clock,
        take: Callable[[Change], None],
        forget: Callable[[int | None], None],
        hear_time: Callable[[int, int], None] = lambda _unix_ns, _mono_ns: None,
        kind: str = "",
        instance: str = "",
        bound_ms: int = 0,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._take = take
        self._forget = forget
        self._hear_time = hear_time
        self._kind = kind
        self._instance = instance
        self._bound_ms = bound_ms
        self._reading: DumpReading | None = None
        self.version = 0
        """Everything up to this version was taken."""
        self.epoch = 0
        """Epoch of the directory; 0 before it was read once as a whole."""

    def gauges(self) -> dict[str, float]:
        """The version of the directory that holds here."""
        return {"version": float(self.version)}

    def go_on_from(self, version: int, epoch: int) -> None:
        """Begin after a copy of the directory as it was at `version`, such as one from a snapshot."""
        self.version, self.epoch = version, epoch

    async def catch_up(self) -> int:
        """Take all that is new; returns the monotonic time at which the last request was sent.

        Raises what a call raises, and goes on from there the next time.
        """
        told = False
        while True:
            if not self.epoch:
                await self._read_all()
            asked = self._clock.mono_ns()
            answer = await self._registry.call(
                METHOD,
                ChangesRequest(
                    since_version=self.version,
                    directory_epoch=self.epoch,
                    instance=self._instance,
                    bound_ms=self._bound_ms,
                ),
                ChangesResponse,
                timeout_s=CALL_SECONDS,
            )
            if answer.directory_epoch != self.epoch:
                self._begin_again(asked)
                continue
            for change in answer.change:
                self._take(change)
            if answer.now_unix_ns > 0:
                self._hear_time(answer.now_unix_ns, asked)
            self.version = answer.version
            if answer.more:
                continue
            if told or not answer.change:
                return asked
            # Once more, at once: Registry hears that this is applied, and an operator who has frozen something
            # waits for that word.
            told = True

    async def _read_all(self) -> None:
        """Read the entries, not the log of changes, which grows with every year."""
        reading = self._reading = self._reading or DumpReading(self._registry, kind=self._kind)
        try:
            async for entry in reading.entries():
                self._take(entry)
        except (Conflict, NotFound):
            self._begin_again(None)
            raise
        self._reading = None
        self.version, self.epoch = reading.version, reading.epoch

    def _begin_again(self, asked_mono_ns: int | None) -> None:
        self._forget(asked_mono_ns)
        self.version = self.epoch = 0
        self._reading = None
