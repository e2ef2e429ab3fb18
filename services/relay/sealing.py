"""Seals drafts: composes envelopes, has them signed, and appends them to the tenants' streams, each in its order.

Never appends an envelope that it has not verified itself, and never lets one tenant hold up another: a tenant that
cannot be signed for is parked alone. While Signer is away nothing leaves, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from services.relay.tenant_keys import TenantAnswer, TenantOrder, TenantSigning, scope_of
from snavio.clock import Clock
from snavio.domain.stream import TYPE_PREFIX, Position, SealedEnvelope
from snavio.errors import Conflict, IntegrityError, SnavioError
from snavio.host.periodic import Periodic
from snavio.native import ed25519_verify, format_timestamp
from snavio.ports.tenant_streams import StoredDraft, StreamEntry, TenantStreams
from snavio.signed.stream_envelope import chained_digest, composed, decoded, with_signature
from snavio.signed.verification import VerifyingKey

LOOK_SECONDS: Final = 5.0
MAX_TENANTS: Final = 1000
MAX_BYTES: Final = 512 << 10
"""Of one call to Signer before its last tenant: together with that one's it stays below the 1 MiB that Signer takes."""
TENANT_DRAFTS: Final = 64
TENANT_BYTES: Final = 256 << 10
ENVELOPE_BYTES: Final = 600
"""More than an envelope has beyond its events: names of 63 letters, ids, a digest."""
KEY_AGE_NS: Final = 60 * 1_000_000_000
"""After this the active key is asked for anew, so that a rotation is followed long before the old key ends."""
FIRST_PARK_NS: Final = 1_000_000_000
LONGEST_PARK_NS: Final = 60 * 1_000_000_000
_STALE_KEY: Final = frozenset({"key-not-active", "unknown-key"})

Appended = Callable[[str, Sequence[StreamEntry], Position], None]


@dataclass(slots=True)
class SealingTenant:
    """The end of a tenant's stream, and its keys."""

    position: Position | None = None
    key_id: str = ""
    keys: Sequence[VerifyingKey] = ()
    asked_mono_ns: int = 0
    parked_until_mono_ns: int = 0
    park_ns: int = FIRST_PARK_NS
    epoch_checked: bool = False
    """The key that signed the newest envelope still counts."""

    def park(self, now_mono_ns: int) -> None:
        """Leave the tenant alone for a while, longer each time."""
        self.parked_until_mono_ns = now_mono_ns + self.park_ns
        self.park_ns = min(2 * self.park_ns, LONGEST_PARK_NS)

    def forget_key(self) -> None:
        """Ask for the key anew before the next signature."""
        self.key_id, self.keys, self.epoch_checked = "", (), False


@dataclass(frozen=True, slots=True)
class ComposedDraft:
    """A draft as an envelope without its signature."""

    draft: StoredDraft
    seq: int
    digest: str
    issued_unix_ns: int
    parts: tuple[bytes, bytes]

    @property
    def form(self) -> bytes:
        """The bytes to sign."""
        return b"".join(self.parts)


class Sealing:
    """Lives on one event loop; one round at a time."""

    def __init__(
        self,
        *,
        streams: TenantStreams,
        signing: TenantSigning,
        knows: Callable[[str], bool],
        clock: Clock,
        fence: int,
        appended: Appended = lambda _tenant, _entries, _position: None,
    ) -> None:
        self._streams = streams
        self._signing = signing
        self._knows = knows
        self._clock = clock
        self._fence = fence
        self._appended = appended
        self._tenants: dict[str, SealingTenant] = {}
        self._turns = Periodic("sealing", self.seal, every_s=LOOK_SECONDS, first_s=0.25, longest_s=5.0)
        self._counts = {
            "sealing.envelopes": 0,
            "sealing.events": 0,
            "sealing.rounds": 0,
            "sealing.moved_on": 0,
            "sealing.epochs": 0,
            'sse_relay_skip_total{reason="no_signing_key"}': 0,
            'sse_publisher_sign_failures_total{reason="publish_error"}': 0,
            'sse_publisher_sign_failures_total{reason="provider_unavailable"}': 0,
            'sse_publisher_sign_failures_total{reason="key_not_provisioned"}': 0,
        }
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Seal until `stop`."""
        self._turns.start(at_once=True)

    async def stop(self) -> None:
        """End; drafts wait for the next start."""
        await self._turns.stop()

    def nudge(self) -> None:
        """Drafts were stored."""
        self._turns.nudge()

    def counters(self) -> dict[str, int]:
        """Counters of the envelopes and of those that could not be made."""
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """Tenants that are left alone for a while."""
        now = self._clock.mono_ns()
        return {"parked": float(sum(one.parked_until_mono_ns > now for one in self._tenants.values()))}

    async def seal(self) -> int:
        """Seal everything that can be sealed; the number of envelopes. Raises when Signer is away."""
        done = 0
        while (sealed := await self._round()) > 0:
            done += sealed
        return done

    async def _round(self) -> int:
        waiting = await self._streams.waiting()
        now = self._clock.mono_ns()
        for tenant in set(self._tenants) - set(waiting):
            # A tenant that is quiet costs nothing; its keys are asked for when it speaks again.
            if now - self._tenants[tenant].asked_mono_ns > KEY_AGE_NS:
                del self._tenants[tenant]
        ready = [tenant for tenant in waiting if self._tenant(tenant).parked_until_mono_ns <= now][
            :MAX_TENANTS
        ]
        if not ready:
            return 0
        self._counts["sealing.rounds"] += 1
        try:
            able = await self._with_keys(ready)
            orders = await self._composed(able)
            answers = (
                await self._signing.sign(
                    [
                        TenantOrder(tenant, self._tenant(tenant).key_id, tuple(one.form for one in envelopes))
                        for tenant, envelopes in orders.items()
                    ]
                )
                if orders
                else []
            )
        except SnavioError:
            self._counts['sse_publisher_sign_failures_total{reason="provider_unavailable"}'] += 1
            raise
        sealed = 0
        for (tenant, envelopes), answer in zip(orders.items(), answers, strict=True):
            try:
                sealed += await self._append(tenant, envelopes, answer)
            except (Conflict, IntegrityError) as error:
                # Another Relay, or drafts that were dropped meanwhile: look again where the stream is.
                self._counts["sealing.moved_on"] += 1
                self._tenant(tenant).position = None
                self._tenant(tenant).park(now)
                self._log.warning("a stream was not continued", tenant=tenant, reason=error.reason)
        return sealed

    def _tenant(self, tenant: str) -> SealingTenant:
        return self._tenants.setdefault(tenant, SealingTenant())

    async def _with_keys(self, tenants: Sequence[str]) -> list[str]:
        """Those of the tenants whose signing key is known, after asking for the others' in one call."""
        now = self._clock.mono_ns()
        asking = [
            tenant
            for tenant in tenants
            if not self._tenant(tenant).key_id or now - self._tenant(tenant).asked_mono_ns > KEY_AGE_NS
        ]
        answers = await self._signing.sign([TenantOrder(tenant) for tenant in asking]) if asking else []
        for tenant, answer in zip(asking, answers, strict=True):
            state = self._tenant(tenant)
            if answer.reason == "not-provisioned":
                self._counts['sse_publisher_sign_failures_total{reason="key_not_provisioned"}'] += 1
                await self._provision(tenant, state)
            elif answer.reason:
                self._fail(tenant, state, answer.reason)
            else:
                state.asked_mono_ns = now
                if answer.key_id != state.key_id:
                    state.forget_key()
                    state.keys = await self._signing.ever(tenant)
                    state.key_id = answer.key_id
        return [tenant for tenant in tenants if self._tenant(tenant).key_id]

    async def _provision(self, tenant: str, state: SealingTenant) -> None:
        state.forget_key()
        if not self._knows(tenant):
            self._counts['sse_relay_skip_total{reason="no_signing_key"}'] += 1
            state.park(self._clock.mono_ns())
            self._log.warning(
                "a tenant has no signing key, and the directory does not know it", tenant=tenant
            )
            return
        await self._signing.provision(tenant)
        self._log.info("scope provisioned", tenant=tenant)
        state.keys = await self._signing.ever(tenant)
        state.key_id = state.keys[-1].key_id if state.keys else ""
        state.asked_mono_ns = self._clock.mono_ns()

    def _fail(self, tenant: str, state: SealingTenant, reason: str) -> None:
        state.forget_key()
        if reason in _STALE_KEY:
            # It was rotated just now; the next round asks which key signs.
            return
        self._counts['sse_publisher_sign_failures_total{reason="publish_error"}'] += 1
        state.park(self._clock.mono_ns())
        self._log.error("an envelope could not be signed", tenant=tenant, reason=reason)

    async def _composed(self, tenants: Sequence[str]) -> dict[str, list[ComposedDraft]]:
        found: dict[str, list[ComposedDraft]] = {}
        size = 0
        for tenant in tenants:
            state = self._tenant(tenant)
            try:
                await self._check_epoch(tenant, state)
                drafts = await self._streams.drafts(tenant, limit=TENANT_DRAFTS, max_bytes=TENANT_BYTES)
            except (IntegrityError, Conflict) as error:
                self._fail(tenant, state, error.reason)
                continue
            if not drafts:
                continue
            assert state.position is not None
            found[tenant] = self._chained(tenant, state.key_id, state.position, drafts)
            size += sum(len(draft.new.body) + ENVELOPE_BYTES for draft in drafts)
            if size > MAX_BYTES:
                # The others are next: those that were served wait for newer drafts.
                break
        return found

    async def _check_epoch(self, tenant: str, state: SealingTenant) -> None:
        """Begin a new epoch when the key of the newest envelope counts no more, as after an emergency rotation."""
        if state.position is None:
            state.position = await self._streams.window(tenant)
        if state.epoch_checked:
            return
        position = state.position
        if position.high > position.low:
            last = await self._streams.read(tenant, after=position.high - 1, limit=1, max_bytes=1)
            signed_by = decoded(last.entries[-1].body).key_id
            if all(key.key_id != signed_by for key in state.keys):
                state.position = await self._streams.begin_epoch(tenant)
                self._counts["sealing.epochs"] += 1
                self._log.warning(
                    "a stream begins anew: its key was revoked", tenant=tenant, key_id=signed_by
                )
                self._appended(tenant, (), state.position)
        state.epoch_checked = True

    def _chained(
        self, tenant: str, key_id: str, position: Position, drafts: Sequence[StoredDraft]
    ) -> list[ComposedDraft]:
        now = self._clock.unix_ns()
        issued_at = format_timestamp(now)
        seq, prev = position.high, position.head
        chained: list[ComposedDraft] = []
        for draft in drafts:
            seq += 1
            envelope = SealedEnvelope(
                envelope_id=draft.new.envelope_id,
                type=TYPE_PREFIX + draft.new.family,
                scope=scope_of(tenant),
                key_id=key_id,
                issued_at=issued_at,
                epoch=position.epoch,
                seq=seq,
                prev=prev,
                payload={"source": draft.new.source},
            )
            parts = composed(envelope, draft.new.body)
            prev = chained_digest(b"".join(parts))
            chained.append(ComposedDraft(draft, seq, prev, now, parts))
        return chained

    async def _append(self, tenant: str, envelopes: Sequence[ComposedDraft], answer: TenantAnswer) -> int:
        """Append the longest beginning of the envelopes that is signed and verifies."""
        state = self._tenant(tenant)
        if answer.reason or answer.key_id != state.key_id:
            self._fail(tenant, state, answer.reason or "key-not-active")
            return 0
        key = next((key for key in state.keys if key.key_id == state.key_id), None)
        good = 0
        if key is not None and key.good_at(envelopes[0].issued_unix_ns):
            good = await asyncio.to_thread(_verified, key.public_key, envelopes, answer.signatures)
        if good < len(envelopes):
            self._fail(tenant, state, "bad-signature")
        if not good:
            return 0
        entries = [
            StreamEntry(
                seq=one.seq,
                envelope_id=one.draft.new.envelope_id,
                source=one.draft.new.source,
                family=one.draft.new.family,
                events=one.draft.new.events,
                issued_unix_ns=one.issued_unix_ns,
                digest=one.digest,
                body=with_signature(one.parts, signature),
            )
            for one, signature in zip(envelopes[:good], answer.signatures, strict=False)
        ]
        assert state.position is not None
        state.position = await self._streams.append(
            tenant,
            expected=state.position,
            fence=self._fence,
            drafts=[one.draft.draft_id for one in envelopes[:good]],
            entries=entries,
        )
        state.park_ns = FIRST_PARK_NS
        self._counts["sealing.envelopes"] += good
        self._counts["sealing.events"] += sum(entry.events for entry in entries)
        self._appended(tenant, entries, state.position)
        return good


def _verified(public_key: bytes, envelopes: Sequence[ComposedDraft], signatures: Sequence[bytes]) -> int:
    """The number of envelopes from the first on whose signatures are good."""
    good = 0
    for one, signature in zip(envelopes, signatures, strict=False):
        if not ed25519_verify(public_key, one.form, signature):
            break
        good += 1
    return good
