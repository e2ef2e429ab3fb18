"""Reports to Signer the commands that came in under each key version, as admission counted them.

Never counts a command itself, and never lets a Signer that is away make it grow or hold up a pull of keys.
"""

from __future__ import annotations

from itertools import islice

from snavio.native import Admission
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import KeyUse, ReportKeyUsageRequest, ReportKeyUsageResponse

METHOD = "/snavio.v1.Signer/ReportKeyUsage"
CALL_SECONDS = 2.0
MAX_ROWS = 5000
# Two living versions of every source that a key store holds.
MAX_WAITING = 40_000


class KeyUsage:
    """Counts that are not reported yet."""

    def __init__(self, *, admission: Admission, signer: MeshChannel) -> None:
        self._admission = admission
        self._signer = signer
        self._waiting: dict[tuple[str, str], int] = {}
        self.dropped = 0
        """Commands whose use was dropped because too many sources waited for a report."""

    def collect(self) -> None:
        """Take over admission's counts; before key sets are dropped, whose counts go with them."""
        for source, version, commands in self._admission.key_usage():
            known = self._waiting.get((source, version))
            if known is None and len(self._waiting) >= MAX_WAITING:
                self.dropped += commands
            else:
                self._waiting[source, version] = (known or 0) + commands

    async def report(self) -> None:
        """Report the counts, if there are any; raises what the call raises, and keeps them for the next report then.

        Counts of a call whose answer was lost are reported twice: shares of traffic bear that, a gap would hide a user.
        """
        self.collect()
        while self._waiting:
            rows = dict(islice(self._waiting.items(), MAX_ROWS))
            await self._signer.call(
                METHOD,
                ReportKeyUsageRequest(
                    use=[
                        KeyUse(source=source, key_version=version, commands=commands)
                        for (source, version), commands in rows.items()
                    ]
                ),
                ReportKeyUsageResponse,
                timeout_s=CALL_SECONDS,
            )
            for key, told in rows.items():
                self._waiting[key] -= told
                if not self._waiting[key]:
                    del self._waiting[key]
