"""An alert in words: the JSON document that email, webhook and dashboard carry, and its summary.

Never has more of an event than counts, names and a sample.
"""

from __future__ import annotations

from typing import Any

import orjson

from snavio.domain.alerts import BY_EVENT
from snavio.native import format_timestamp
from snavio.ports.alert_store import AlertMessage


def summary(message: AlertMessage) -> str:
    """One line."""
    kind = BY_EVENT.get(message.event)
    about = kind.summary if kind is not None else message.event
    who = message.tenant or "operators"
    more = f", {message.count} more" if message.update else ""
    times = more or (f", {message.count} times" if message.count > 1 else "")
    return f"[Snavio] {who}: {about} ({message.reason}){times}"


def document(message: AlertMessage) -> dict[str, Any]:
    """The alert as plain values."""
    kind = BY_EVENT.get(message.event)
    return {
        "alert_id": message.alert_id,
        "tenant": message.tenant or None,
        "event": message.event,
        "reason": message.reason,
        "summary": summary(message),
        "critical": kind is not None and kind.critical,
        "count": message.count,
        "total": message.total,
        "update": message.update,
        "first_at": format_timestamp(message.first_unix_ns),
        "last_at": format_timestamp(message.last_unix_ns),
        "sample": dict(message.sample),
    }


def body(message: AlertMessage) -> bytes:
    """As a webhook's body: what happened, when, and the alert."""
    return orjson.dumps(
        {
            "type": message.event,
            "timestamp": format_timestamp(message.created_unix_ns),
            "data": document(message),
        }
    )


def member(message: AlertMessage) -> dict[str, Any]:
    """The alert as a member of the tenant's signed state."""
    return {
        "alert_id": message.alert_id,
        "event": message.event,
        "reason": message.reason,
        "count": message.count,
        "total": message.total,
        "created_at": format_timestamp(message.created_unix_ns),
    }
