"""Keeps the Ed25519 keys of scopes and signs with them, batches at a time and off the event loop.

Never gives a seed out, never signs for a scope that nobody provisioned, and never lets one mesh service sign
what is another's to say.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

import orjson
import structlog

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.signing_scope import (
    KEY_BYTES,
    MAILBOX,
    PLATFORM,
    Pair,
    Scope,
    ScopeKey,
    provision,
    require_scope,
    rotate_scope,
)
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, Saturated
from snavio.native import ed25519_is_weak, ed25519_public_key, ed25519_sign_batch, format_timestamp
from snavio.ports.keystore import KeyStore
from snavio.signed.archive_manifest import MAX_SIGNED_BYTES
from snavio.signed.snapshot_manifest import HMAC, TYPE
from snavio.telemetry.events import EventJournal, SigningKeyRotated

MAX_MESSAGES = 4096
MAX_BYTES = MAX_SIGNED_BYTES
MAX_SCOPES = 1024
# Each holds a thread and up to 1 MiB; past it callers are better told to wait than kept waiting.
MAX_BATCHES_AT_ONCE = 32
# From here a batch costs more than handing it to a thread.
_OFF_LOOP_FROM = 8
# Whoever follows events reads them more often than once a day.
TELL_AGAIN_NS = 24 * 3600 * 1_000_000_000
KEYS_MANIFEST = b'"kind":"hmac"'
_ROTATIONS = UUID("6f1d1c1e-5d0e-4d9b-9a55-1f6b3c1a7e42")


def new_pair() -> Pair:
    """A new random key pair."""
    seed = secrets.token_bytes(KEY_BYTES)
    return Pair(ed25519_public_key(seed), seed)


@dataclass(frozen=True, slots=True)
class SigningOrder:
    """Messages of one scope; an empty key id is the active key's."""

    scope: str
    key_id: str
    messages: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class SignedOrder:
    """The signatures of an order, or the reason why there are none."""

    key_id: str = ""
    signatures: tuple[bytes, ...] = ()
    reason: str = ""


class Signatures:
    """The scopes."""

    def __init__(
        self,
        *,
        store: KeyStore,
        clock: Clock,
        events: EventJournal,
        trust_domain: str,
        delay_ns: int,
        overlap_ns: int,
        pair: Callable[[], Pair] = new_pair,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._trust_domain = trust_domain
        self._delay_ns = delay_ns
        self._overlap_ns = overlap_ns
        self._pair = pair
        self._at_work = 0
        self._log = structlog.get_logger()

    async def provision(self, name: str, *, actor: str) -> Scope:
        """The first key of a scope, or the keys that it has already."""
        require_scope(name)
        fresh = provision(name, self._fresh_pair(), now_ns=self._clock.unix_ns())
        scope = await self._store.update_scope(name, lambda before: before or fresh)
        if scope is fresh:
            self._log.info("scope provisioned", scope=name, actor=actor, key_id=fresh.keys[-1].key_id)
        return scope

    async def rotate(self, name: str, *, emergency: bool, actor: str) -> Scope:
        """A new key that signs after the distribution delay, or at once in an emergency."""
        seen = await self.of(name)
        now, pair = self._clock.unix_ns(), self._fresh_pair()

        def decide(before: Scope | None) -> Scope:
            if before != seen:
                raise Conflict(f"{name}: somebody else has just rotated it.", reason="rotation-under-way")
            return rotate_scope(
                seen,
                pair,
                now_ns=now,
                delay_ns=self._delay_ns,
                overlap_ns=self._overlap_ns,
                emergency=emergency,
            )

        scope = await self._store.update_scope(name, decide)
        self._announce(scope)
        self._log.warning(
            "scope rotated", scope=name, actor=actor, added=scope.keys[-1].key_id, emergency=emergency
        )
        return scope

    async def of(self, name: str) -> Scope:
        """The keys of a scope; NotFound `not-provisioned` if there are none."""
        require_scope(name)
        scope = await self._store.scope(name)
        if scope is None:
            raise NotFound(f"{name} has no signing key yet.", reason="not-provisioned")
        return scope

    async def sign(
        self, name: str, key_id: str, messages: Sequence[bytes], *, caller: Identity
    ) -> tuple[str, list[bytes]]:
        """The id of the key that signed, and one signature per message."""
        _require_may_sign(caller, name, messages)
        if len(messages) > MAX_MESSAGES or sum(map(len, messages)) > MAX_BYTES:
            raise BadRequest(
                f"message: at most {MAX_MESSAGES}, together at most {MAX_BYTES} bytes.", reason="bad-field"
            )
        key = (await self.of(name)).signer(key_id, self._clock.unix_ns())
        batch = list(messages)
        if len(batch) < _OFF_LOOP_FROM and sum(map(len, batch)) < 1 << 16:
            return key.key_id, ed25519_sign_batch(key.seed, batch)
        if self._at_work >= MAX_BATCHES_AT_ONCE:
            raise Saturated("Signer has as much to sign as it can.", retry_after_ms=100)
        self._at_work += 1
        try:
            return key.key_id, await asyncio.to_thread(ed25519_sign_batch, key.seed, batch)
        finally:
            self._at_work -= 1

    async def sign_many(self, orders: Sequence[SigningOrder], *, caller: Identity) -> list[SignedOrder]:
        """The signatures of every order, or the reason why its scope cannot sign; one scope never holds up another."""
        sizes = [len(message) for order in orders for message in order.messages]
        if len(orders) > MAX_SCOPES or len(sizes) > MAX_MESSAGES or sum(sizes) > MAX_BYTES:
            raise BadRequest(
                f"scope: at most {MAX_SCOPES}, with at most {MAX_MESSAGES} messages of {MAX_BYTES} bytes together.",
                reason="bad-field",
            )
        now = self._clock.unix_ns()
        keys: list[ScopeKey | str] = []
        for order in orders:
            try:
                _require_may_sign(caller, order.scope, order.messages)
                keys.append((await self.of(order.scope)).signer(order.key_id, now))
            except (BadRequest, NotFound, Conflict, NotAllowed) as error:
                keys.append(error.reason)
        if self._at_work >= MAX_BATCHES_AT_ONCE:
            raise Saturated("Signer has as much to sign as it can.", retry_after_ms=100)

        def sign() -> list[SignedOrder]:
            return [
                SignedOrder(reason=key)
                if isinstance(key, str)
                else SignedOrder(key.key_id, tuple(ed25519_sign_batch(key.seed, list(order.messages))))
                for order, key in zip(orders, keys, strict=True)
            ]

        self._at_work += 1
        try:
            return await asyncio.to_thread(sign)
        finally:
            self._at_work -= 1

    async def sign_own(self, message: bytes) -> tuple[str, bytes]:
        """Sign a statement of Signer itself with the platform's key, which is made if there is none."""
        key = (await self.provision(PLATFORM, actor="signer")).active(self._clock.unix_ns())
        (signature,) = ed25519_sign_batch(key.seed, [message])
        return key.key_id, signature

    def _fresh_pair(self) -> Pair:
        pair = self._pair()
        # Also keeps out a random generator that has broken down to all zeros.
        if ed25519_is_weak(pair.public_key) or not any(pair.seed):
            raise BadRequest("A weak key is not taken.", reason="weak-key")
        return pair

    async def announce_rotations(self) -> None:
        """Record again, at start, the rotations whose old key has not been closed for a day.

        The journal is in memory: a Signer that died after the write and before anybody read the event must not
        leave verifiers with the old keys. The event's id is the rotation's own, so a reader knows it again.
        """
        now = self._clock.unix_ns()
        for scope in await self._store.scopes():
            if (
                scope.name != MAILBOX
                and scope.rotation is not None
                and now < scope.rotation.closes_at_ns + TELL_AGAIN_NS
            ):
                self._announce(scope)

    def _announce(self, scope: Scope) -> None:
        rotation = scope.rotation
        new = next((key for key in scope.keys if rotation and key.key_id == rotation.new_key_id), None)
        if rotation is None or new is None:
            return
        kind, _, tenant = scope.name.partition(":")
        identity = f"{scope.name} {rotation.old_key_id} {rotation.new_key_id}"
        self._events.record(
            SigningKeyRotated(
                event_id=str(uuid5(_ROTATIONS, identity)),
                occurred_at=format_timestamp(rotation.opened_at_ns),
                domain_id=self._trust_domain,
                scope_kind=kind,
                scope_id=tenant,
                old_key_id=rotation.old_key_id,
                new_key_id=new.key_id,
                new_public_key=b64encode(new.public_key).decode(),
                valid_from=format_timestamp(new.valid_from_ns),
                opened_at=format_timestamp(rotation.opened_at_ns),
                closes_at=format_timestamp(rotation.closes_at_ns),
            ),
            at_unix_ns=rotation.opened_at_ns,
        )


def _require_may_sign(caller: Identity, scope: str, messages: Sequence[bytes]) -> None:
    """Relay signs everybody's envelopes, Registry the platform's snapshots: it must not speak for a tenant."""
    relay = caller.kind is IdentityKind.MESH and caller.name == "relay"
    registry = caller.kind is IdentityKind.MESH and caller.name == "registry" and scope == PLATFORM
    if not relay and not registry:
        raise NotAllowed(f"{caller} may not sign for {scope}.", reason="not-your-scope")
    if scope == PLATFORM and any(map(_is_keys_manifest, messages)):
        raise NotAllowed(f"{caller} may not sign for Signer's own snapshots.", reason="not-your-snapshot")


def _is_keys_manifest(message: bytes) -> bool:
    """True for a message that only Signer may sign: with a new time on an old manifest, revoked keys would look fresh.

    Manifests are signed in their canonical form, so these very bytes are in each of them; the rest of the question is
    for messages that have them somewhere inside.
    """
    if KEYS_MANIFEST not in message:
        return False
    try:
        document = orjson.loads(message)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("kind") == HMAC and document.get("type") == TYPE


def require_may_read(caller: Identity, scope: str) -> None:
    """NotAllowed for scopes of other tenants: public keys are no secret, but the list of tenants is."""
    tenant = caller.kind in (IdentityKind.SERVICE, IdentityKind.PRINCIPAL)
    if tenant and scope not in (PLATFORM, f"tenant:{caller.tenant}"):
        raise NotAllowed(f"{caller} may not ask for the keys of {scope}.", reason="not-your-scope")
