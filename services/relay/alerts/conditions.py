"""Decides which events raise an alert, for which tenants, and under which reason.

Never raises one for what the protocol does in its normal course, and never puts more of an event into an alert than a
few bounded words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from services.relay.tenant_events import tenant_of
from snavio.domain import alerts
from snavio.domain.alerts import BY_EVENT, OPERATORS, Occurrence
from snavio.domain.identity import valid_name
from snavio.telemetry import schema

Trouble = tuple[str, str, str, int, int, str, str, bytes]
"""Source, event, reason, count, time; target, command name and id of the first."""
# Every restart of Shield answers so once to each producer, which signs again.
_NORMAL: Final = frozenset({"wrong-audience"})
_FAILURES: Final[Mapping[str, str]] = {
    "fairness-violation": "snavio.fairness.violation",
    # Nobody is at home there: a route that was never made, or was deleted.
    "route-missing": alerts.ROUTE_HEALTH,
}
"""Failed commands that raise an alert, by reason."""
_SAMPLED: Final = (
    "source",
    "target",
    "command.name",
    "version_id",
    "detail",
    "topic",
    "state",
    "ban_applied_until",
    "evidence",
    "service",
)
_COUNTED: Final[Mapping[str, str]] = {schema.DROPPED: "dropped_events", schema.DLQ_PRUNED: "messages"}


def of_troubles(rows: Iterable[Trouble]) -> Iterator[Occurrence]:
    """Occurrences of refusals and bans, as the native cut counts them."""
    for source, event, reason, count, at_unix_ns, target, name, sample_id in rows:
        tenant = tenant_of(source)
        raised = _FAILURES.get(reason, "") if event == schema.FAILED else event
        if not tenant or raised not in BY_EVENT or reason in _NORMAL:
            continue
        sample = {"source": source, "target": target, "command.name": name}
        if any(sample_id):
            sample["command_id"] = _uuid(sample_id)
        yield Occurrence(tenant, raised, reason or "banned", count, at_unix_ns, sample)


def of_event(
    name: str, at_unix_ns: int, fields: bytes, *, owner: Callable[[str], str]
) -> Iterator[Occurrence]:
    """Occurrences of a rare event; none for those that raise no alert or cannot be read."""
    kind = BY_EVENT.get(name)
    if kind is None:
        return
    try:
        told = orjson.loads(fields)
    except ValueError:
        return
    if not isinstance(told, dict):
        return
    sample = {key: str(told[key]) for key in _SAMPLED if told.get(key) not in (None, "")}
    reason = _reason(name, told)
    if (name, reason) == (alerts.ROUTE_HEALTH, "healthy"):
        return
    for tenant in dict.fromkeys(_tenants(name, told, owner)):
        if kind.operators or valid_name(tenant):
            yield Occurrence(tenant, name, reason, _count(name, told), at_unix_ns, sample)


def of_drop(tenant: str, *, at_unix_ns: int, reason: str, events: int | None) -> Occurrence:
    """Events of a tenant are missing; where nobody knows how many, it is one occurrence."""
    return Occurrence(tenant, alerts.DROPPED, reason, events or 1, at_unix_ns)


def _tenants(name: str, told: Mapping[str, Any], owner: Callable[[str], str]) -> list[str]:
    if BY_EVENT[name].operators:
        return [OPERATORS]
    if name in (schema.DROPPED, alerts.ROUTE_HEALTH):
        return [str(told.get("tenant", ""))]
    if name == schema.DLQ_PRUNED:
        return [str(told.get("topic", "")).removeprefix("dlq/").partition("/")[0]]
    found = [tenant_of(str(told.get("source", "")))]
    if name == schema.EXECUTED_AFTER_REVOCATION:
        # Whoever took the right away wants to hear of it, not only who used it.
        found.append(owner(str(told.get("target", ""))))
    return found


def _reason(name: str, told: Mapping[str, Any]) -> str:
    for key in ("reason", "cause", "status"):
        if isinstance(word := told.get(key), str) and word:
            return word[: alerts.MAX_WORD]
    return name.rpartition(".")[2]


def _count(name: str, told: Mapping[str, Any]) -> int:
    count = told.get(_COUNTED.get(name, "count"))
    return count if isinstance(count, int) and 0 < count < 1 << 53 else 1


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
