"""The way of webhooks out of Relay, opened when the first is sent.

Its HTTP library takes longer to import than all else of Relay's start, and most meshes send no webhook.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from services.relay.settings import RelaySettings
from snavio.egress.policy import EgressPolicy
from snavio.egress.resolving import lookup_shares

if TYPE_CHECKING:
    from snavio.egress.requests import Egress, EgressResponse


class WebhookEgress:
    """Requests under the policy of the settings, whose mistakes are told at the start."""

    def __init__(self, settings: RelaySettings) -> None:
        self._policy = EgressPolicy(allow=settings.webhook_allow.split(), deny=settings.webhook_deny.split())
        self._ca_file = Path(settings.webhook_ca_file) if settings.webhook_ca_file else None
        self.shares = lookup_shares()
        """Name look-ups under way."""
        self._opened: Egress | None = None

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> EgressResponse:
        """Send it and read the answer, whatever its status."""
        return await self._open().request(method, url, headers=headers, body=body)

    def counters(self) -> dict[str, int]:
        """Requests by outcome."""
        return {} if self._opened is None else self._opened.counters()

    async def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    def _open(self) -> Egress:
        if self._opened is None:
            from snavio.egress.requests import Egress

            self._opened = Egress(self._policy, ca_file=self._ca_file, shares=self.shares)
        return self._opened
