"""The Ed25519 keys of a scope: the signing key, the verifying keys, and the effect of a rotation.

Pure: keys and times come as arguments. Never shows a seed in a repr, and never signs with a key that verifiers have not
had time to load.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from snavio.domain.identity import valid_name
from snavio.errors import BadRequest, Conflict, NotFound

KEY_BYTES = 32
PLATFORM = "platform"
# Signs nothing: its seeds are what the mailbox's root keys are derived from. No caller can name it.
MAILBOX = "mailbox"
# A verifier whose clock is a little behind must not refuse what the newest key signed.
BACKDATE_NS = 5 * 60 * 1_000_000_000
MAX_KEYS = 16
# Far more than a lifetime's rotations; the oldest are dropped.
MAX_RETIRED = 512


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """One key pair and its times of validity."""

    key_id: str
    public_key: bytes
    seed: bytes = field(repr=False)
    valid_from_ns: int
    signs_from_ns: int
    valid_until_ns: int = 0
    """First time at which it verifies nothing; 0 while no end is set."""

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES or len(self.public_key) != KEY_BYTES:
            raise BadRequest("An Ed25519 key has 32 bytes.", reason="bad-key")
        if self.key_id != key_id_of(self.public_key):
            raise BadRequest("A key's id is made of its public key.", reason="bad-key")

    def ended(self, now_ns: int) -> bool:
        """True if its end is set and reached."""
        return self.valid_until_ns != 0 and self.valid_until_ns <= now_ns


@dataclass(frozen=True, slots=True)
class RetiredKey:
    """The public part of a key that ended in good order: it cannot sign, and its signatures still count."""

    key_id: str
    public_key: bytes
    valid_from_ns: int
    valid_until_ns: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A fresh key pair."""

    public_key: bytes
    seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The last key change of a scope; stored with the keys, so that a crash cannot suppress its event."""

    old_key_id: str
    new_key_id: str
    opened_at_ns: int
    closes_at_ns: int
    """Time from which the old key verifies nothing."""


@dataclass(frozen=True, slots=True)
class Scope:
    """All keys of one scope, oldest first."""

    name: str
    keys: tuple[ScopeKey, ...]
    rotation: Rotation | None = None
    retired: tuple[RetiredKey, ...] = ()
    """Oldest first, without seeds: archives outlive the keys that signed them."""

    def __post_init__(self) -> None:
        if self.name != MAILBOX:
            require_scope(self.name)
        if not self.keys or len({key.key_id for key in self.keys}) != len(self.keys):
            raise BadRequest("A scope has keys with different ids.", reason="bad-scope")

    def active(self, now_ns: int) -> ScopeKey:
        """The signing key: the newest whose start has passed."""
        for key in reversed(self.keys):
            if key.signs_from_ns <= now_ns and not key.ended(now_ns):
                return key
        # Only after a clock went back: the oldest valid key is the one that most verifiers have.
        return next((key for key in self.keys if not key.ended(now_ns)), self.keys[-1])

    def signer(self, key_id: str, now_ns: int) -> ScopeKey:
        """The key `key_id` if it may sign now; the active one for an empty id."""
        if not key_id:
            return self.active(now_ns)
        for key in self.keys:
            if key.key_id == key_id:
                if key.ended(now_ns) or key.signs_from_ns > now_ns:
                    raise Conflict(f"{self.name}: {key_id} may not sign now.", reason="key-not-active")
                return key
        raise NotFound(f"{self.name} has no key {key_id}.", reason="unknown-key")

    def verifying(self, now_ns: int) -> tuple[ScopeKey, ...]:
        """The keys whose signatures are accepted, now or soon."""
        return tuple(key for key in self.keys if not key.ended(now_ns))

    def ever(self) -> tuple[RetiredKey, ...]:
        """Every key whose signatures are accepted for its time of validity. Keys ended by an emergency rotation are not
        included.
        """
        return (*self.retired, *(_retired(key) for key in self.keys))


def require_scope(name: str) -> None:
    """BadRequest unless `name` is `platform` or `tenant:<id>`."""
    kind, colon, tenant = name.partition(":")
    if name != PLATFORM and not (kind == "tenant" and colon and valid_name(tenant)):
        raise BadRequest("scope: must be `platform` or `tenant:<id>`.", reason="bad-field")


def key_id_of(public_key: bytes) -> str:
    """Such as `ed25519-3f0a…`: derived from the key, so the name can be checked and no two keys share one."""
    return f"ed25519-{hashlib.sha256(public_key).hexdigest()[:32]}"


def provision(name: str, pair: Pair, *, now_ns: int) -> Scope:
    """A scope with its first key, which signs at once: no verifier can hold an older one."""
    return Scope(name, (_key(pair, now_ns=now_ns, signs_from_ns=now_ns - BACKDATE_NS),))


def rotate_scope(
    scope: Scope, pair: Pair, *, now_ns: int, delay_ns: int, overlap_ns: int, emergency: bool = False
) -> Scope:
    """Add a key that signs after `delay_ns`; the former ones verify `overlap_ns` longer.

    In an emergency the former keys end now and the new one signs at once: their signatures are not to be trusted, and a
    verifier that does not have the new key yet must ask.
    """
    if emergency:
        ended = tuple(_ending(key, now_ns) for key in scope.keys)
        added = _key(pair, now_ns=now_ns, signs_from_ns=now_ns)
    else:
        if scope.keys[-1].signs_from_ns > now_ns:
            raise Conflict(f"{scope.name}: a new key is still spreading.", reason="rotation-under-way")
        ended = tuple(_ending(key, now_ns + delay_ns + overlap_ns) for key in scope.keys)
        added = _key(pair, now_ns=now_ns, signs_from_ns=now_ns + delay_ns)
    # A key that verifies nothing any more is dropped, and its seed with it.
    kept = tuple(key for key in ended if not key.ended(now_ns))
    gone = tuple(_retired(key) for key in ended if key.ended(now_ns))
    # A stolen seed can sign with any time of the past, so after an emergency no signature of a key is trusted whose
    # seed was still here. Seeds of keys that retired before were wiped then.
    retired = scope.retired if emergency else (*scope.retired, *gone)[-MAX_RETIRED:]
    if len(kept) >= MAX_KEYS:
        raise Conflict(
            f"{scope.name} has {MAX_KEYS} keys that still verify; wait until one ends.",
            reason="too-many-keys",
        )
    old = scope.active(now_ns)
    closes_at_ns = next(key.valid_until_ns for key in ended if key.key_id == old.key_id)
    return replace(
        scope,
        keys=(*kept, added),
        retired=retired,
        rotation=Rotation(old.key_id, added.key_id, opened_at_ns=now_ns, closes_at_ns=closes_at_ns),
    )


def _key(pair: Pair, *, now_ns: int, signs_from_ns: int) -> ScopeKey:
    return ScopeKey(
        key_id_of(pair.public_key), pair.public_key, pair.seed, now_ns - BACKDATE_NS, signs_from_ns
    )


def _retired(key: ScopeKey) -> RetiredKey:
    return RetiredKey(key.key_id, key.public_key, key.valid_from_ns, key.valid_until_ns)


def _ending(key: ScopeKey, at_ns: int) -> ScopeKey:
    """The key with an end, which only moves earlier: a later end would bring a key back."""
    if key.valid_until_ns and key.valid_until_ns <= at_ns:
        return key
    return replace(key, valid_until_ns=at_ns)
