"""Statements about a tenant's stream, signed with the tenant's key: its readable part, and its state.

Never says anything that a reader could take for an envelope: a statement has a type of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from services.relay.tenant_keys import TenantOrder, TenantSigning, scope_of
from snavio.clock import Clock
from snavio.domain.stream import POSITION_TYPE, STATE_TYPE, Position
from snavio.errors import Conflict, NotFound
from snavio.native import canonical_json, ed25519_verify, format_timestamp
from snavio.ports.tenant_streams import TenantStreams

ATTEMPTS: Final = 3


async def _none(_tenant: str) -> dict[str, Any]:
    return {}


class Statements:
    """See the module."""

    def __init__(
        self,
        *,
        streams: TenantStreams,
        signing: TenantSigning,
        clock: Clock,
        members: Callable[[str], Awaitable[dict[str, Any]]] = _none,
    ) -> None:
        self._streams = streams
        self._more = members
        self._signing = signing
        self._clock = clock

    async def position(self, tenant: str, position: Position) -> bytes:
        """The position, signed. NotFound `not-provisioned` for a tenant without a key."""
        return await self._signed(tenant, {"type": POSITION_TYPE, **_members(position)})

    async def state(self, tenant: str, position: Position) -> bytes:
        """The position to go on from, the numbers of events by family, and the other members, signed."""
        counts = await self._streams.counts(tenant)
        more = await self._more(tenant)
        document = {**more, "type": STATE_TYPE, "position": _members(position), "events": dict(counts)}
        return await self._signed(tenant, document)

    async def _signed(self, tenant: str, members: dict[str, Any]) -> bytes:
        # The signed bytes contain the key's id; without messages Signer says which one signs now.
        for _ in range(ATTEMPTS):
            (asked,) = await self._signing.sign([TenantOrder(tenant)])
            if asked.reason:
                raise NotFound(f"{tenant} has no signing key yet.", reason=asked.reason)
            now = self._clock.unix_ns()
            document = {
                **members,
                "scope": scope_of(tenant),
                "key_id": asked.key_id,
                "issued_at": format_timestamp(now),
            }
            form = canonical_json(orjson.dumps(document))
            (answer,) = await self._signing.sign([TenantOrder(tenant, asked.key_id, (form,))])
            if answer.reason:
                continue
            keys = await self._signing.ever(tenant)
            (signature,) = answer.signatures
            if any(
                key.key_id == asked.key_id and ed25519_verify(key.public_key, form, signature) for key in keys
            ):
                return canonical_json(orjson.dumps({**document, "signature": signature.hex()}))
        raise Conflict("The signing key changes faster than it signs.", reason="signing-key-changes")


def _members(position: Position) -> dict[str, str]:
    return {
        "epoch": str(position.epoch),
        "low": str(position.low),
        "high": str(position.high),
        "head": position.head,
    }
