"""Follows Registry's directory: all of it once, then what changed, up to the newest version.

Never mixes what two epochs of a directory say, and never calls a list read of which there is more: a half-read one
lacks revocations.
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
    """Gives entries and changes to `take`, in order; with `kind`, of the whole only that kind.

    `forget` is told when another directory has taken this one's place, before anything of the new one is taken: with
    when the question was asked that was answered so, or with None when the reading of the whole broke off by it.
    `instance` and `bound_ms` let Registry know who follows, and how long it goes on without hearing anything.
    """

    def __init__(
        self,
        registry: MeshChannel,
        *,
        clock: Clock,
        take: Callable[[Change], None],
        forget: Callable[[int | None], None],
        kind: str = "",
        instance: str = "",
        bound_ms: int = 0,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._take = take
        self._forget = forget
        self._kind = kind
        self._instance = instance
        self._bound_ms = bound_ms
        self._reading: DumpReading | None = None
        self.version = 0
        """Up to where everything was taken."""
        self.epoch = 0
        """Of which directory; 0 before the whole of it was read."""

    def go_on_from(self, version: int, epoch: int) -> None:
        """The whole is had already, as it stood then."""
        self.version, self.epoch = version, epoch

    async def catch_up(self) -> int:
        """Take all that is new; when the question was asked, on the monotonic clock, that was the last one.

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
            self.version = answer.version
            if answer.more:
                continue
            if told or not answer.change:
                return asked
            # Once more, at once: Registry hears that this is applied, and an operator who has frozen something
            # waits for that word.
            told = True

    async def _read_all(self) -> None:
        """What stands, not how it came to stand: the log is longer with every year, the directory is not."""
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
