"""Signer's key store: the CA, HMAC key sets, Ed25519 scopes, the denylist, enrolment tokens, and delegations.

Every write is one atomic, durable step with its own version; versions rise by one and are never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from snavio.domain.delegation import Delegation
from snavio.domain.enrolment import Enrolments
from snavio.domain.key_rollout import Holder
from snavio.domain.keyset import Keyset
from snavio.domain.lineage import ALWAYS, Revoked
from snavio.domain.signing_scope import Scope
from snavio.host.shares import MESH, ShareLimit


@dataclass(frozen=True, slots=True)
class Authority:
    """The installation's CA."""

    certificate_pem: str
    private_key_pem: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Revocation:
    """Revoked certificates: those with the subject that were issued before a time."""

    subject: str
    """As in `snavio.domain.lineage`: a serial or the root of a chain, an identity, an identity through another, or a
    tenant.
    """
    at_ns: int
    forget_at_ns: int
    """The time at which every certificate that it covers has expired."""
    actor: str
    reason: str
    before_ns: int = ALWAYS
    """In the order of issue."""
    identity: str = ""
    """The identity of these certificates; empty if unknown."""
    holder: str = MESH
    """Tenant whose share of the denylist it counts against."""

    @property
    def entry(self) -> Revoked:
        """The entry as services hold it."""
        return Revoked(self.subject, self.before_ns)

    @property
    def counted(self) -> bool:
        """True if it counts against a share. Serials from before there were shares do not; they end by themselves."""
        return self.before_ns != ALWAYS


@dataclass(frozen=True, slots=True)
class KeysetPage:
    """Changed key sets in order of version; `version` is the reader's version after applying them."""

    store_epoch: int
    version: int
    keysets: tuple[Keyset, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """Key sets on their way to the Shields, and the version that each Shield was last recorded to have."""

    store_epoch: int
    keysets: tuple[tuple[int, Keyset], ...] = field(repr=False)
    """Key sets whose newest version is not primary yet, each with the store's version that wrote it."""
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class RevocationPage:
    """Revocations in order of version; `version` is the reader's version after applying them."""

    version: int
    revocations: tuple[Revocation, ...]
    """Without expired ones: a short page does not mean that it is the last."""
    more: bool


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key that seals snapshots of key sets."""

    key: bytes = field(repr=False)
    made_ns: int


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """All that Shield loads from Signer, as of one version."""

    store_epoch: int
    version: int
    keysets: tuple[Keyset, ...] = field(repr=False)
    revoked: tuple[Revoked, ...]


class KeyStore(Protocol):
    """See the module. Reads see whole writes. After Unavailable a write's outcome is unknown."""

    async def authority(self) -> Authority | None:
        """The CA, if there is one."""
        ...

    async def put_authority(self, authority: Authority) -> None:
        """Store the first CA; Conflict if there is one, since replacing it would invalidate every leaf."""
        ...

    async def keyset(self, source: str) -> Keyset | None:
        """The key set of a source."""
        ...

    async def update_keyset(self, source: str, decide: Callable[[Keyset | None], Keyset]) -> Keyset:
        """Replace a key set by the result of `decide`, atomically; an equal one writes nothing.

        An exception of `decide` is passed on, and nothing is written. Saturated when the store is full.
        """
        ...

    async def keysets_of(self, sources: Collection[str]) -> dict[str, Keyset]:
        """The key sets of those sources that have one."""
        ...

    async def keysets(self, *, after: str = "", limit: int) -> tuple[Keyset, ...]:
        """Key sets of sources named after `after`, by name, at most `limit`."""
        ...

    async def keysets_since(self, version: int, *, limit: int) -> KeysetPage:
        """Key sets written after `version`. A reader ahead of the store proves that the store went back in time (a
        restored backup): the store then takes a new epoch and answers from the start.
        """
        ...

    async def written(self, sources: Collection[str]) -> dict[str, int]:
        """The version that wrote the key set of each of those sources."""
        ...

    async def spread(self) -> Spread:
        """Key sets that are not primary yet, and the versions recorded of Shields, from one moment."""
        ...

    async def holders(self) -> tuple[int, tuple[Holder, ...]]:
        """The store's epoch, and the versions recorded of Shields; the cost does not depend on the key sets."""
        ...

    async def record_holders(self, heard: Collection[Holder], *, gone: Collection[str] = ()) -> None:
        """Record each holder under its name, and forget the `gone`, in one write."""
        ...

    async def revoke(self, revocation: Revocation, *, now_ns: int) -> int:
        """Add to the denylist, drop what may be forgotten; idempotent per subject. Returns its version."""
        ...

    async def revoke_all(
        self, revocations: Sequence[Revocation], *, now_ns: int, limit: ShareLimit | None = None
    ) -> int:
        """The same for several, in one write; returns the version that has all of them.

        A subject that is present is covered up to the later of the two times. Where a holder's share of `limit` is used
        up, several entries of one identity, or of one tenant, are merged into one that covers them all and more;
        Saturated when even that frees no room.
        """
        ...

    async def revocation_holders(self) -> dict[str, int]:
        """Entries of the denylist by holder."""
        ...

    async def latest_revoked_ns(self) -> int:
        """The latest issue time in any revocation; 0 for none."""
        ...

    async def revocations_since(self, version: int, *, now_ns: int, limit: int) -> RevocationPage:
        """The denylist after `version`; all of it for a reader that is ahead of the store."""
        ...

    async def survey(self, *, now_ns: int) -> KeySurvey:
        """Every key set and the denylist, from one moment."""
        ...

    async def snapshot_key(self, decide: Callable[[SnapshotKey | None], SnapshotKey]) -> SnapshotKey:
        """Replace the key that seals snapshots by what `decide` makes of it, as `update_keyset` does."""
        ...

    async def polls(self) -> dict[str, int]:
        """The time at which each source last fetched its keys, as last recorded."""
        ...

    async def record_polls(self, polls: Mapping[str, int]) -> None:
        """Move the recorded times forward, never back, in one write; sources without a key set are left out."""
        ...

    async def claim_turn(self, name: str, *, now_ns: int, until_ns: int) -> bool:
        """Claim the turn called `name` until `until_ns`; true if the caller has it. Atomic over all processes.

        A claim from the future is void: after a clock was set back, the work does not wait for it.
        """
        ...

    async def scope(self, name: str) -> Scope | None:
        """The Ed25519 keys of a scope."""
        ...

    async def scopes(self) -> tuple[Scope, ...]:
        """Every scope."""
        ...

    async def update_scope(self, name: str, decide: Callable[[Scope | None], Scope]) -> Scope:
        """As `update_keyset`, for a scope."""
        ...

    async def enrolments(self) -> Enrolments:
        """Unused enrolment tokens."""
        ...

    async def update_enrolments(self, decide: Callable[[Enrolments], Enrolments]) -> Enrolments:
        """Replace the tokens by the result of `decide`, as `update_keyset` does."""
        ...

    async def delegation(self, source: str) -> Delegation | None:
        """The principals that may act as a service."""
        ...

    async def put_delegation(self, source: str, delegation: Delegation | None) -> Delegation | None:
        """Replace or delete a delegation; returns the previous one. Saturated when the store is full."""
        ...

    async def renew_epoch(self) -> int:
        """Make every reader start again; for a store that was restored from a backup. The whole denylist is published
        again.
        """
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
