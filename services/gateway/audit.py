"""The record of who opened which stream and of envelopes that could not be believed, durable at Relay.

Never lets a stream begin that is not on record.
"""

from __future__ import annotations

from services.gateway.callers import Reader, StreamScope
from snavio.errors import SnavioError
from snavio.signed.stream_chain import EnvelopeFault, EnvelopeRefused
from snavio.telemetry.events import StreamOpened, StreamVerificationFailed
from snavio.telemetry.reporting import Reporting


class Audit:
    """Records through the service's journal; openings of one moment travel together."""

    def __init__(self, reporting: Reporting, *, within_s: float) -> None:
        self._reporting = reporting
        self._within_s = within_s
        # From the start, so that a reading without them means an older gateway and not peace.
        self._refused = dict.fromkeys((fault.value for fault in EnvelopeFault), 0)

    async def opened(self, caller: Reader, scope: StreamScope, *, after: int) -> None:
        """Unavailable `not-on-record` when Relay does not have it in time."""
        wanted = [f"source={each}" for each in sorted(scope.sources)]
        wanted += [f"type={each}" for each in sorted(scope.families)]
        event = StreamOpened(
            tenant=caller.tenant,
            detail=f"{caller.peer.identity.spiffe_id}, serial {caller.peer.cert_serial}, after {after}"
            + "".join(f", {each}" for each in wanted),
        )
        await self._reporting.record_at_relay(event, within_s=self._within_s)

    async def refused(self, caller: Reader, refused: EnvelopeRefused) -> None:
        """An envelope that was not handed on. The stream has ended already, so that Relay is away changes nothing."""
        outcome = refused.fault.value
        self._refused[outcome] += 1
        try:
            await self._reporting.record_at_relay(
                StreamVerificationFailed(tenant=caller.tenant, reason=outcome, detail=str(refused)),
                within_s=self._within_s,
            )
        except SnavioError:
            # It is in the journal, and travels when Relay is back.
            return

    def counters(self) -> dict[str, int]:
        """Refused envelopes by outcome, under their catalogued name."""
        return {
            f'sse_envelope_verification_failures_total{{outcome="{outcome}"}}': count
            for outcome, count in self._refused.items()
        }
