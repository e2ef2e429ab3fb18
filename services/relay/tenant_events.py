"""Decides which tenants an event that is no row belongs to, and in which words they get it.

Never gives a tenant an event that is the operators' alone, nor a field that the catalogue does not name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from snavio.domain.identity import valid_name
from snavio.native import canonical_json, format_timestamp
from snavio.telemetry.schema import (
    BY_NAME,
    DROPPED,
    EXECUTED_AFTER_REVOCATION,
    JOURNAL_GAP,
    ROUTE_HEALTH,
    SIGNING_KEY_ROTATED,
)

_ROTATION: Final = frozenset(
    {
        "event_id",
        "occurred_at",
        "domain_id",
        "scope_kind",
        "scope_id",
        "old_key_id",
        "new_key_id",
        "new_public_key",
        "valid_from",
        "opened_at",
        "closes_at",
    }
)
_GAP_OF: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,62}) epoch ([0-9]{1,19}):")
_FAMILIES: Final = ("command", "fairness", "secret", "telemetry")


@dataclass(frozen=True, slots=True)
class TenantEvent:
    """One event for one tenant; `body` is its canonical JSON."""

    tenant: str
    source: str
    family: str
    body: bytes


def family_of(name: str) -> str:
    """The family of an event's name; `audit` for names outside of the catalogue's four."""
    family = name.removeprefix("snavio.").partition(".")[0] if name.startswith("snavio.") else ""
    return family if family in _FAMILIES else "audit"


def tenant_of(source: str) -> str:
    """The tenant of `<tenant>/<service>`; empty for anything else."""
    tenant, _, service = source.partition("/")
    return tenant if service and valid_name(tenant) else ""


def events_for_tenants(
    name: str, at_unix_ns: int, fields: bytes, *, owner: Callable[[str], str]
) -> list[TenantEvent]:
    """The event for each tenant that it is about; none for operators' events, and for what cannot be read."""
    kind = BY_NAME.get(name)
    try:
        told = orjson.loads(fields)
    except ValueError:
        return []
    if kind is None or not isinstance(told, dict) or (kind.internal and name != SIGNING_KEY_ROTATED):
        return []
    known = _ROTATION if name == SIGNING_KEY_ROTATED else {*kind.fields, *kind.beyond, "count"}
    document: dict[str, Any] = {
        key: value for key, value in told.items() if key in known and value is not None
    }
    source = document.get("source", "")
    source = source if isinstance(source, str) else ""
    tenants: list[Any] = [tenant_of(source)]
    if name == SIGNING_KEY_ROTATED:
        tenants = [told.get("scope_id")] if told.get("scope_kind") == "tenant" else []
    elif name in (DROPPED, ROUTE_HEALTH):
        tenants = [told.get("tenant")]
    elif name == EXECUTED_AFTER_REVOCATION:
        # Whoever took the right away wants to hear of it, not only who used it.
        tenants = list(dict.fromkeys([*tenants, owner(str(told.get("target", "")))]))
    try:
        body = canonical_json(orjson.dumps({**document, "event": name, "at": format_timestamp(at_unix_ns)}))
    except (ValueError, TypeError):
        return []
    return [
        TenantEvent(tenant, source, family_of(name), body)
        for tenant in tenants
        if isinstance(tenant, str) and valid_name(tenant)
    ]


def gap_of(name: str, fields: bytes) -> tuple[str, int, int | None] | None:
    """(process, epoch, number of events) of a journal gap; None for any other event."""
    if name != JOURNAL_GAP:
        return None
    try:
        told = orjson.loads(fields)
        found = _GAP_OF.match(told["detail"])
        count = told.get("dropped_events")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return (found[1], int(found[2]), count if isinstance(count, int) else None) if found else None


def dropped(
    tenant: str, *, at_unix_ns: int, reason: str, events: int | None, age_s: float | None
) -> TenantEvent:
    """A statement to a tenant that events about it are missing; their number is null where nobody knows it."""
    document = {
        "event": DROPPED,
        "at": format_timestamp(at_unix_ns),
        "tenant": tenant,
        "dropped_events": events,
        "reason": reason,
        "queue_age_seconds": age_s,
    }
    return TenantEvent(tenant, "", family_of(DROPPED), canonical_json(orjson.dumps(document)))
