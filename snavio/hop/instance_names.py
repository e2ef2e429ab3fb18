"""Names of the processes that have streams here: one name, one living process.

A second process under a name is let in only when the first does not answer any more. Never takes silence of a stream
that is not being read for death, and never sends a question unless the name is contested.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from snavio.errors import BadRequest, Conflict, SnavioError
from snavio.v1.batch_pb2 import Hello

TAKEN: Final = "instance-taken"
MAX_CHARACTERS: Final = 64
# For a living process to say that it is there. The second one is accepted within 5 s, this and its reconnecting.
ANSWER_SECONDS = 2.0


class NamedStream(Protocol):
    """One stream of a process."""

    async def still_there(self, *, within_s: float) -> bool:
        """True if the process at the other end answers, or cannot be heard because nothing is read of it."""

    def displace(self, error: SnavioError) -> None:
        """End the stream with `error`."""


class _Holder:
    __slots__ = ("epoch", "streams")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.streams: list[NamedStream] = []


class HeldName:
    """The hold of one stream on its process's name."""

    def __init__(self, holders: dict[str, _Holder], name: str, epoch: int, stream: NamedStream) -> None:
        self._holders = holders
        self.name = name
        self.epoch = epoch
        self._stream = stream

    def leave(self) -> None:
        """The stream has ended; the name is free with the last one."""
        holder = self._holders.get(self.name)
        if holder is not None and holder.epoch == self.epoch and self._stream in holder.streams:
            holder.streams.remove(self._stream)
            if not holder.streams:
                del self._holders[self.name]


class InstanceNames:
    """Lives on one event loop. Bounded by the streams that are open."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}
        self._log = structlog.get_logger()

    async def enter(self, identity: str, hello: Hello, stream: NamedStream) -> HeldName:
        """Take the name in `hello` for a stream of `identity`; Conflict while another life of it answers.

        BadRequest for a Hello without a name and an epoch.
        """
        if not 0 < len(hello.instance) <= MAX_CHARACTERS or not 0 < hello.epoch < 1 << 63:
            raise BadRequest("The Hello names no instance and epoch.", reason="bad-hello")
        name, epoch = f"{identity}/{hello.instance}", hello.epoch
        while (holder := self._holders.get(name)) is not None and holder.epoch != epoch:
            if await self._alive(holder):
                self._log.error("instance refused", instance=name, epoch=epoch, older_epoch=holder.epoch)
                raise _taken(name)
            if self._holders.get(name) is holder:
                self._log.warning("instance replaced", instance=name, epoch=epoch, older_epoch=holder.epoch)
                del self._holders[name]
                for old in holder.streams:
                    old.displace(_taken(name))
        if holder is None:
            holder = self._holders[name] = _Holder(epoch)
        holder.streams.append(stream)
        return HeldName(self._holders, name, epoch, stream)

    @staticmethod
    async def _alive(holder: _Holder) -> bool:
        # The newest: those before it may be waiting for their last answers, with our peer's half ended.
        return bool(holder.streams) and await holder.streams[-1].still_there(within_s=ANSWER_SECONDS)


def _taken(name: str) -> Conflict:
    return Conflict(
        f"Another process runs under the name {name}. Give each its own: set `instance` in its section of "
        "snavio.toml, or in its environment.",
        reason=TAKEN,
    )
