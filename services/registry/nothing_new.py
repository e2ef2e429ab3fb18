"""The answer that most pulls get: nothing has changed. Bytes in, the same bytes out, as long as nothing is written.

Never answers for another version or epoch than the directory has at that moment.
"""

from __future__ import annotations

from snavio.ports.directory import Directory
from snavio.v1.registry_pb2 import ChangesRequest, ChangesResponse


class NothingNew:
    """Every cache of the mesh asks about once a second, and in the same words when it knows the same."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._standing = (0, 0)
        self._request = b""
        self._answer = b""

    def answer(self, request: bytes) -> bytes | None:
        """The whole answer to a serialised ChangesRequest; None when there may be more to say."""
        standing = self._directory.standing
        if standing != self._standing:
            epoch, version = self._standing = standing
            self._request = ChangesRequest(since_version=version, directory_epoch=epoch).SerializeToString()
            self._answer = ChangesResponse(version=version, directory_epoch=epoch).SerializeToString()
        return self._answer if request == self._request else None
