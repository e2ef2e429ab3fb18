"""A Signer of tenants' keys in memory with real keys, and a reader that believes nothing that it has not verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from services.relay.tenant_keys import TenantAnswer, TenantOrder, scope_of
from snavio.clock import Clock
from snavio.domain.signing_scope import Pair, Scope, provision, rotate_scope
from snavio.domain.stream import GENESIS
from snavio.errors import Conflict, NotFound, Unavailable
from snavio.native import ed25519_public_key, ed25519_sign
from snavio.ports.tenant_streams import TenantStreams
from snavio.signed.stream_envelope import chained_digest, decoded, envelope_verified, signed_form
from snavio.signed.verification import VerifyingKey

SECOND_NS = 1_000_000_000


@dataclass
class TenantSigner:
    """The domain's own scopes and rotations, without a process around them."""

    clock: Clock
    scopes: dict[str, Scope] = field(default_factory=dict)
    away: bool = False
    lying: str = ""
    """The tenant whose signatures are bad."""
    calls: int = 0
    _made: int = 0

    def _pair(self) -> Pair:
        self._made += 1
        seed = sha256(b"pair %d" % self._made).digest()
        return Pair(ed25519_public_key(seed), seed)

    def make(self, tenant: str) -> None:
        self.scopes.setdefault(tenant, provision(scope_of(tenant), self._pair(), now_ns=self.clock.unix_ns()))

    def rotate(self, tenant: str, *, emergency: bool = False) -> None:
        self.scopes[tenant] = rotate_scope(
            self.scopes[tenant],
            self._pair(),
            now_ns=self.clock.unix_ns(),
            delay_ns=60 * SECOND_NS,
            overlap_ns=60 * SECOND_NS,
            emergency=emergency,
        )

    async def sign(self, orders: Sequence[TenantOrder]) -> list[TenantAnswer]:
        self._reach()
        return [self._one(order) for order in orders]

    def _one(self, order: TenantOrder) -> TenantAnswer:
        scope = self.scopes.get(order.tenant)
        if scope is None:
            return TenantAnswer("", (), "not-provisioned")
        try:
            key = scope.signer(order.key_id, self.clock.unix_ns())
        except (Conflict, NotFound) as error:
            return TenantAnswer("", (), error.reason)
        seed = bytes(32) if order.tenant == self.lying else key.seed
        return TenantAnswer(key.key_id, tuple(ed25519_sign(seed, message) for message in order.messages), "")

    async def provision(self, tenant: str) -> None:
        self._reach()
        self.make(tenant)

    async def ever(self, tenant: str) -> Sequence[VerifyingKey]:
        self._reach()
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_ns, key.valid_until_ns)
            for key in self.scopes[tenant].ever()
        ]

    def _reach(self) -> None:
        self.calls += 1
        if self.away:
            raise Unavailable("Signer is away.")


async def verified_events(
    streams: TenantStreams, signing: TenantSigner, tenant: str, *, after: int | None = None
) -> list[dict[str, Any]]:
    """Every event of the stream, or of what comes after a number; AssertionError when the chain does not hold."""
    window = await streams.window(tenant)
    start = window.low if after is None else after
    part = await streams.read(tenant, after=start, limit=100_000, max_bytes=1 << 30)
    keys = await signing.ever(tenant)
    events: list[dict[str, Any]] = []
    seq, prev = start, None if start > window.epoch << 40 else GENESIS
    seen: set[str] = set()
    for entry in part.entries:
        envelope = decoded(entry.body)
        form = signed_form(envelope)
        assert envelope.scope == scope_of(tenant)
        assert envelope_verified(envelope, form, keys), "a signature does not fit"
        assert envelope.seq == entry.seq == seq + 1, "a gap"
        assert prev is None or envelope.prev == prev, "the chain is broken"
        assert envelope.envelope_id not in seen, "an id came again"
        seen.add(envelope.envelope_id)
        seq, prev = envelope.seq, chained_digest(form)
        assert prev == entry.digest
        events += orjson.loads(entry.body)["payload"]["events"]
    assert seq == window.high and prev in (None, window.head)
    return events
