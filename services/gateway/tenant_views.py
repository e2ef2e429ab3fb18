"""A tenant's signed state, and the times of its keys.

Never shows a secret: of keys it has versions and times, for the tenant's own sources alone.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.callers import Callers
from services.gateway.positions import Positions
from snavio.errors import NotAllowed
from snavio.native import format_timestamp
from snavio.rpc.channel import MeshChannel
from snavio.v1.relay_pb2 import Alert, ListAlertsRequest, ListAlertsResponse
from snavio.v1.signer_pb2 import DescribeKeysetsRequest, DescribeKeysetsResponse, KeysetStatus, KeyState

STATE: Final = "GET /v1/tenants/{tenant}/state"
CONFIG: Final = "GET /v1/tenants/{tenant}/config"
ALERTS: Final = "GET /v1/tenants/{tenant}/alerts"
CALL_SECONDS: Final = 3.0
ALERT_PAGE: Final = 100
PAGE: Final = 500
MOST_SOURCES: Final = 10_000
UNDECIDED_NS: Final = (1 << 63) - 1
_HEADERS: Final = {"cache-control": "no-store"}


class TenantViews:
    """Answers one question at a time from Relay and Signer; keeps nothing."""

    def __init__(
        self, *, callers: Callers, positions: Positions, signer: MeshChannel, relay: MeshChannel
    ) -> None:
        self._callers = callers
        self._positions = positions
        self._signer = signer
        self._relay = relay

    async def state(self, request: Request) -> Response:
        """The signed state, for readers whose bookmark is too old."""
        caller = await self._callers.admit(request, STATE)
        if caller.capability:
            raise NotAllowed("A capability is for the stream, not for the state.", reason="cap-operation")
        return _json(await self._positions.state(caller.tenant))

    async def config(self, request: Request) -> Response:
        """Versions of the tenant's HMAC keys with their times, use and last poll."""
        caller = await self._callers.admit(request, CONFIG)
        if caller.capability:
            raise NotAllowed("A capability is for the stream, not for keys.", reason="cap-operation")
        keysets, more = await self._keysets(f"{caller.tenant}/")
        return _json(
            orjson.dumps(
                {"tenant": caller.tenant, "keysets": [_told(each) for each in keysets], "more": more}
            )
        )

    async def alerts(self, request: Request) -> Response:
        """The tenant's alerts; every one of them, also those that were mailed or posted."""
        caller = await self._callers.admit(request, ALERTS)
        if caller.capability:
            raise NotAllowed("A capability is for the stream, not for alerts.", reason="cap-operation")
        page = await self._relay.call(
            "/snavio.v1.Relay/ListAlerts",
            ListAlertsRequest(
                tenant=caller.tenant,
                open=request.query_params.get("open") == "true",
                before=request.query_params.get("before", "")[:64],
                limit=ALERT_PAGE,
            ),
            ListAlertsResponse,
            timeout_s=CALL_SECONDS,
        )
        document = {
            "tenant": caller.tenant,
            "alerts": [_alert(each) for each in page.alert],
            "more": page.more,
        }
        return _json(orjson.dumps(document))

    async def _keysets(self, prefix: str) -> tuple[list[KeysetStatus], bool]:
        found: list[KeysetStatus] = []
        after = prefix
        while len(found) < MOST_SOURCES:
            page = await self._signer.call(
                "/snavio.v1.Signer/DescribeKeysets",
                DescribeKeysetsRequest(after_source=after, limit=PAGE),
                DescribeKeysetsResponse,
                timeout_s=CALL_SECONDS,
            )
            # Ordered by source: the first of another tenant is behind the last of this one.
            own = [each for each in page.keyset if each.keyset.source.startswith(prefix)]
            found += own
            if not page.more or len(own) < len(page.keyset) or not page.keyset:
                return found, False
            after = page.keyset[-1].keyset.source
        return found, True


def _told(status: KeysetStatus) -> dict[str, Any]:
    return {
        "source": status.keyset.source,
        "primary": status.primary,
        "minimum": status.keyset.minimum or None,
        "time_of_last_config_poll": _time(status.last_poll_unix_ns),
        "next_rotation": _time(status.next_rotation_unix_ns),
        "versions": [
            {
                "version_id": version.version,
                "state": KeyState.Name(version.state).removeprefix("KEY_STATE_").lower(),
                "not_before": _time(version.not_before_unix_ns),
                "not_after": _time(version.not_after_unix_ns),
                "primary_from": _time(version.primary_from_unix_ns),
                "last_hour": use.last_hour,
                "last_day": use.last_day,
                "last_used": _time(use.last_used_unix_ns),
                "safe_to_retire": use.safe_to_retire,
            }
            for version, use in zip(status.keyset.version, status.use, strict=True)
        ],
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert_id": alert.alert_id,
        "event": alert.event,
        "reason": alert.reason,
        "summary": alert.summary,
        "critical": alert.critical,
        "count": alert.count,
        "total": alert.total,
        "update": alert.update,
        "created_at": _time(alert.created_unix_ns),
        "first_at": _time(alert.first_unix_ns),
        "last_at": _time(alert.last_unix_ns),
        "sample": dict(alert.sample),
        "acknowledged": bool(alert.acked_by),
        "channels": [
            {"channel": each.channel, "state": each.state, "attempts": each.attempts}
            for each in alert.channel
        ],
    }


def _time(unix_ns: int) -> str | None:
    return format_timestamp(unix_ns) if 0 < unix_ns < UNDECIDED_NS else None


def _json(body: bytes) -> Response:
    return Response(body, headers=_HEADERS, media_type="application/json")
