"""The way of an alert: noted with its count, told in windows, routed to channels, delivered, retried for a day.

Never forgets one that a kill interrupts: each step is durable before the next, and a delivery that was not recorded is
made again under the same id. What no channel took is the operators' to follow up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from services.relay.alerts.channels import AlertChannels
from services.relay.alerts.emails import AlertEmails, SmtpNotConfigured
from services.relay.alerts.webhooks import AlertWebhooks
from snavio.clock import Clock
from snavio.domain.alerts import (
    CRITICAL,
    GIVE_UP_NS,
    OPERATORS,
    UNROUTED,
    Occurrence,
    channels_for,
    retry_at,
)
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.errors import NotFound, Saturated, SnavioError, Unavailable
from snavio.host.background import background
from snavio.host.periodic import Periodic
from snavio.host.shares import HOLDER, Shares, default_share
from snavio.ports.alert_store import AlertCounts, AlertDelivery, AlertMessage, AlertState, AlertStore

LOOK_SECONDS: Final = 1.0
ROUTED_AT_ONCE: Final = 500
DELIVERIES: Final = 64
PER_CHANNEL: Final = 2
KEPT_NS: Final = 30 * 86_400 * 1_000_000_000
PRUNE_NS: Final = 600 * 1_000_000_000


class Alerting:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        store: AlertStore,
        channels: AlertChannels,
        webhooks: AlertWebhooks,
        emails: AlertEmails,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._channels = channels
        self._webhooks = webhooks
        self._emails = emails
        self._clock = clock
        self._jitter = jitter
        self.shares = Shares("alert_deliveries", default_share("alert_deliveries", DELIVERIES))
        self._under_way: set[tuple[str, str]] = set()
        self._pruned_unix_ns = 0
        self._turns = Periodic("alerts", self.turn, every_s=LOOK_SECONDS, longest_s=10.0)
        self._counts: Counter[str] = Counter()
        self._sizes = AlertCounts(0, 0, 0, 0, False)
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Deliver until `stop`."""
        self._turns.start(at_once=True)

    async def stop(self) -> None:
        """End; what is not recorded as delivered is delivered after the next start."""
        await self._turns.stop()

    def counters(self) -> dict[str, int]:
        """Counters of messages and attempts."""
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """Sizes of the store at the last turn."""
        sizes = self._sizes
        return {
            "messages": float(sizes.messages),
            "unrouted": float(sizes.unrouted),
            "pending": float(sizes.pending),
            "groups": float(sizes.groups),
            "full": float(sizes.full),
            "under_way": float(len(self._under_way)),
        }

    async def noted_through(self) -> int:
        """The page of the outbox up to which events were looked at."""
        return await self._store.noted_through()

    async def rewind(self) -> None:
        """The outbox is another one."""
        await self._store.rewind()

    async def note(self, occurrences: Sequence[Occurrence], *, page_id: int = 0) -> None:
        """Make occurrences durable; what is new is told soon."""
        made = await self._store.note(occurrences, now=self._clock.unix_ns(), page_id=page_id)
        for occurrence in occurrences:
            self._counts[f'alert_occurrences_total{{event="{occurrence.event}"}}'] += occurrence.count
        if made:
            self._turns.nudge()

    async def turn(self) -> None:
        """End windows, choose channels, begin deliveries; the deliveries end by themselves."""
        now = self._clock.unix_ns()
        made = await self._store.look(now)
        self._counts["alert_updates_total"] += made
        await self._route(now)
        await self._deliver(now)
        if now - self._pruned_unix_ns > PRUNE_NS:
            await self._store.prune(created_before_unix_ns=now - KEPT_NS, now=now)
            self._pruned_unix_ns = now
        self._sizes = await self._store.counts()

    async def test(self, tenant: str, channel: str) -> None:
        """Send a test by one channel, by the way that alerts go; raises what speaks against it."""
        found = self._channels.of(tenant).get(channel)
        if found is None:
            raise NotFound(f"{tenant or 'The operators'} have no channel {channel!r}.", reason="no-channel")
        from snavio.domain.alerts import TEST
        from snavio.native import uuid7

        now = self._clock.unix_ns()
        message = AlertMessage(uuid7(), tenant, TEST, "asked-for", 1, 1, 0, now, now, now)
        with self.shares.holding(tenant):
            HOLDER.set(tenant)
            await self._send(tenant, found, message)

    # -- routing ---------------------------------------------------------------------------------------

    async def _route(self, now: int) -> None:
        waiting = await self._store.waiting(limit=ROUTED_AT_ONCE)
        if not waiting:
            return
        muted = {(each.tenant, each.event) for each in await self._store.mutes(now)}
        for message in waiting:
            if not self._channels.known(message.tenant):
                continue
            if message.event not in CRITICAL and (message.tenant, message.event) in muted:
                await self._store.route(message.alert_id, (), now=now, why=AlertState.MUTED.value)
                continue
            names = channels_for(message.event, self._channels.routed(message.tenant))
            if not names and message.event not in CRITICAL and message.tenant != OPERATORS:
                # No channel wants it: it is kept, and can be read.
                await self._store.route(message.alert_id, (), now=now, why=AlertState.MUTED.value)
                continue
            await self._store.route(message.alert_id, names, now=now, why="" if names else "no-channel")
            if not names:
                await self._unrouted(message, "no-channel")

    async def _unrouted(self, message: AlertMessage, why: str) -> None:
        self._counts[f'alerts_unrouted_total{{event="{message.event}"}}'] += 1
        self._log.warning(
            "nobody was told", tenant=message.tenant, alert=message.alert_id, about=message.event, why=why
        )
        if message.tenant != OPERATORS:
            sample = {"tenant": message.tenant, "alert_id": message.alert_id, "why": why}
            at = message.created_unix_ns
            await self.note([Occurrence(OPERATORS, UNROUTED, message.event, 1, at, sample)])

    # -- deliveries ------------------------------------------------------------------------------------

    async def _deliver(self, now: int) -> None:
        for delivery in await self._store.due(now, limit=4 * DELIVERIES, per_channel=PER_CHANNEL):
            key = (delivery.message.alert_id, delivery.channel)
            if key in self._under_way or not self.shares.room(delivery.message.tenant):
                continue
            self._under_way.add(key)
            self.shares.take(delivery.message.tenant)
            background().once("alert delivery", self._attempt(delivery))

    async def _attempt(self, delivery: AlertDelivery) -> None:
        message, name = delivery.message, delivery.channel
        try:
            HOLDER.set(message.tenant)
            channel = self._channels.of(message.tenant).get(name)
            if channel is None:
                await self._give_up(message, name, "channel-gone")
                return
            try:
                await self._send(message.tenant, channel, message)
            except SmtpNotConfigured as error:
                await self._give_up(message, name, error.reason)
            except SnavioError as error:
                await self._again(delivery, error)
            except Exception as error:
                # Whatever it is, it waits as other failures do: at once again would be for ever.
                background().failed("alert delivery", error)
                await self._again(delivery, Unavailable("It could not be sent.", reason="internal"))
            else:
                await self._store.delivered(message.alert_id, name, now=self._clock.unix_ns())
                self._counts[f'alerts_delivered_total{{channel="{channel.channel.name.lower()}"}}'] += 1
        finally:
            self.shares.give_back(message.tenant)
            self._under_way.discard((message.alert_id, name))
            self._turns.nudge()

    async def _send(self, tenant: str, channel: AlertChannel, message: AlertMessage) -> None:
        match channel.channel:
            case ChannelKind.DASHBOARD:
                return  # It is kept, and read at the gateway.
            case ChannelKind.EMAIL:
                await self._emails.send(channel, message)
            case ChannelKind.WEBHOOK:
                await self._webhooks.send(tenant, channel, message)

    async def _again(self, delivery: AlertDelivery, error: SnavioError) -> None:
        now = self._clock.unix_ns()
        self._counts[f'alert_attempts_failed_total{{reason="{_word(error)}"}}'] += 1
        since = delivery.first_attempt_unix_ns or now
        if now - since >= GIVE_UP_NS and not isinstance(error, Saturated):
            await self._give_up(delivery.message, delivery.channel, error.reason)
            return
        again = retry_at(delivery.attempts + 1, now, self._jitter())
        await self._store.failed(
            delivery.message.alert_id,
            delivery.channel,
            now=now,
            again_unix_ns=again,
            error=f"{error.reason}: {error}",
        )

    async def _give_up(self, message: AlertMessage, channel: str, why: str) -> None:
        self._counts["alert_deliveries_given_up_total"] += 1
        now = self._clock.unix_ns()
        if await self._store.failed(message.alert_id, channel, now=now, again_unix_ns=None, error=why):
            await self._unrouted(message, why)


def _word(error: SnavioError) -> str:
    # A receiver's status is its own choice of a thousand labels: by class they are nine.
    reason = error.reason
    return f"{reason[:6]}xx" if reason.startswith("http-") else reason
