"""Sends each tenant's envelopes to its queue, under their own ids, in order.

Never holds up sealing or another tenant: a queue that takes nothing is left alone for a while, and what the stream no
longer keeps is skipped and told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from services.relay.stream_tails import StreamTails
from services.relay.undelivered import Undelivered
from snavio.clock import Clock
from snavio.domain.queue_address import telemetry_topic
from snavio.domain.stream import EPOCH_STRIDE, OutsideReplayWindow
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Conflict, IntegrityError, Saturated, SnavioError, Unavailable
from snavio.host.periodic import Periodic
from snavio.ports.tenant_streams import StreamEntry, TenantStreams
from snavio.rpc.channel import MeshChannel
from snavio.telemetry.events import Event, TelemetryDropped
from snavio.telemetry.stream_failures import failures_in
from snavio.v1.mailbox_pb2 import NewMessage, SendRequest, SendResponse

METHOD: Final = "/snavio.v1.Mailbox/Send"
LOOK_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 1.0
CALL_SECONDS: Final = 10.0
SEND_ENVELOPES: Final = 100
SEND_BYTES: Final = 900 << 10
"""Below what one request to the mailbox may have."""
FIRST_PAUSE_NS: Final = 5_000_000_000
LONGEST_PAUSE_NS: Final = 300_000_000_000
CONTENT_TYPE: Final = "application/json"
ALL: Final[frozenset[str]] = frozenset()


class QueueFeed:
    """Lives on one event loop; one round at a time."""

    def __init__(
        self,
        *,
        streams: TenantStreams,
        tails: StreamTails,
        mailbox: MeshChannel,
        tell: Callable[[Sequence[Event]], Awaitable[None]],
        undelivered: Undelivered,
        clock: Clock,
    ) -> None:
        self._undelivered = undelivered
        self._streams = streams
        self._tails = tails
        self._mailbox = mailbox
        self._tell = tell
        self._clock = clock
        self._through: dict[str, int] = {}
        # Until when a tenant's queue is left alone, and for how long the next time.
        self._paused: dict[str, tuple[int, int]] = {}
        self._rounds = Periodic(
            "telemetry queues", self.feed, every_s=LOOK_SECONDS, quiet_s=QUIET_SECONDS, longest_s=30.0
        )
        self._counts = dict.fromkeys(("sent", "known", "refused", "undelivered", "skipped", "paused"), 0)
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Send until `stop`."""
        self._through = dict(await self._streams.queued_through())
        self._rounds.start(at_once=True)

    async def stop(self) -> None:
        """End; what was not sent is sent after the next start."""
        await self._rounds.stop()

    def nudge(self) -> None:
        """Envelopes were appended."""
        self._rounds.nudge()

    def counters(self) -> dict[str, int]:
        """Envelopes by what became of them."""
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """Queues that take nothing now."""
        now = self._clock.mono_ns()
        return {"paused": float(sum(until > now for until, _ in self._paused.values()))}

    async def send_again(self, tenant: str, after: int) -> int:
        """Send the envelopes after a number again; how many there are. OutsideReplayWindow below the window."""
        position = await self._tails.position(tenant)
        if after < position.low:
            raise OutsideReplayWindow(position.low)
        if after > position.high:
            raise BadRequest(f"after: {tenant} has no envelope after {position.high}.", reason="bad-field")
        await self._streams.queued(tenant, after)
        self._through[tenant] = after
        self._paused.pop(tenant, None)
        self.nudge()
        return position.high - after

    async def feed(self) -> int:
        """Send what there is, tenant by tenant; the number of envelopes."""
        sent = 0
        now = self._clock.mono_ns()
        for tenant in await self._streams.tenants():
            until, pause = self._paused.get(tenant, (0, FIRST_PAUSE_NS))
            if until > now:
                continue
            try:
                sent += await self._feed_one(tenant)
                self._paused.pop(tenant, None)
            except (Saturated, Conflict, BadRequest, IntegrityError) as error:
                # This tenant's queue alone; the mailbox itself is there.
                self._paused[tenant] = (now + pause, min(2 * pause, LONGEST_PAUSE_NS))
                self._counts["paused"] += 1
                self._log.warning("a telemetry queue takes nothing", tenant=tenant, reason=error.reason)
        return sent

    async def _feed_one(self, tenant: str) -> int:
        sent = 0
        position = await self._tails.position(tenant)
        through = self._through.get(tenant, position.low)
        while through < (position := await self._tails.position(tenant)).high:
            if through < position.low:
                # The numbers of an epoch that has ended are not envelopes that anybody missed.
                missed = position.low - through if through // EPOCH_STRIDE == position.epoch else 0
                await self._skip(tenant, missed)
                through = position.low
            try:
                part, _ = await self._tails.after(
                    tenant, through, sources=ALL, families=ALL, limit=SEND_ENVELOPES, max_bytes=SEND_BYTES
                )
            except OutsideReplayWindow:
                continue
            await self._send(tenant, part.entries)
            through = self._through[tenant] = part.through
            await self._streams.queued(tenant, through)
            sent += len(part.entries)
        self._through[tenant] = max(through, self._through.get(tenant, 0))
        return sent

    async def _send(self, tenant: str, entries: Sequence[StreamEntry]) -> None:
        """Send entries; what is refused for good goes to the DLQ, and holds back none of the others."""
        try:
            codes = await self._sent(tenant, entries)
        except (BadRequest, Conflict) as error:
            if len(entries) > 1:
                # One of them is refused: each goes alone, so that it is that one.
                for entry in entries:
                    await self._send(tenant, [entry])
                return
            codes, reason = [Verdict.MALFORMED], error.reason
        else:
            reason = "other-content"
        if Verdict.SATURATED in codes:
            # Those before it may be stored: under the same ids they are known the next time.
            raise Saturated("The queue is full.", retry_after_ms=FIRST_PAUSE_NS // 1_000_000)
        self._counts["sent"] += codes.count(Verdict.DELIVERED)
        self._counts["known"] += codes.count(Verdict.DUPLICATE)
        for entry, code in zip(entries, codes, strict=True):
            if code not in (Verdict.DELIVERED, Verdict.DUPLICATE):
                self._counts["refused"] += 1
                kept = await self._undelivered.put(tenant, entry, reason)
                self._counts["undelivered"] += kept

    async def _sent(self, tenant: str, entries: Sequence[StreamEntry]) -> list[int]:
        answer = await self._mailbox.call(
            METHOD,
            SendRequest(
                topic=telemetry_topic(tenant),
                message=[
                    NewMessage(
                        payload=entry.body,
                        idem_key=entry.envelope_id,
                        content_type=CONTENT_TYPE,
                        attrs={
                            "source": entry.source,
                            "family": entry.family,
                            "seq": str(entry.seq),
                            "failures": str(failures_in(entry.body)),
                        },
                    )
                    for entry in entries
                ],
            ),
            SendResponse,
            timeout_s=CALL_SECONDS,
        )
        codes = list(answer.codes)
        if len(codes) != len(entries):
            raise Unavailable("The mailbox answered something else.")
        return codes

    async def _skip(self, tenant: str, missed: int) -> None:
        if missed <= 0:
            return
        self._counts["skipped"] += missed
        self._log.error("envelopes never reached their queue", tenant=tenant, envelopes=missed)
        try:
            await self._tell([TelemetryDropped(tenant, missed, "queue_unreachable", 0.0, None)])
        except SnavioError as error:
            self._log.error("not even told", tenant=tenant, reason=error.reason)
