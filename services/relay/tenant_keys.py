"""The signing keys of tenants at Signer: one call signs for many of them.

Never keeps a private key here, and never takes the keys of another scope for a tenant's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from snavio.errors import Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.signed.verification import VerifyingKey
from snavio.v1.signer_pb2 import (
    GetPublicKeysRequest,
    ProvisionScopeRequest,
    PublicKeys,
    ScopeMessages,
    SignManyRequest,
    SignManyResponse,
)

CALL_SECONDS: Final = 5.0
METHOD: Final = "/snavio.v1.Signer/"


def scope_of(tenant: str) -> str:
    """Such as `tenant:acme`."""
    return f"tenant:{tenant}"


@dataclass(frozen=True, slots=True)
class TenantOrder:
    """Messages to sign with a tenant's key; without a key id and messages, it asks which key signs now."""

    tenant: str
    key_id: str = ""
    messages: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantAnswer:
    """The key and the signatures, or the reason why there are none."""

    key_id: str
    signatures: tuple[bytes, ...]
    reason: str


class TenantSigning(Protocol):
    """Signer, as far as sealing needs it. Every call raises Unavailable while it is away."""

    async def sign(self, orders: Sequence[TenantOrder]) -> list[TenantAnswer]:
        """An answer for each order."""
        ...

    async def provision(self, tenant: str) -> None:
        """Create the tenant's first key. Idempotent."""
        ...

    async def ever(self, tenant: str) -> Sequence[VerifyingKey]:
        """Every key whose signatures count in its time; none that an emergency rotation ended."""
        ...


class TenantKeys:
    """A `TenantSigning` over mTLS."""

    def __init__(self, signer: MeshChannel) -> None:
        self._signer = signer

    async def sign(self, orders: Sequence[TenantOrder]) -> list[TenantAnswer]:
        answer = await self._signer.call(
            METHOD + "SignMany",
            SignManyRequest(
                scope=[
                    ScopeMessages(scope=scope_of(order.tenant), key_id=order.key_id, message=order.messages)
                    for order in orders
                ]
            ),
            SignManyResponse,
            timeout_s=CALL_SECONDS,
        )
        if len(answer.scope) != len(orders):
            raise Unavailable("Signer answered something else.")
        return [TenantAnswer(one.key_id, tuple(one.signature), one.reason) for one in answer.scope]

    async def provision(self, tenant: str) -> None:
        await self._signer.call(
            METHOD + "ProvisionScope",
            ProvisionScopeRequest(scope=scope_of(tenant)),
            PublicKeys,
            timeout_s=CALL_SECONDS,
        )

    async def ever(self, tenant: str) -> Sequence[VerifyingKey]:
        answer = await self._signer.call(
            METHOD + "GetPublicKeys",
            GetPublicKeysRequest(scope=scope_of(tenant), include_ended=True),
            PublicKeys,
            timeout_s=CALL_SECONDS,
        )
        if answer.scope != scope_of(tenant):
            raise Unavailable("Signer answered for another scope.")
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
            for key in answer.key
        ]
