"""Alerts on the wire: for operators all of them, for a tenant its own.

Never tells a tenant of another's alert, not even by how it refuses, and never switches off what is critical.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from services.relay.alerts.alerting import Alerting
from services.relay.alerts.channels import AlertChannels
from services.relay.alerts.contents import summary
from services.relay.alerts.webhooks import AlertWebhooks
from snavio.clock import Clock
from snavio.domain.alerts import BY_EVENT, CRITICAL, OPERATORS
from snavio.domain.directory import ChannelKind
from snavio.domain.identity import Identity, IdentityKind, valid_name
from snavio.errors import BadRequest, NotAllowed, NotFound, Saturated, SnavioError
from snavio.ports.alert_store import AlertMessage, AlertStore, ChannelProgress, Mute
from snavio.rpc.server import Call, Methods
from snavio.v1 import relay_pb2 as wire

AT: Final = "/snavio.v1.Relay/"
MOST: Final = 500
USUAL: Final = 100
MAX_IDS: Final = 500
LONGEST_MUTE_NS: Final = 30 * 86_400 * 1_000_000_000
TESTS_PER_MINUTE: Final = 6
_MINUTE_NS: Final = 60 * 1_000_000_000


class AlertServicer:
    """The handlers of alerts."""

    def __init__(
        self,
        *,
        alerting: Alerting,
        store: AlertStore,
        channels: AlertChannels,
        webhooks: AlertWebhooks,
        clock: Clock,
    ) -> None:
        self._alerting = alerting
        self._store = store
        self._channels = channels
        self._webhooks = webhooks
        self._clock = clock
        # The minute, and the tests of each tenant in it.
        self._tests: tuple[int, dict[str, int]] = (0, {})

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        methods.unary(AT + "ListAlerts", self.list_alerts, wire.ListAlertsRequest)
        methods.unary(AT + "AckAlerts", self.ack_alerts, wire.AckAlertsRequest)
        methods.unary(AT + "TestAlertChannel", self.test_channel, wire.TestAlertChannelRequest)
        methods.unary(AT + "MuteAlerts", self.mute_alerts, wire.MuteAlertsRequest)
        methods.unary(AT + "RotateWebhookSecret", self.rotate_secret, wire.RotateWebhookSecretRequest)

    async def list_alerts(self, request: wire.ListAlertsRequest, call: Call) -> wire.ListAlertsResponse:
        limit = min(request.limit or USUAL, MOST)
        found = await self._store.listed(
            tenant=_seen_by(call.peer.identity, request.tenant),
            unrouted=request.unrouted,
            open_only=request.open,
            limit=limit + 1,
            before=request.before[:64],
        )
        return wire.ListAlertsResponse(
            alert=[_alert(message, progress) for message, progress in found[:limit]], more=len(found) > limit
        )

    async def ack_alerts(self, request: wire.AckAlertsRequest, call: Call) -> wire.AckAlertsResponse:
        if len(request.alert_id) > MAX_IDS:
            raise BadRequest(f"alert_id: must be at most {MAX_IDS}.", reason="bad-field")
        identity = call.peer.identity
        acked = await self._store.ack(
            list(request.alert_id),
            tenant=_seen_by(identity, ""),
            by=str(identity),
            now=self._clock.unix_ns(),
        )
        return wire.AckAlertsResponse(acked=acked)

    async def test_channel(
        self, request: wire.TestAlertChannelRequest, call: Call
    ) -> wire.TestAlertChannelResponse:
        tenant = _changed_by(call.peer.identity, request.tenant)
        self._require_channel(tenant, request.channel)
        self._count_test(tenant)
        began = time.monotonic()
        try:
            await self._alerting.test(tenant, request.channel)
        except SnavioError as error:
            return wire.TestAlertChannelResponse(
                reason=error.reason, detail=str(error), latency_ms=(time.monotonic() - began) * 1e3
            )
        return wire.TestAlertChannelResponse(delivered=True, latency_ms=(time.monotonic() - began) * 1e3)

    async def mute_alerts(self, request: wire.MuteAlertsRequest, call: Call) -> wire.MuteAlertsResponse:
        tenant, now = _changed_by(call.peer.identity, request.tenant), self._clock.unix_ns()
        if request.event:
            kind = BY_EVENT.get(request.event)
            if kind is None:
                raise BadRequest(
                    f"event: must be one of {', '.join(sorted(BY_EVENT))}.", reason="unknown-event"
                )
            if request.event in CRITICAL and request.until_unix_ns > now:
                raise BadRequest(
                    f"{request.event} cannot be switched off; acknowledge its alerts, or end what causes them.",
                    reason="critical-alert",
                )
            if request.until_unix_ns > now + LONGEST_MUTE_NS:
                raise BadRequest("until: must be within 30 days.", reason="bad-field")
            await self._store.mute(
                Mute(tenant, request.event, request.until_unix_ns, str(call.peer.identity))
            )
        held = [mute for mute in await self._store.mutes(now) if mute.tenant == tenant]
        return wire.MuteAlertsResponse(
            mute=[
                wire.MuteAlertsResponse.Mute(
                    tenant=mute.tenant, event=mute.event, until_unix_ns=mute.until_unix_ns, by=mute.by
                )
                for mute in held
            ]
        )

    async def rotate_secret(
        self, request: wire.RotateWebhookSecretRequest, call: Call
    ) -> wire.RotateWebhookSecretResponse:
        tenant = _changed_by(call.peer.identity, request.tenant)
        kind = self._require_channel(tenant, request.channel)
        if kind is not ChannelKind.WEBHOOK:
            raise BadRequest(
                f"{request.channel} is no webhook: nothing is signed there.", reason="no-webhook"
            )
        secret, until = await self._webhooks.rotate(tenant, request.channel)
        return wire.RotateWebhookSecretResponse(secret=secret, previous_until_unix_ns=until)

    def _require_channel(self, tenant: str, name: str) -> ChannelKind:
        found = self._channels.of(tenant).get(name)
        if found is None:
            known = ", ".join(sorted(self._channels.of(tenant))) or "none"
            raise NotFound(
                f"{tenant or 'The operators'} have no channel {name[:63]!r}; known are: {known}.",
                reason="no-channel",
            )
        return found.channel

    def _count_test(self, tenant: str) -> None:
        # A test goes out at once, to an address of the caller's choice.
        minute = self._clock.mono_ns() // _MINUTE_NS
        if self._tests[0] != minute:
            self._tests = (minute, {})
        counts = self._tests[1]
        counts[tenant] = counts.get(tenant, 0) + 1
        if counts[tenant] > TESTS_PER_MINUTE:
            raise Saturated(
                f"At most {TESTS_PER_MINUTE} tests a minute.", retry_after_ms=60_000, reason="too-many-tests"
            )


def _seen_by(identity: Identity, asked: str) -> str | None:
    """The tenant whose alerts the caller gets; None for all."""
    if asked and not valid_name(asked):
        raise BadRequest("tenant: not the name of a tenant.", reason="bad-field")
    if identity.kind is IdentityKind.PRINCIPAL:
        if asked and asked != identity.tenant:
            raise NotAllowed("A tenant sees its own alerts.", reason="not-your-tenant")
        return identity.tenant
    if identity.kind is IdentityKind.MESH and not asked:
        raise BadRequest("tenant: must be given.", reason="bad-field")
    return asked or None


def _changed_by(identity: Identity, asked: str) -> str:
    """The tenant whose settings the caller changes; operators' own without a name."""
    return _seen_by(identity, asked) or OPERATORS


def _alert(message: AlertMessage, progress: Sequence[ChannelProgress]) -> wire.Alert:
    kind = BY_EVENT.get(message.event)
    return wire.Alert(
        alert_id=message.alert_id,
        tenant=message.tenant,
        event=message.event,
        reason=message.reason,
        summary=summary(message),
        count=message.count,
        total=message.total,
        update=message.update,
        created_unix_ns=message.created_unix_ns,
        first_unix_ns=message.first_unix_ns,
        last_unix_ns=message.last_unix_ns,
        sample=dict(message.sample),
        state=message.state.value,
        why=message.why,
        acked_by=message.acked_by,
        critical=kind is not None and kind.critical,
        channel=[
            wire.AlertChannelProgress(
                channel=each.channel, state=each.state, attempts=each.attempts, error=each.error
            )
            for each in progress
        ],
    )
