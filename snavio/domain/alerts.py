"""Alerts: what tenants and operators are told out of band, and how many messages a flood becomes.

The first occurrence is told at once, then one update per window with the count. Never loses a count: the sum over the
messages of a group is the number of its occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

FIRST_WINDOW_NS: Final = 60 * 1_000_000_000
WINDOW_NS: Final = 15 * 60 * 1_000_000_000
OPERATORS: Final = ""
"""The tenant of operators' alerts."""
OTHER: Final = "other"
"""Reason of a group that stands for many, where a tenant has more reasons than groups."""
MAX_SAMPLE: Final = 8
MAX_WORD: Final = 200


@dataclass(frozen=True, slots=True)
class AlertKind:
    """One event that raises alerts."""

    event: str
    summary: str
    """Completes `<tenant>: …`."""
    critical: bool = False
    """Cannot be disabled: without a channel that names it, it goes to every channel of the tenant."""
    operators: bool = False
    """For operators alone."""


INVALID: Final = "snavio.command.invalid"
DROPPED: Final = "snavio.telemetry.dropped"
KEY_EXPIRY: Final = "snavio.secret.key_expiry_imminent"
ROUTE_HEALTH: Final = "snavio.route.health"
UNROUTED: Final = "snavio.alert.unrouted"
TEST: Final = "snavio.alert.test"
SERVICE_AWAY: Final = "snavio.service.away"
BOUND_NEAR: Final = "snavio.store.near-bound"
CERTIFICATE_ENDING: Final = "snavio.certificate.ending"

KINDS: Final = (
    AlertKind(INVALID, "commands were refused as invalid", critical=True),
    AlertKind(DROPPED, "telemetry was dropped", critical=True),
    AlertKind(KEY_EXPIRY, "a key in use ends soon", critical=True),
    AlertKind("snavio.command.executed_after_acl_revoked", "commands went by a right that had been revoked"),
    AlertKind("snavio.command.conflict", "an id of a strict route came again with another payload"),
    AlertKind("snavio.fairness.warm-path-ban", "a source dominates a route and goes by Slow"),
    AlertKind("snavio.fairness.violation", "a source was refused because it dominates a saturated route"),
    AlertKind("snavio.fairness.abuse_detected", "a source was banned by the auditor"),
    AlertKind("snavio.mailbox.dlq-pruned", "a dead-letter queue lost messages to its age or depth"),
    AlertKind(ROUTE_HEALTH, "a route is not healthy"),
    AlertKind("snavio.snapshot.too_large", "a snapshot was too large and was not written", operators=True),
    AlertKind("snavio.snapshot.failed", "a snapshot could not be published", operators=True),
    AlertKind("snavio.snapshot.load_failed", "a snapshot was not believed", operators=True),
    AlertKind(
        "snavio.telemetry.journal_gap", "events of a process never reached the archive", operators=True
    ),
    AlertKind(
        "snavio.telemetry.publish_failed",
        "an envelope was refused by its tenant's queue for good",
        operators=True,
    ),
    AlertKind("snavio.stream.verification_failed", "an envelope could not be believed", operators=True),
    AlertKind("snavio.cache.expired", "commands were refused because a cache is out of date", operators=True),
    AlertKind(SERVICE_AWAY, "a service does not answer", operators=True),
    AlertKind(BOUND_NEAR, "a store or a share is nearly full", operators=True),
    AlertKind(CERTIFICATE_ENDING, "a certificate of the mesh ends soon", operators=True),
    AlertKind(UNROUTED, "an alert could not be delivered to its tenant", operators=True),
    AlertKind(TEST, "a test"),
)
BY_EVENT: Final[Mapping[str, AlertKind]] = {kind.event: kind for kind in KINDS}
CRITICAL: Final = frozenset(kind.event for kind in KINDS if kind.critical)
TENANT_EVENTS: Final = tuple(kind.event for kind in KINDS if not kind.operators and kind.event != TEST)
"""Events that a tenant's channel may name."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that a tenant, or the operators, are to hear of; `count` times."""

    tenant: str
    event: str
    reason: str
    count: int
    at_unix_ns: int
    sample: Mapping[str, str] = field(default_factory=dict)
    """A few words about one of them."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Its group."""
        return (self.tenant, self.event, self.reason)


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """Occurrences of one (tenant, event, reason) since the first of them."""

    key: tuple[str, str, str]
    opened_unix_ns: int
    window_ends_unix_ns: int
    first_unix_ns: int
    last_unix_ns: int
    pending: int
    """Not told yet."""
    told: int
    """Told in the messages so far."""
    messages: int = 0
    sample: Mapping[str, str] = field(default_factory=dict)


def merged(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """One occurrence per group, in the order of their first; words of samples within their bounds."""
    found: dict[tuple[str, str, str], Occurrence] = {}
    for each in occurrences:
        if (known := found.get(each.key)) is None:
            found[each.key] = replace(each, sample=bounded(each.sample))
        else:
            found[each.key] = replace(
                known,
                count=known.count + each.count,
                at_unix_ns=max(known.at_unix_ns, each.at_unix_ns),
            )
    return list(found.values())


def bounded(sample: Mapping[str, str]) -> dict[str, str]:
    """The sample without what a sender could make long."""
    return {key[:MAX_WORD]: value[:MAX_WORD] for key, value in list(sample.items())[:MAX_SAMPLE] if value}


def noted(group: AlertGroup | None, occurrence: Occurrence, now: int) -> AlertGroup:
    """The group with the occurrence in it."""
    if group is None:
        return AlertGroup(
            occurrence.key,
            now,
            now,
            occurrence.at_unix_ns,
            occurrence.at_unix_ns,
            occurrence.count,
            0,
            0,
            occurrence.sample,
        )
    return replace(
        group,
        last_unix_ns=max(group.last_unix_ns, occurrence.at_unix_ns),
        pending=group.pending + occurrence.count,
        sample=occurrence.sample or group.sample,
    )


def due(group: AlertGroup, now: int) -> bool:
    """True if the group's window is over: it is told, or forgotten."""
    return group.window_ends_unix_ns <= now


def told(group: AlertGroup, now: int) -> AlertGroup:
    """The group after the message about what was pending, with the next window."""
    window = FIRST_WINDOW_NS if group.messages == 0 else WINDOW_NS
    return replace(
        group,
        pending=0,
        told=group.told + group.pending,
        messages=group.messages + 1,
        window_ends_unix_ns=now + window,
    )


@dataclass(frozen=True, slots=True)
class RoutedChannel:
    """One channel of a tenant, as far as routing looks at it."""

    name: str
    events: tuple[str, ...] = ()
    """Events that it names; without any it gets all of them."""


def channels_for(event: str, channels: Sequence[RoutedChannel]) -> list[str]:
    """Names of the channels that get an alert."""
    named = [each.name for each in channels if not each.events or event in each.events]
    # What is critical cannot be switched off by naming other events everywhere.
    return named or ([each.name for each in channels] if event in CRITICAL else [])


FIRST_RETRY_NS: Final = 5 * 1_000_000_000
LONGEST_RETRY_NS: Final = 3600 * 1_000_000_000
GIVE_UP_NS: Final = 24 * 3600 * 1_000_000_000


def retry_at(attempts: int, now: int, jitter: float) -> int:
    """The time of the attempt after `attempts` failed ones; jitter in [0, 1) spreads and never doubles the wait."""
    pause = min(FIRST_RETRY_NS << min(max(attempts - 1, 0), 16), LONGEST_RETRY_NS)
    return now + round(pause * (0.75 + 0.5 * jitter))
