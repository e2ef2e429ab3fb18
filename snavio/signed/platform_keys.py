"""The platform's Ed25519 keys, held by Signer: one to sign manifests, all of them to verify.

Never keeps a private key here, and never takes an unknown scope's keys for the platform's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from snavio.errors import NotFound, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.signed.verification import VerifyingKey
from snavio.v1.signer_pb2 import (
    GetPublicKeysRequest,
    ProvisionScopeRequest,
    PublicKeys,
    SignRequest,
    SignResponse,
)

PLATFORM: Final = "platform"
CALL_SECONDS: Final = 2.0


class PlatformKeys:
    """The calls to Signer that snapshots need."""

    def __init__(self, signer: MeshChannel) -> None:
        self._signer = signer

    async def sign(self, message: bytes) -> tuple[str, bytes]:
        """The id of the current signing key, and its signature; creates the first key if there is none."""
        try:
            answer = await self._signed(message)
        except NotFound as error:
            if error.reason != "not-provisioned":
                raise
            await self._signer.call(
                "/snavio.v1.Signer/ProvisionScope",
                ProvisionScopeRequest(scope=PLATFORM),
                PublicKeys,
                timeout_s=CALL_SECONDS,
            )
            answer = await self._signed(message)
        if len(answer.signature) != 1:
            raise Unavailable("Signer did not sign.")
        return answer.key_id, answer.signature[0]

    async def verifying(self) -> Sequence[VerifyingKey]:
        """Every key whose signatures are accepted now."""
        return await self._keys(include_ended=False)

    async def ever(self) -> Sequence[VerifyingKey]:
        """Those, and every key that ended in good order: for documents signed in its time, such as an archive."""
        return await self._keys(include_ended=True)

    async def _keys(self, *, include_ended: bool) -> Sequence[VerifyingKey]:
        answer = await self._signer.call(
            "/snavio.v1.Signer/GetPublicKeys",
            GetPublicKeysRequest(scope=PLATFORM, include_ended=include_ended),
            PublicKeys,
            timeout_s=CALL_SECONDS,
        )
        if answer.scope != PLATFORM:
            raise Unavailable("Signer answered for another scope.")
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
            for key in answer.key
        ]

    async def _signed(self, message: bytes) -> SignResponse:
        return await self._signer.call(
            "/snavio.v1.Signer/Sign",
            SignRequest(scope=PLATFORM, message=[message]),
            SignResponse,
            timeout_s=CALL_SECONDS,
        )
