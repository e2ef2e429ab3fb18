"""Decides whether a caller's capability allows an operation: looked up per call and per batch, verified now and then.

Never serves without one. What a cached verification allows ends with the cache time, with the capability's own end, and
with any news of a revocation. A revoked capability begins nothing; what it was given before, it may still settle.
"""

from __future__ import annotations

import hmac
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog

from services.mailbox.access.quotas import Metered, Quotas, QuotaTake
from services.mailbox.access.roots import Roots
from snavio.clock import Clock
from snavio.domain.capability import Capability, read_text, verify
from snavio.domain.caveat import SETTLING, CaveatBounds, Denial, Operation
from snavio.domain.identity import Identity
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotAllowed, Saturated, Unauthenticated
from snavio.native import read_leased_batches
from snavio.rpc.call import Call

MAX_CACHED: Final = 16_384
MAX_GIVEN: Final = 65_536
MAX_ANSWERS: Final = 64
SPIKE: Final = 20
SPIKE_NS: Final = 10_000_000_000
PURGE_QUIET_NS: Final = 5_000_000_000
ASK_QUIET_NS: Final = 1_000_000_000
QUOTA_HINT_MS: Final = 1000
MILLISECOND: Final = 1_000_000


@dataclass(slots=True)
class Verified:
    """A capability that was found genuine and its holder's own."""

    cap_id: str
    bounds: CaveatBounds
    metered: tuple[Metered, ...]
    until_mono_ns: int
    """To be verified again from then on."""
    expires_mono_ns: int
    revoked: bool
    answers: dict[tuple[Operation, str], Denial | None] = field(default_factory=dict)

    def denial(self, operation: Operation, topic: str) -> Denial | None:
        """Cached answers of its bounds: the same question comes with every batch."""
        question = (operation, topic)
        if question in self.answers:
            return self.answers[question]
        # A dispatcher's capability is checked for every topic; the oldest result is cheap to compute again.
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.pop(next(iter(self.answers)))
        answer = self.answers[question] = self.bounds.denial(operation, topic)
        return answer


class Grant:
    """Rights of one call."""

    __slots__ = ("_quotas", "_verified")

    def __init__(self, verified: Verified, quotas: Quotas) -> None:
        self._verified = verified
        self._quotas = quotas

    def covers(self, operation: Operation, topic: str) -> bool:
        """True when it also covers this topic; for calls about several."""
        return self._verified.denial(operation, topic) is None

    def take(self, wanted: int) -> QuotaTake:
        """Take up to `wanted` messages from its quotas; Saturated if none. The rest is to be given back."""
        return (
            self._quotas.take(self._verified.metered, wanted) if self._verified.metered else QuotaTake(wanted)
        )

    def admits(self, topic: str, messages: int) -> QuotaTake | tuple[Verdict, int, str]:
        """So many messages for a topic, to be given back where they are not stored; or what speaks against them."""
        denial = self._verified.denial(Operation.SEND, topic)
        if denial is not None:
            return Verdict.DELIVERY_FAILURE, 0, f"{denial.code}: {denial.sentence}"
        metered = self._verified.metered
        if not metered:
            return QuotaTake(messages)
        try:
            taken = self._quotas.take(metered, messages)
        except Saturated as full:
            return Verdict.SATURATED, full.retry_after_ms, str(full)
        if taken.messages < messages:
            taken.give_back(taken.messages)
            return Verdict.SATURATED, QUOTA_HINT_MS, "E_SATURATED: The capability's quota does not reach."
        return taken


def count_received(response: bytes, taken: QuotaTake) -> None:
    """Give back what a serialised ReceiveResponse does not hand out."""
    # Opened for those with a quota alone: the others' bytes are not looked into.
    if taken.counts:
        messages = read_leased_batches(response)[1] if response else ()
        taken.give_back(taken.messages - len(messages))


class Capabilities:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        roots: Roots,
        clock: Clock,
        cache_s: float,
        signer: str = "",
        refresh: Callable[[], None] = lambda: None,
        most_cached: int = MAX_CACHED,
        most_given: int = MAX_GIVEN,
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._cache_ns = round(cache_s * 1e9)
        self._signer = signer
        self._refresh = refresh
        self._most_cached = most_cached
        self._most_given = most_given
        self._quotas = Quotas(clock=clock)
        # By the capability and its presenter. The oldest goes when it is full: verifying again costs little.
        self._cache: dict[tuple[str, str], Verified] = {}
        # Capabilities under which something was leased. The one longest without goes: its acks, should it be revoked,
        # are then refused, and the messages delivered again.
        self._given: OrderedDict[str, None] = OrderedDict()
        self._denials: deque[int] = deque(maxlen=SPIKE)
        self._purged_mono_ns = clock.mono_ns() - PURGE_QUIET_NS
        self._asked_mono_ns = clock.mono_ns() - ASK_QUIET_NS
        self._denied: Counter[str] = Counter()
        self.purges = 0
        self._log = structlog.get_logger()
        roots.changed = self.purge

    def check(self, call: Call, operation: Operation, topic: str | None) -> Grant:
        """The right to do `operation` on `topic` now; None asks for the operation alone, for calls about many topics.

        Unauthenticated (E_CAP_AUTH) when there is no valid capability, NotAllowed (E_CAP_SCOPE) when it does not reach
        so far.
        """
        text = call.capability
        if text is None:
            self._deny(Denial.REQUIRED)
        identity = call.peer.identity
        now = self._clock.mono_ns()
        verified = self._cache.get((text, identity.spiffe_id))
        if verified is None or now >= verified.until_mono_ns:
            verified = self._verify(text, identity, now)
        if now >= verified.expires_mono_ns:
            self._deny(Denial.EXPIRED)
        # A refused acknowledgement is work done twice: messages leased under a capability may be settled to its end.
        if verified.revoked and not (operation in SETTLING and verified.cap_id in self._given):
            self._deny(Denial.REVOKED)
        denial = (
            verified.denial(operation, topic)
            if topic is not None
            else None
            if operation in verified.bounds.operations
            else Denial.OPERATION
        )
        if denial is not None:
            self._deny(denial)
        if operation is Operation.RECV:
            self._given[verified.cap_id] = None
            self._given.move_to_end(verified.cap_id)
            if len(self._given) > self._most_given:
                self._given.popitem(last=False)
        return Grant(verified, self._quotas)

    def purge(self) -> None:
        """Verify everything anew."""
        self._cache.clear()

    def denials(self) -> Mapping[str, int]:
        """Denials so far, by reason."""
        return self._denied

    def gauges(self) -> dict[str, float]:
        """For operators."""
        return {
            **self._roots.gauges(),
            "cached": len(self._cache),
            "quotas": len(self._quotas),
            "purges": self.purges,
        }

    def _verify(self, text: str, identity: Identity, now: int) -> Verified:
        try:
            capability = read_text(text)
        except BadRequest as refused:
            unknown = refused.reason == Denial.UNKNOWN_CAVEAT.reason
            self._deny(Denial.UNKNOWN_CAVEAT if unknown else Denial.MALFORMED)
        identifier, bounds = capability.identifier, capability.bounds()
        key = self._roots.key(identifier)
        if key is None:
            self._ask_signer(now)
            self._deny(Denial.UNKNOWN_ROOT)
        steps = verify(key, capability)
        if steps is None:
            self._deny(Denial.FORGED)
        if not bounds.held_by(identity):
            self._deny(Denial.HOLDER)
        left_ns = bounds.expires_ms * MILLISECOND - self._clock.unix_ns()
        if left_ns <= 0:
            self._deny(Denial.EXPIRED)
        if len(self._cache) >= self._most_cached:
            self._cache.pop(next(iter(self._cache)))
        verified = self._cache[text, identity.spiffe_id] = Verified(
            cap_id=identifier.cap_id,
            bounds=bounds,
            metered=_metered(capability, steps, identity),
            until_mono_ns=now + self._cache_ns,
            # Monotonic from here on: a wall clock that is set changes nothing for what is in use.
            expires_mono_ns=now + left_ns,
            revoked=self._roots.revoked(identifier, identity),
        )
        return verified

    def _deny(self, denial: Denial) -> NoReturn:
        self._denied[denial.reason] += 1
        self._note_spike()
        sentence = f"{denial.code}: {denial.sentence}"
        if denial.code == "E_CAP_AUTH":
            raise Unauthenticated(sentence, reason=denial.reason, signer=self._signer)
        raise NotAllowed(sentence, reason=denial.reason)

    def _note_spike(self) -> None:
        """Many denials at once may mean that we are wrong: verify anew, and hear what Signer says."""
        now = self._clock.mono_ns()
        self._denials.append(now)
        if len(self._denials) < SPIKE or now - self._denials[0] > SPIKE_NS:
            return
        # Any caller can cause denials: many of them must not keep the cache empty.
        if now - self._purged_mono_ns < PURGE_QUIET_NS:
            return
        self._purged_mono_ns = now
        self._denials.clear()
        self.purges += 1
        self.purge()
        self._ask_signer(now)
        self._log.warning("denials spike, cache purged", reasons=dict(self._denied))

    def _ask_signer(self, now: int) -> None:
        if now - self._asked_mono_ns >= ASK_QUIET_NS:
            self._asked_mono_ns = now
            self._refresh()


def _metered(capability: Capability, steps: tuple[bytes, ...], identity: Identity) -> tuple[Metered, ...]:
    share = identity.tenant or identity.spiffe_id
    return tuple(
        # Not the step itself: that is the key to everything narrowed from there.
        Metered(hmac.digest(step, b"quota", "sha256")[:16], caveat.quota, share)
        for caveat, step in zip(capability.caveats, steps, strict=True)
        if caveat.quota is not None
    )
