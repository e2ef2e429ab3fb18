"""Channels by which a tenant receives alerts.

Never plain http, and never a password in an address: alerts name commands and sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final
from urllib.parse import urlsplit

from snavio.domain.alerts import TENANT_EVENTS
from snavio.domain.directory.rules import require, require_name

MAX_ADDRESS_LENGTH: Final = 512
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_URL = re.compile(r"[\x21-\x7e]+")


class ChannelKind(IntEnum):
    """Transport of an alert; same numbers as the wire's."""

    DASHBOARD = 1
    EMAIL = 2
    WEBHOOK = 3


@dataclass(frozen=True, slots=True)
class AlertChannel:
    """One channel to a tenant."""

    kind: ClassVar[str] = "alert_channel"
    tenant: str
    name: str
    channel: ChannelKind
    address: str = ""
    """Empty for the dashboard, a mailbox for email, an https URL for a webhook."""
    events: tuple[str, ...] = ()
    """Events of which it gets the alerts; without any, of all."""

    def __post_init__(self) -> None:
        require_name(self.tenant, "alert_channel.tenant")
        require_name(self.name, "alert_channel.name")
        match self.channel:
            case ChannelKind.DASHBOARD:
                fits, rule = self.address == "", "empty for the dashboard"
            case ChannelKind.EMAIL:
                fits, rule = _EMAIL.fullmatch(self.address) is not None, "an email address"
            case ChannelKind.WEBHOOK:
                fits, rule = _is_https(self.address), "an https URL with a host and without user or password"
        require(
            fits and len(self.address) <= MAX_ADDRESS_LENGTH,
            "alert_channel.address",
            f"{rule}, at most {MAX_ADDRESS_LENGTH} characters",
        )
        known = set(self.events) <= set(TENANT_EVENTS) and len(set(self.events)) == len(self.events)
        require(known, "alert_channel.events", f"different ones of {', '.join(TENANT_EVENTS)}")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.name)

    @property
    def parent(self) -> str:
        return self.tenant


def _is_https(address: str) -> bool:
    if _URL.fullmatch(address) is None:
        return False
    try:
        parts = urlsplit(address)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False
