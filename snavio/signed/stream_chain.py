"""Verification of a tenant's envelopes one after the other: form, signature, order, chain.

Never accepts an envelope without a key of its own scope, and never one that leaves out or repeats a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from snavio.clock import Clock
from snavio.domain.stream import EPOCH_STRIDE, GENESIS, SealedEnvelope
from snavio.errors import BadRequest, IntegrityError
from snavio.rpc.channel import MeshChannel
from snavio.signed.stream_envelope import chained_digest, decoded, envelope_verified, form_within
from snavio.signed.verification import VerifyingKey
from snavio.v1.signer_pb2 import GetPublicKeysRequest, PublicKeys

ASK_QUIET_NS: Final = 1_000_000_000
"""At most one question for keys in this time: an unknown key id costs its sender nothing."""
KEYS_AGE_NS: Final = 300_000_000_000
"""After this the keys are asked for anew: one that an emergency rotation ended must not count for as long as a reader
lives, whatever the gateway says or leaves out."""
CALL_SECONDS: Final = 3.0
METHOD: Final = "/snavio.v1.Signer/GetPublicKeys"

StreamKeys = Callable[[], Awaitable[Sequence[VerifyingKey]]]
"""Every key of a tenant's scope that ended in good order or has not ended."""


class EnvelopeFault(StrEnum):
    """The kinds of refusal."""

    DECODE = "decode_error"
    SIGNATURE = "bad_signature"
    SCOPE = "bad_scope"
    CHAIN = "bad_chain"
    NONCE = "bad_nonce"


class EnvelopeRefused(IntegrityError):
    """An envelope that cannot be believed."""

    def __init__(self, fault: EnvelopeFault, message: str) -> None:
        super().__init__(message, reason=fault.value.replace("_", "-"))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The last envelope that was verified."""

    seq: int
    digest: str | None = None
    """None where it is not known, as after a bookmark without one."""


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """An envelope that was verified, in the bytes in which it came."""

    envelope: SealedEnvelope
    digest: str
    body: bytes = field(repr=False)


class StreamChain:
    """The envelopes of one tenant from one point on. With `gaps`, numbers may be missing, as in a filtered stream."""

    def __init__(
        self, tenant: str, *, keys: StreamKeys, clock: Clock, after: ChainEnd | None, gaps: bool = False
    ) -> None:
        self._scope = f"tenant:{tenant}"
        self._ask = keys
        self._clock = clock
        self._gaps = gaps
        self._keys: Sequence[VerifyingKey] = ()
        self._asked_mono_ns: int | None = None
        self.end = after
        """None before the first envelope of a stream that is read from wherever it is."""
        self.refused: Counter[EnvelopeFault] = Counter()

    async def verify(self, body: bytes) -> VerifiedEnvelope:
        """The envelope in these bytes, if it is the next one; EnvelopeRefused otherwise, and nothing has changed."""
        try:
            found = await self._verified(body)
        except EnvelopeRefused as refused:
            self.refused[refused.fault] += 1
            raise
        self.end = ChainEnd(found.envelope.seq, found.digest)
        return found

    async def _verified(self, body: bytes) -> VerifiedEnvelope:
        try:
            envelope = decoded(body)
        except BadRequest as error:
            raise EnvelopeRefused(EnvelopeFault.DECODE, str(error)) from None
        if envelope.scope != self._scope:
            raise EnvelopeRefused(EnvelopeFault.SCOPE, f"An envelope of {envelope.scope[:80]!r} came.")
        form = form_within(body, envelope)
        if not await self._signed(envelope, form):
            raise EnvelopeRefused(
                EnvelopeFault.SIGNATURE, f"The signature of envelope {envelope.seq} does not fit."
            )
        # After the signature: a forged number must not be told from a forged signature.
        self._require_order(envelope)
        return VerifiedEnvelope(envelope, chained_digest(form), body)

    async def _signed(self, envelope: SealedEnvelope, form: bytes) -> bool:
        now = self._clock.mono_ns()
        old_ns = None if self._asked_mono_ns is None else now - self._asked_mono_ns
        if (old_ns is None or old_ns < KEYS_AGE_NS) and envelope_verified(envelope, form, self._keys):
            return True
        if old_ns is not None and old_ns < ASK_QUIET_NS:
            return False
        self._asked_mono_ns = now
        self._keys = await self._ask()
        return envelope_verified(envelope, form, self._keys)

    def _require_order(self, envelope: SealedEnvelope) -> None:
        end = self.end
        first = envelope.seq % EPOCH_STRIDE == 1
        if first and envelope.prev != GENESIS:
            raise _broken(envelope, "is the first of its epoch and names one before it")
        if end is None:
            return
        if envelope.seq <= end.seq:
            raise _broken(envelope, f"came after {end.seq}")
        follows = envelope.seq == end.seq + 1
        if not follows and not self._gaps and not (first and envelope.epoch > end.seq // EPOCH_STRIDE):
            raise _broken(envelope, f"came instead of {end.seq + 1}")
        if follows and not first and end.digest is not None and envelope.prev != end.digest:
            raise _broken(envelope, f"does not continue {end.seq}")


def _broken(envelope: SealedEnvelope, why: str) -> EnvelopeRefused:
    return EnvelopeRefused(EnvelopeFault.CHAIN, f"SealedEnvelope {envelope.seq} {why}.")


def keys_from_signer(signer: MeshChannel, tenant: str) -> StreamKeys:
    """The keys of a tenant's scope as Signer has them now."""

    async def ask() -> Sequence[VerifyingKey]:
        answer = await signer.call(
            METHOD,
            GetPublicKeysRequest(scope=f"tenant:{tenant}", include_ended=True),
            PublicKeys,
            timeout_s=CALL_SECONDS,
        )
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
            for key in answer.key
        ]

    return ask
