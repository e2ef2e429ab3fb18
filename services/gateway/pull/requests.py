"""Reads what workers ask for: strict JSON, so that a typo is an answer and not a default.

Never takes a field that it does not know, one that stands twice, or a second document behind the first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from services.gateway.pull.endpoints import MILLISECOND, PullLimits
from snavio.domain.message import MAX_REASON_BYTES
from snavio.edge import kinds

MAX_BODY_BYTES: Final = 256 << 10
MOST_DELAY_NS: Final = 43_200_000 * MILLISECOND


class InvalidRequest(Exception):
    """The mistake in a request, in one sentence."""


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Messages that a worker wants."""

    batch: int
    lease_ms: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Leases to settle; `single` when one was named by itself."""

    lease_ids: tuple[str, ...]
    single: bool
    delay_ms: int = 0
    dead: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Extend:
    """Leases to extend: `add` from the end that they have, otherwise from now."""

    lease_ids: tuple[str, ...]
    single: bool
    extend_ms: int
    add: bool


def read_dequeue(body: bytes, limits: PullLimits) -> Dequeue:
    """The body of a dequeue; an empty one asks for the defaults."""
    asked = _object(body, {"batch": int, "max_wait": str, "lease_ttl": str}, may_be_empty=True)
    return _dequeue(asked, limits)


def read_stream(query: bytes, limits: PullLimits) -> Dequeue:
    """The query of a stream."""
    asked: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=8)
    except ValueError:
        raise InvalidRequest("The query cannot be read.") from None
    for name, value in pairs:
        if name not in ("batch", "lease_ttl") or name in asked:
            raise InvalidRequest("The query takes `batch` and `lease_ttl`, each once.")
        if name == "batch":
            if not (value.isascii() and value.isdigit() and len(value) < 10):
                raise InvalidRequest("`batch` must be a number.")
            asked[name] = int(value)
        else:
            asked[name] = value
    return _dequeue(asked, limits)


def read_ack(body: bytes, limits: PullLimits) -> Settle:
    """The body of an ack."""
    asked = _object(body, {"lease_id": str, "lease_ids": list})
    ids, single = _lease_ids(asked, limits)
    return Settle(ids, single)


def read_nack(body: bytes, limits: PullLimits) -> Settle:
    """The body of a nack; with `dead` its delay does not matter."""
    asked = _object(body, {"lease_id": str, "lease_ids": list, "delay": str, "dead": bool, "reason": str})
    ids, single = _lease_ids(asked, limits)
    dead, reason = asked.get("dead", False), asked.get("reason", "")
    if len(reason.encode()) > MAX_REASON_BYTES:
        raise InvalidRequest(f"`reason` has at most {MAX_REASON_BYTES} bytes.")
    delay_ns = 0 if dead else _duration(asked, "delay") or 0
    if delay_ns > MOST_DELAY_NS:
        raise InvalidRequest(f"`delay` is at most {MOST_DELAY_NS // 3_600_000_000_000} hours.")
    return Settle(ids, single, delay_ns // MILLISECOND, dead, reason)


def read_extend(body: bytes, limits: PullLimits) -> Extend:
    """The body of an extend: `extend_by` adds to the end of the lease, `lease_ttl` counts from now."""
    asked = _object(body, {"lease_id": str, "lease_ids": list, "extend_by": str, "lease_ttl": str})
    ids, single = _lease_ids(asked, limits)
    if ("extend_by" in asked) == ("lease_ttl" in asked):
        raise InvalidRequest("Either `extend_by` or `lease_ttl` is needed.")
    add = "extend_by" in asked
    duration_ns = _duration(asked, "extend_by" if add else "lease_ttl")
    if not duration_ns:
        raise InvalidRequest("The extension must be longer than nothing.")
    return Extend(ids, single, limits.lease_ms(duration_ns), add)


def _dequeue(asked: dict[str, Any], limits: PullLimits) -> Dequeue:
    batch = asked.get("batch", 0)
    if batch < 0:
        raise InvalidRequest("`batch` must not be negative.")
    lease_ns = _duration(asked, "lease_ttl")
    if lease_ns == 0:
        raise InvalidRequest("`lease_ttl` must be longer than nothing.")
    wait_ns = _duration(asked, "max_wait")
    wait_ns = limits.default_wait_ns if wait_ns is None else wait_ns
    return Dequeue(
        min(batch or 1, limits.max_batch), limits.lease_ms(lease_ns), min(wait_ns, limits.max_wait_ns)
    )


def _lease_ids(asked: dict[str, Any], limits: PullLimits) -> tuple[tuple[str, ...], bool]:
    if ("lease_id" in asked) == ("lease_ids" in asked):
        raise InvalidRequest("Either `lease_id` or `lease_ids` is needed.")
    if "lease_id" in asked:
        if not asked["lease_id"]:
            raise InvalidRequest("`lease_id` is empty.")
        return (asked["lease_id"],), True
    ids = asked["lease_ids"]
    if not ids or not all(isinstance(one, str) and one for one in ids):
        raise InvalidRequest("`lease_ids` must be a list of ids.")
    if len(ids) > limits.max_lease_batch:
        raise InvalidRequest(f"`lease_ids` has at most {limits.max_lease_batch} entries.")
    return tuple(dict.fromkeys(ids)), False


def _duration(asked: dict[str, Any], name: str) -> int | None:
    text = asked.get(name)
    if text is None or text == "":
        return None
    try:
        return kinds.wait(text)
    except kinds.BadValue:
        raise InvalidRequest(f"`{name}` must be a duration such as 30s or 1m30s.") from None


def _object(body: bytes, fields: dict[str, type], *, may_be_empty: bool = False) -> dict[str, Any]:
    if may_be_empty and not body.strip():
        return {}
    try:
        asked = json.loads(body, object_pairs_hook=_once)
    except InvalidRequest:
        raise
    except (ValueError, RecursionError):
        raise InvalidRequest("The body must be one JSON object.") from None
    if not isinstance(asked, dict):
        raise InvalidRequest("The body must be one JSON object.")
    for name, value in list(asked.items()):
        kind = fields.get(name)
        if kind is None:
            raise InvalidRequest(
                f"The fields are {', '.join(f'`{each}`' for each in fields)}; there is another one."
            )
        if value is None:
            del asked[name]
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            words = {int: "a number", str: "text", list: "a list", bool: "true or false"}
            raise InvalidRequest(f"`{name}` must be {words[kind]}.")
        elif not all(map(_is_whole, value if isinstance(value, list) else [value])):
            raise InvalidRequest(f"`{name}` holds half a character.")
    return asked


def _is_whole(value: Any) -> bool:
    """False for text with half of a surrogate pair, which JSON can spell and no answer can repeat."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("A field stands twice.")
    return found
