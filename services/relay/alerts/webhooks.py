"""Sends an alert as a webhook: one POST, signed as Standard Webhooks says, to an address that was checked.

Never sends without a signature, and never shows a secret but in the answer to the call that made it.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from services.relay.alerts.contents import body
from services.relay.alerts.webhook_egress import WebhookEgress
from snavio.clock import Clock
from snavio.domain.directory import AlertChannel
from snavio.errors import Unavailable
from snavio.ports.alert_store import AlertMessage, AlertStore, SigningSecret

if TYPE_CHECKING:
    from snavio.egress.requests import Egress

SECRET_BYTES: Final = 32
OVERLAP_NS: Final = 24 * 3600 * 1_000_000_000
"""A replaced secret signs too for so long, so that its receiver can take the new one in its own time."""
PREFIX: Final = "whsec_"


class AlertWebhooks:
    """Lives on one event loop."""

    def __init__(self, egress: WebhookEgress | Egress, store: AlertStore, *, clock: Clock) -> None:
        self._egress = egress
        self._store = store
        self._clock = clock
        self._secrets = asyncio.Lock()
        """Of two that make one, the second would take back what the first has shown or signed with."""

    async def send(self, tenant: str, channel: AlertChannel, message: AlertMessage) -> None:
        """Deliver it; NotAllowed or Unavailable, with the reason, if it was not taken."""
        secret = await self._secret(tenant, channel.name)
        payload = body(message)
        # Signed at the moment of the attempt: receivers refuse what is older than minutes.
        now = self._clock.unix_ns()
        answer = await self._egress.request(
            "POST",
            channel.address,
            body=payload,
            headers={
                "content-type": "application/json",
                "webhook-id": message.alert_id,
                "webhook-timestamp": str(now // 1_000_000_000),
                "webhook-signature": _signatures(secret, message.alert_id, payload, now),
            },
        )
        if not 200 <= answer.status < 300:
            raise Unavailable(f"The receiver answered {answer.status}.", reason=f"http-{answer.status}")

    async def rotate(self, tenant: str, channel: str) -> tuple[str, int]:
        """A new secret, which is shown this once, and until when the one before counts too; 0 if there was none."""
        fresh = secrets.token_bytes(SECRET_BYTES)
        async with self._secrets:
            known = await self._store.secret(tenant, channel)
            until = self._clock.unix_ns() + OVERLAP_NS if known is not None else 0
            await self._store.keep_secret(
                tenant, channel, SigningSecret(fresh, known.current if known is not None else b"", until)
            )
        return PREFIX + _base64(fresh), until

    async def _secret(self, tenant: str, channel: str) -> SigningSecret:
        async with self._secrets:
            found = await self._store.secret(tenant, channel)
            if found is None:
                # Nobody can verify it before it is shown by a rotation; it is signed all the same.
                found = SigningSecret(secrets.token_bytes(SECRET_BYTES))
                await self._store.keep_secret(tenant, channel, found)
        return found


def _signatures(secret: SigningSecret, alert_id: str, payload: bytes, now: int) -> str:
    # The library takes a time without a zone for UTC.
    at = datetime.fromtimestamp(now // 1_000_000_000, tz=UTC).replace(tzinfo=None)
    keys = [secret.current]
    if secret.previous and now < secret.previous_until_unix_ns:
        keys.append(secret.previous)
    # Here: it brings an HTTP client of its own, which Relay does not need to start.
    from standardwebhooks.webhooks import Webhook

    return " ".join(Webhook(key).sign(alert_id, at, payload.decode()) for key in keys)


def _base64(raw: bytes) -> str:
    from base64 import b64encode

    return b64encode(raw).decode()
