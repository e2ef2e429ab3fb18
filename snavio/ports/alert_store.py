"""Alerts that were raised, and how far each came on its way to its channels; one owner.

Every method is one step: it happened in whole and is durable when it returns, or nothing of it happened. Bounded for
all and for each tenant. Where there is no room for a message its count stays in its group and is told later; what
was delivered goes first. Never forgets a message that is still on its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from snavio.domain.alerts import Occurrence


class AlertState(StrEnum):
    """The state of a message."""

    WAITING = "waiting"
    """Its channels are not chosen yet."""
    SENDING = "sending"
    DELIVERED = "delivered"
    """At least one channel has it, and none is being tried."""
    UNROUTED = "unrouted"
    """No channel has it: it is for the operators to follow up."""
    MUTED = "muted"


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """One message: the first of its group, or an update with what came since."""

    alert_id: str
    tenant: str
    event: str
    reason: str
    count: int
    total: int
    """Of the group, this message's included."""
    update: int
    """0 for the first message of a group, then 1, 2 …"""
    created_unix_ns: int
    first_unix_ns: int
    last_unix_ns: int
    sample: Mapping[str, str] = field(default_factory=dict)
    state: AlertState = AlertState.WAITING
    why: str = ""
    """Of an unrouted message: why."""
    acked_by: str = ""
    acked_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class AlertDelivery:
    """A message that a channel is to get."""

    message: AlertMessage
    channel: str
    attempts: int
    first_attempt_unix_ns: int


@dataclass(frozen=True, slots=True)
class ChannelProgress:
    """One channel's part of a message."""

    channel: str
    state: str
    """`pending`, `delivered` or `given-up`."""
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class AlertCounts:
    """Sizes of the store."""

    messages: int
    unrouted: int
    """Of them, those that nobody acknowledged."""
    pending: int
    """Deliveries that are being tried."""
    groups: int
    full: bool


@dataclass(frozen=True, slots=True)
class Mute:
    """An event that a tenant does not want to hear of until then."""

    tenant: str
    event: str
    until_unix_ns: int
    by: str


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """The secret of a webhook, with the one before while both count."""

    current: bytes = field(repr=False)
    previous: bytes = field(default=b"", repr=False)
    previous_until_unix_ns: int = 0


class AlertStore(Protocol):
    """See the module. Unavailable when it cannot be written now."""

    async def noted_through(self) -> int:
        """The outbox's page up to which occurrences were noted."""
        ...

    async def note(self, occurrences: Sequence[Occurrence], *, now: int, page_id: int = 0) -> int:
        """Add occurrences to their groups, and tell those that are new; the number of messages.

        With `page_id` they are those of pages up to it, and are ignored if those were noted before.
        """
        ...

    async def rewind(self) -> None:
        """The outbox is another one: its pages are new again."""
        ...

    async def look(self, now: int) -> int:
        """End windows that are over: tell what is pending, forget groups where nothing is. The number of messages."""
        ...

    async def waiting(self, *, limit: int) -> list[AlertMessage]:
        """Messages whose channels are not chosen, oldest first."""
        ...

    async def route(self, alert_id: str, channels: Sequence[str], *, now: int, why: str = "") -> None:
        """Choose the channels of a message; without any it is unrouted, and `why` says so."""
        ...

    async def due(self, now: int, *, limit: int, per_channel: int) -> list[AlertDelivery]:
        """Deliveries whose time has come, at most so many of each channel, channels in turns."""
        ...

    async def delivered(self, alert_id: str, channel: str, *, now: int) -> None:
        """The channel has it."""
        ...

    async def failed(
        self, alert_id: str, channel: str, *, now: int, again_unix_ns: int | None, error: str
    ) -> bool:
        """An attempt failed: try again at that time, or never. True if the message is unrouted by this."""
        ...

    async def listed(
        self,
        *,
        tenant: str | None,
        unrouted: bool = False,
        open_only: bool = False,
        limit: int,
        before: str = "",
    ) -> list[tuple[AlertMessage, tuple[ChannelProgress, ...]]]:
        """Messages, newest first, of one tenant or of all."""
        ...

    async def ack(self, alert_ids: Sequence[str], *, tenant: str | None, by: str, now: int) -> int:
        """Acknowledge messages of a tenant, or of any; how many were not before."""
        ...

    async def mute(self, mute: Mute) -> None:
        """Do not deliver the tenant's alerts of an event until then; an end in the past lifts it."""
        ...

    async def mutes(self, now: int) -> list[Mute]:
        """Mutes that hold."""
        ...

    async def secret(self, tenant: str, channel: str) -> SigningSecret | None:
        """The signing secret of a webhook."""
        ...

    async def keep_secret(self, tenant: str, channel: str, secret: SigningSecret) -> None:
        """Store it."""
        ...

    async def prune(self, *, created_before_unix_ns: int, now: int) -> int:
        """Forget old messages that are on their way to nobody; their number."""
        ...

    async def counts(self) -> AlertCounts:
        """Sizes."""
        ...

    async def close(self) -> None:
        """Release it."""
        ...
