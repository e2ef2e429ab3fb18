"""Signed statements about a tenant's stream: where it can be read from, and its state.

Never takes one kind of statement for another, nor an envelope for a statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from snavio.domain.stream import POSITION_TYPE, STATE_TYPE, Position, read_seq
from snavio.errors import IntegrityError
from snavio.native import canonical_json, ed25519_verify, parse_timestamp
from snavio.signed.verification import VerifyingKey


@dataclass(frozen=True, slots=True)
class StreamStatement:
    """A verified statement."""

    position: Position
    document: Mapping[str, Any] = field(repr=False)


def verified_position(body: bytes, *, tenant: str, keys: Sequence[VerifyingKey]) -> StreamStatement:
    """The statement of a position; IntegrityError for anything else."""
    document = _verified(body, POSITION_TYPE, tenant, keys)
    return StreamStatement(_position(document), document)


def verified_state(body: bytes, *, tenant: str, keys: Sequence[VerifyingKey]) -> StreamStatement:
    """The statement of a state; IntegrityError for anything else."""
    document = _verified(body, STATE_TYPE, tenant, keys)
    return StreamStatement(_position(document.get("position")), document)


def _verified(body: bytes, kind: str, tenant: str, keys: Sequence[VerifyingKey]) -> dict[str, Any]:
    try:
        document = orjson.loads(canonical_json(body))
        signature = bytes.fromhex(document.pop("signature"))
        issued_unix_ns = parse_timestamp(document["issued_at"])
        form = canonical_json(orjson.dumps(document))
        told = document["type"], document["scope"], document["key_id"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _refused() from None
    if told[:2] != (kind, f"tenant:{tenant}"):
        raise _refused()
    good = [key for key in keys if key.key_id == told[2] and key.good_at(issued_unix_ns)]
    if not any(ed25519_verify(key.public_key, form, signature) for key in good):
        raise _refused()
    found: dict[str, Any] = document
    return found


def _position(members: Any) -> Position:
    try:
        numbers = [read_seq(members[name]) for name in ("epoch", "low", "high")]
        head = members["head"]
    except (KeyError, TypeError, AttributeError):
        raise _refused() from None
    epoch, low, high = numbers
    if epoch is None or low is None or high is None or not isinstance(head, str) or low > high:
        raise _refused()
    return Position(epoch, low, high, head)


def _refused() -> IntegrityError:
    return IntegrityError("The statement about the stream cannot be believed.", reason="bad-statement")
