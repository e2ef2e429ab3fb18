"""Reads the whole directory from Registry, page by page, as it stood at one version.

Never mixes two versions or two epochs, and after a failure goes on with the page that it had not read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change, DumpRequest, DumpResponse

METHOD: Final = "/snavio.v1.Registry/Dump"
CALL_SECONDS: Final = 5.0


class DumpReading:
    """One reading, of everything or of one kind. `version` and `epoch` are where `Changes` goes on.

    Conflict `epoch-changed` or NotFound `unknown-version` when the directory was replaced meanwhile: what was read
    is then to be forgotten, and another reading begun.
    """

    def __init__(self, registry: MeshChannel, *, kind: str = "") -> None:
        self._registry = registry
        self._kind = kind
        self._token = ""
        self._done = False
        self.version = 0
        self.epoch = 0

    async def entries(self) -> AsyncIterator[Change]:
        """Entries that were not read yet; raises what a call raises, and may be called again then."""
        while not self._done:
            page = await self._registry.call(
                METHOD,
                DumpRequest(
                    version=self.version,
                    directory_epoch=self.epoch,
                    page_token=self._token,
                    kind=self._kind,
                ),
                DumpResponse,
                timeout_s=CALL_SECONDS,
            )
            for entry in page.entry:
                yield entry
            # Only now: a page that was used in part is read again, and using an entry twice does no harm.
            self.version, self.epoch, self._token = page.version, page.directory_epoch, page.next_page_token
            self._done = not self._token
