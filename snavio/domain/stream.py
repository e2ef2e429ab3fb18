"""The signed stream of a tenant, as values: envelopes, their chain, and positions that a reader can go on from.

Never takes a position for another one: whatever is not a plain number of the stream is refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from snavio.errors import BadRequest, Conflict

EPOCH_STRIDE: Final = 1 << 40
"""Numbers of one epoch; a new epoch begins above all numbers of those before it."""
MAX_SEQ: Final = (1 << 64) - 1
MAX_EPOCH: Final = MAX_SEQ // EPOCH_STRIDE
DIGITS: Final = len(str(MAX_SEQ))
TYPE_PREFIX: Final = "snavio.telemetry."
FAMILIES: Final = ("command", "fairness", "secret", "telemetry", "audit")
GENESIS: Final = ""
"""`prev` of an epoch's first envelope."""
DIGEST_PREFIX: Final = "b3:"
POSITION_TYPE: Final = "snavio.stream.position"
STATE_TYPE: Final = "snavio.stream.state"


class OutsideReplayWindow(Conflict):
    """A bookmark that is older than everything that is kept; the reader goes on from the tenant's state."""

    reason = "last_event_id_outside_replay_window"

    def __init__(self, low: int) -> None:
        super().__init__(
            f"Envelopes are kept from number {low} on; read the tenant's state and go on from it."
        )
        self.low = low


@dataclass(frozen=True, slots=True)
class Position:
    """The readable part of a stream. After `low` nothing is missing; `high` is the newest number, or where they begin.

    `low` is the lowest bookmark that a reader may have: the number before the oldest envelope that is kept.
    """

    epoch: int
    low: int
    high: int
    head: str = GENESIS
    """Digest of envelope `high`, `prev` of the next one; empty where the epoch has none yet."""

    @property
    def next_seq(self) -> int:
        """The number of the next envelope."""
        return self.high + 1


@dataclass(frozen=True, slots=True)
class SealedEnvelope:
    """One signed link of a tenant's chain. The signature is over its canonical form without `signature`."""

    envelope_id: str
    """UUIDv7."""
    type: str
    """`snavio.telemetry.<family>`."""
    scope: str
    """`tenant:<id>`."""
    key_id: str
    issued_at: str
    """RFC 3339 with nine digits."""
    epoch: int
    seq: int
    prev: str
    """`b3:` and the hex of BLAKE3 over the signed form of the one before; empty for an epoch's first."""
    payload: Mapping[str, Any]
    """`source` and `events`."""
    signature: str = ""
    """Ed25519, 128 hex digits."""

    @property
    def family(self) -> str:
        """Such as `command`."""
        return self.type.removeprefix(TYPE_PREFIX)

    @property
    def tenant(self) -> str:
        """The tenant of its scope."""
        return self.scope.removeprefix("tenant:")

    def document(self, *, signed: bool = True) -> dict[str, Any]:
        """Its members. `epoch` and `seq` are text, because a JSON number above 2^53 is not exact everywhere."""
        members: dict[str, Any] = {
            "id": self.envelope_id,
            "type": self.type,
            "scope": self.scope,
            "key_id": self.key_id,
            "issued_at": self.issued_at,
            "epoch": str(self.epoch),
            "seq": str(self.seq),
            "prev": self.prev,
            "payload": dict(self.payload),
        }
        if signed:
            members["signature"] = self.signature
        return members

    def with_signature(self, signature: bytes) -> Self:
        """The same, signed."""
        return replace(self, signature=signature.hex())


def begin_epoch(epoch: int) -> Position:
    """The position of an epoch without envelopes."""
    if not 1 <= epoch <= MAX_EPOCH:
        raise BadRequest(f"epoch: 1 to {MAX_EPOCH}.", reason="bad-field")
    base = epoch * EPOCH_STRIDE
    return Position(epoch, low=base, high=base)


def read_seq(text: str) -> int | None:
    """The number that these ASCII digits are, at most 2^64-1; None for any other text."""
    # `int` would also take signs, spaces, underscores and the digits of other scripts.
    if not 1 <= len(text) <= DIGITS or not text.isascii() or not text.isdigit():
        return None
    number = int(text)
    return number if number <= MAX_SEQ else None


def resume(header: str | None, low: int, high: int) -> int:
    """The number to read from, given a `Last-Event-ID`.

    Without one, what comes next; with a number from `low` on, the one after it, also if that is not there yet.
    OutsideReplayWindow below `low`, and BadRequest `bad-last-event-id` for anything else.
    """
    if header is None or header == "":
        return high + 1
    number = read_seq(header)
    if number is None:
        raise BadRequest(
            "Last-Event-ID: the number of an envelope, in digits, at most 2^64-1.", reason="bad-last-event-id"
        )
    if number < low:
        raise OutsideReplayWindow(low)
    return number + 1


def read_envelope(document: Mapping[str, Any]) -> SealedEnvelope:
    """The envelope of a parsed document; BadRequest `bad-envelope` for any other form. Checks no signature."""
    texts = ("id", "type", "scope", "key_id", "issued_at", "epoch", "seq", "prev", "signature")
    if set(document) != {*texts, "payload"}:
        raise _malformed("other members than an envelope's")
    values = {name: document[name] for name in texts}
    payload = document["payload"]
    if not all(isinstance(value, str) for value in values.values()) or not isinstance(payload, Mapping):
        raise _malformed("a member of another kind")
    epoch, seq = read_seq(values["epoch"]), read_seq(values["seq"])
    if epoch is None or seq is None or seq // EPOCH_STRIDE != epoch or seq % EPOCH_STRIDE == 0:
        raise _malformed("epoch and seq do not belong together")
    # A second spelling of a number would be a second text with the same meaning.
    if str(epoch) != values["epoch"] or str(seq) != values["seq"]:
        raise _malformed("a number with leading zeros")
    events = payload.get("events")
    if not isinstance(events, list) or not isinstance(payload.get("source"), str):
        raise _malformed("payload without source and events")
    return SealedEnvelope(
        envelope_id=values["id"],
        type=values["type"],
        scope=values["scope"],
        key_id=values["key_id"],
        issued_at=values["issued_at"],
        epoch=epoch,
        seq=seq,
        prev=values["prev"],
        payload=payload,
        signature=values["signature"],
    )


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"This is not an envelope: {why}.", reason="bad-envelope")
