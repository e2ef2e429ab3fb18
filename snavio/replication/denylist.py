"""Feeds the certificate gate with Signer's revocations and with the age of that list.

Never forgets a revocation that covers a certificate which could still be used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from snavio.clock import Clock
from snavio.domain.lineage import Revoked
from snavio.errors import IntegrityError, Saturated
from snavio.replication.poller import Poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import DenylistRequest, DenylistResponse, RevokedSubject

CALL_SECONDS: Final = 2.0
PATIENCE: Final = 4
LONGEST_SECONDS: Final = 4.0


class Denylist(Poller):
    """Keeps `gate` up to date."""

    def __init__(
        self, signer: MeshChannel, gate: CertificateGate, *, clock: Clock, interval_s: float
    ) -> None:
        self._signer = signer
        self._gate = gate
        self._version = 0
        # Six services ask. A revocation is to be felt within 5 s, however slowly routes are pulled; more often would
        # be wasted, an idle mesh spends most of its CPU on asking.
        pause_s = min(PATIENCE * interval_s, LONGEST_SECONDS)
        super().__init__("denylist", self._pull, clock=clock, interval_s=pause_s)

    async def start_with(
        self, entries: Sequence[str | Revoked], *, version: int, read_mono_ns: int, within_s: float
    ) -> None:
        """Go on from a list that was read at `read_mono_ns`; wait for a newer one no longer than `within_s`."""
        self._gate.revoke(entries)
        self._version = version
        self._gate.heard(read_mono_ns)
        await self.start_or_go_on(within_s=within_s, read_mono_ns=read_mono_ns)

    def gauges(self) -> dict[str, float]:
        """Age of the list in seconds."""
        age_ns = self.age_ns()
        return {} if age_ns is None else {"age_s": age_ns / 1e9}

    async def _pull(self) -> None:
        asked = self._clock.mono_ns()
        try:
            async for page in self._pages(self._version):
                self._gate.revoke(entries_of(page.revoked, page.serial))
                self._version = page.version
        except Saturated:
            # The gate has kept revocations of what has expired since; the whole list has not.
            await self._replace()
        self._gate.heard(asked)

    async def _replace(self) -> None:
        # Only once all of it is here: a gate that has a first page alone has forgotten the others.
        entries: list[str | Revoked] = []
        version = 0
        async for page in self._pages(0):
            entries += entries_of(page.revoked, page.serial)
            version = page.version
        self._gate.replace(entries)
        self._version = version

    async def _pages(self, since: int) -> AsyncIterator[DenylistResponse]:
        """Everything after a version, to the end of the list."""
        page = await self._ask(since)
        yield page
        while page.more:
            reached = page.version
            page = await self._ask(reached)
            if page.version <= reached:
                # Asked again and again, such a Signer would keep the list from ever being complete, and the service
                # from ever saying so.
                raise IntegrityError("Pages of the denylist do not come to an end.", reason="endless-pages")
            yield page

    async def _ask(self, since: int) -> DenylistResponse:
        return await self._signer.call(
            "/snavio.v1.Signer/Denylist",
            DenylistRequest(since_version=since),
            DenylistResponse,
            timeout_s=CALL_SECONDS,
        )


def entries_of(revoked: Sequence[RevokedSubject], serials: Sequence[str]) -> list[str | Revoked]:
    """Entries from the wire; an older Signer sends serials only."""
    if not revoked:
        return list(serials)
    return [Revoked(entry.subject, entry.issued_before_unix_ns) for entry in revoked]


def denylist_poller(
    signer: MeshChannel, gate: CertificateGate, *, clock: Clock, interval_s: float, stale_s: float
) -> Denylist:
    """The poller that keeps `gate` up to date; with a list older than `stale_s` the gate admits only the mesh."""
    gate.expect_news(within_s=stale_s)
    return Denylist(signer, gate, clock=clock, interval_s=interval_s)
