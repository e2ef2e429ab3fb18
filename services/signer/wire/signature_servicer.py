"""The wire face of Ed25519 scopes, and of the key that opens Signer's own snapshots.

Never answers with anything that is not public, except signatures, and to Shield the key of SnapshotKey.
"""

from __future__ import annotations

from services.signer.keys.key_snapshots import KeySnapshots
from services.signer.keys.signatures import Signatures, SigningOrder, require_may_read
from snavio.clock import Clock
from snavio.domain.signing_scope import PLATFORM, Scope
from snavio.rpc.server import Call, Methods
from snavio.v1 import signer_pb2 as wire


class SignatureServicer:
    """The methods of `snavio.v1.Signer` that are about Ed25519 keys."""

    def __init__(self, *, signatures: Signatures, snapshots: KeySnapshots, clock: Clock) -> None:
        self._signatures = signatures
        self._snapshots = snapshots
        self._clock = clock

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        at = "/snavio.v1.Signer/"
        methods.unary(at + "ProvisionScope", self.provision_scope, wire.ProvisionScopeRequest)
        methods.unary(at + "RotateScope", self.rotate_scope, wire.RotateScopeRequest)
        methods.unary(at + "Sign", self.sign, wire.SignRequest)
        methods.unary(at + "SignMany", self.sign_many, wire.SignManyRequest)
        methods.unary(at + "SnapshotKey", self.snapshot_key, wire.SnapshotKeyRequest)
        methods.unary(at + "GetPublicKeys", self.get_public_keys, wire.GetPublicKeysRequest)

    async def provision_scope(self, request: wire.ProvisionScopeRequest, call: Call) -> wire.PublicKeys:
        return self._public(await self._signatures.provision(request.scope, actor=str(call.peer.identity)))

    async def rotate_scope(self, request: wire.RotateScopeRequest, call: Call) -> wire.PublicKeys:
        scope = await self._signatures.rotate(
            request.scope, emergency=request.emergency, actor=str(call.peer.identity)
        )
        return self._public(scope)

    async def sign(self, request: wire.SignRequest, call: Call) -> wire.SignResponse:
        key_id, signed = await self._signatures.sign(
            request.scope, request.key_id, request.message, caller=call.peer.identity
        )
        return wire.SignResponse(key_id=key_id, signature=signed)

    async def sign_many(self, request: wire.SignManyRequest, call: Call) -> wire.SignManyResponse:
        orders = [SigningOrder(one.scope, one.key_id, list(one.message)) for one in request.scope]
        signed = await self._signatures.sign_many(orders, caller=call.peer.identity)
        return wire.SignManyResponse(
            scope=[
                wire.ScopeSignatures(key_id=one.key_id, signature=one.signatures, reason=one.reason)
                for one in signed
            ]
        )

    async def get_public_keys(self, request: wire.GetPublicKeysRequest, call: Call) -> wire.PublicKeys:
        require_may_read(call.peer.identity, request.scope)
        scope = await self._signatures.of(request.scope)
        answer = self._public(scope)
        if request.include_ended:
            known = {key.key_id for key in answer.key}
            for key in scope.ever():
                if key.key_id not in known:
                    answer.key.add(
                        key_id=key.key_id,
                        public_key=key.public_key,
                        valid_from_unix_ns=key.valid_from_ns,
                        valid_until_unix_ns=key.valid_until_ns,
                    )
        return answer

    async def snapshot_key(self, _request: wire.SnapshotKeyRequest, _call: Call) -> wire.SnapshotKeyResponse:
        platform = await self._signatures.provision(PLATFORM, actor="signer")
        return wire.SnapshotKeyResponse(
            key=await self._snapshots.opening_key(), platform=self._public(platform)
        )

    def _public(self, scope: Scope) -> wire.PublicKeys:
        now = self._clock.unix_ns()
        return wire.PublicKeys(
            scope=scope.name,
            key=[
                wire.PublicKey(
                    key_id=key.key_id,
                    public_key=key.public_key,
                    valid_from_unix_ns=key.valid_from_ns,
                    valid_until_unix_ns=key.valid_until_ns,
                    signs_from_unix_ns=key.signs_from_ns,
                )
                for key in scope.verifying(now)
            ],
            active_key_id=scope.active(now).key_id,
        )
