"""Signed envelopes of a tenant, as Relay would seal them, for readers under test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from snavio.domain.stream import EPOCH_STRIDE, GENESIS, POSITION_TYPE, STATE_TYPE, Position, SealedEnvelope
from snavio.native import canonical_json, ed25519_public_key, ed25519_sign, format_timestamp, uuid7
from snavio.signed.stream_envelope import chained_digest, encoded, signed_form
from snavio.signed.verification import VerifyingKey

ISSUED_NS = 1_794_794_400_000_000_000


@dataclass
class EnvelopeMaker:
    """One tenant's chain."""

    tenant: str = "acme"
    epoch: int = 3
    seed: bytes = b"\x07" * 32
    key_id: str = "key-1"
    prev: str = GENESIS
    seq: int = 0
    made: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seq = self.seq or self.epoch * EPOCH_STRIDE

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        return [VerifyingKey(self.key_id, ed25519_public_key(self.seed), 0)]

    def unsigned(self, **changes: Any) -> SealedEnvelope:
        """The next one; nothing has changed."""
        made = SealedEnvelope(
            envelope_id=uuid7(),
            type="snavio.telemetry.command",
            scope=f"tenant:{self.tenant}",
            key_id=self.key_id,
            issued_at=format_timestamp(ISSUED_NS),
            epoch=self.epoch,
            seq=self.seq + 1,
            prev=self.prev,
            payload={"source": f"{self.tenant}/billing", "events": [{"event": "snavio.command.delivered"}]},
        )
        return replace(made, **changes)

    def sign(self, envelope: SealedEnvelope) -> bytes:
        return encoded(envelope.with_signature(ed25519_sign(self.seed, signed_form(envelope))))

    def next(self, **changes: Any) -> bytes:
        """The next envelope, in bytes; the chain goes on from it."""
        envelope = self.unsigned(**changes)
        self.seq, self.prev = envelope.seq, chained_digest(signed_form(envelope))
        self.made.append(self.sign(envelope))
        return self.made[-1]

    def position(self, *, low: int | None = None) -> Position:
        base = self.epoch * EPOCH_STRIDE
        return Position(self.epoch, base if low is None else low, self.seq, self.prev)

    def position_statement(self, position: Position, *, seed: bytes | None = None) -> bytes:
        return self._statement({"type": POSITION_TYPE, **_members(position)}, seed)

    def state_statement(self, position: Position, *, seed: bytes | None = None) -> bytes:
        members = {"type": STATE_TYPE, "position": _members(position), "events": {"command": 1}}
        return self._statement(members, seed)

    def _statement(self, members: dict[str, Any], seed: bytes | None) -> bytes:
        document = {
            **members,
            "scope": f"tenant:{self.tenant}",
            "key_id": self.key_id,
            "issued_at": format_timestamp(ISSUED_NS),
        }
        form = canonical_json(orjson.dumps(document))
        signature = ed25519_sign(seed or self.seed, form)
        return canonical_json(orjson.dumps({**document, "signature": signature.hex()}))


def _members(position: Position) -> dict[str, str]:
    return {
        "epoch": str(position.epoch),
        "low": str(position.low),
        "high": str(position.high),
        "head": position.head,
    }
