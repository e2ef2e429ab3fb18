"""Entries of the directory as documents for programs and as words for people.

Never leaves a field out of a document because it has its default: a program would take it for unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from snavio.cli.render import time_text
from snavio.domain.directory.topic_rule import BOUNDS

if TYPE_CHECKING:
    from snavio.admin.entries import EntryDetails

PROFILES: Final = ("low", "critical", "moderate", "low", "sync")
QUEUES: Final = ("mailbox", "mailbox", "redis", "sqs")
LISTS: Final = ("", "warm-ban", "cold-only", "frozen")
CHANNELS: Final = ("", "dashboard", "email", "webhook")
STATES: Final = ("pending", "pending", "granted", "declined")


def entry_document(kind: str, value: Any) -> dict[str, Any]:
    """An entry as JSON, with the words of a registration file."""
    return _DOCUMENTS[kind](value)


def limit_words(limit: Mapping[str, Any] | None) -> str | None:
    """`1000 in 60 s, 50 a second`; None without a limit."""
    if limit is None:
        return None
    burst = f", {limit['burst']} a second" if limit["burst"] else ""
    shadow = ", counted only" if limit["shadow"] else ""
    return f"{limit['max']} in {limit['interval_seconds']} s{burst}{shadow}"


def origin(details: EntryDetails) -> dict[str, Any]:
    """When an entry was last written, by which author and why, as JSON."""
    return {
        "version": details.version,
        "since": time_text(details.at_unix_ns),
        "by": details.actor or None,
        "reason": details.reason or None,
    }


def key_words(kind: str, value: Any) -> str:
    """The name of an entry in one line, such as `acme/billing → discord-bot notify-user`."""
    match kind:
        case "tenant":
            return str(value.tenant)
        case "principal" | "service":
            return f"{value.tenant}/{getattr(value, kind)}"
        case "target":
            return str(value.target)
        case "route":
            return f"{value.target} {value.name}"
        case "acl" | "source_quota" | "access_request":
            return f"{value.source} → {value.target} {value.name}"
        case "alert_channel":
            return f"{value.tenant} {value.name}"
        case "topic_rule":
            return str(value.topic)
        case "endpoint":
            return f"{value.tenant} {value.route}"
        case "profile_limit":
            return f"{value.target} {PROFILES[value.profile]}"
        case "ban":
            where = f"{value.target} {value.name}".strip()
            return f"{LISTS[value.list]} {' on '.join(word for word in (value.source, where) if word)}"
        case "ban_proposal":
            return f"{value.proposal_id} about {value.source}"
        case _:
            return str(value.source)


def _route(route: Any) -> dict[str, Any]:
    limit = route.limit if route.HasField("limit") else None
    return {
        "target": route.target,
        "command": route.name,
        "profile": PROFILES[route.profile],
        "queue": QUEUES[route.queue_kind],
        "topic": route.topic,
        "dlq": route.dlq,
        "dedupe_mode": "strict" if route.dedupe_mode == 2 else "none",
        "dispatch_mode": "cold-only" if route.dispatch_mode == 2 else "adaptive",
        "expected_drain_seconds": route.expected_drain_seconds,
        "ttl_seconds": route.ttl_seconds,
        "ends": time_text(route.expires_unix_ns),
        "limit": None
        if limit is None
        else {
            "max": limit.max,
            "interval_seconds": limit.interval_seconds,
            "burst": limit.burst,
            "cooldown_seconds": limit.cooldown_seconds,
            "shadow": limit.shadow,
        },
    }


def _ban(ban: Any) -> dict[str, Any]:
    return {
        "list": LISTS[ban.list],
        "source": ban.source or None,
        "target": ban.target or None,
        "command": ban.name or None,
        "until": time_text(ban.until_unix_ns),
        "reason": ban.reason or None,
    }


def _request(asked: Any) -> dict[str, Any]:
    return {
        "source": asked.source,
        "target": asked.target,
        "command": asked.name,
        "state": STATES[asked.state],
        "reason": asked.reason,
    }


_DOCUMENTS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "tenant": lambda value: {"tenant": value.tenant},
    "principal": lambda value: {"tenant": value.tenant, "principal": value.principal},
    "service": lambda value: {
        "tenant": value.tenant,
        "service": value.service,
        "source": f"{value.tenant}/{value.service}",
        "principals": list(value.principal),
    },
    "target": lambda value: {"target": value.target, "tenant": value.tenant},
    "route": _route,
    "acl": lambda value: {"source": value.source, "target": value.target, "command": value.name},
    "access_request": _request,
    "source_quota": lambda value: {
        "source": value.source,
        "target": value.target,
        "command": value.name,
        "max": value.max,
        "interval_seconds": value.interval_seconds,
    },
    "alert_channel": lambda value: {
        "tenant": value.tenant,
        "name": value.name,
        "kind": CHANNELS[value.channel],
        "address": value.address or None,
    },
    "topic_rule": lambda value: {
        "topic": value.topic,
        "when_full": {1: "refuse", 2: "bury-oldest"}.get(value.when_full),
        **{rule: getattr(value, rule) for rule in BOUNDS if value.HasField(rule)},
    },
    "endpoint": lambda value: {
        "tenant": value.tenant,
        "route": value.route,
        "mode": {1: "pull", 2: "deliver", 3: "command"}.get(value.mode),
        "targets": list(value.target),
        "application": value.application or None,
        "endpoint_name": value.endpoint_name or None,
        "topics": list(value.topic),
        "fingerprint": value.fingerprint or None,
    },
    "ban": _ban,
    "suspension": lambda value: {
        "source": value.source,
        "until": time_text(value.until_unix_ns),
        "reason": value.reason or None,
    },
    "ban_proposal": lambda value: {
        "proposal_id": value.proposal_id,
        "source": value.source,
        "kind": value.kind,
        "until": time_text(value.ban_applied_until_unix_ns),
    },
}
