"""The answer that most pulls get: nothing has changed. The same bytes every time but for the time in them, as long as
nothing is written.

Never answers for another version or epoch than the directory has at that moment.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.ports.directory import Directory
from snavio.v1.registry_pb2 import ChangesRequest, ChangesResponse


class UnchangedCache:
    """Every cache of the mesh asks about once a second."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._standing = (0, 0)
        self._answer = b""

    def answer(self, asked: ChangesRequest) -> bytes | None:
        """The whole answer, serialised; None when there may be more to say."""
        standing = self._directory.standing
        if standing != self._standing:
            epoch, version = self._standing = standing
            self._answer = ChangesResponse(version=version, directory_epoch=epoch).SerializeToString()
        known = (asked.directory_epoch, asked.since_version) == standing and not asked.limit
        if not known:
            return None
        # Serialised messages may be joined: the time is a field of its own behind the others.
        time: bytes = ChangesResponse(now_unix_ns=self._clock.unix_ns()).SerializeToString()
        return self._answer + time
