"""Makes, rotates and revokes the HMAC keys of sources, and gives each reader the keys that it may have.

Never decides what a rotation means (`snavio.domain.keyset` does), nor logs more of a key than its version.
"""

from __future__ import annotations

import secrets

import structlog

from services.signer.keys.key_polls import KeyPolls
from snavio.clock import Clock
from snavio.domain.directory import require_source
from snavio.domain.keyset import (
    SECRET_BYTES,
    Keyset,
    create,
    promote,
    raise_minimum,
    revoke,
    rotate,
    rotation_due_ns,
)
from snavio.errors import Conflict, NotFound
from snavio.ports.keystore import KeysetPage, KeyStore

# Whole key sets of up to 16 versions each: a page stays under 2 MiB.
MAX_PAGE = 1000


def new_secret() -> bytes:
    """A new random secret."""
    return secrets.token_bytes(SECRET_BYTES)


class Keysets:
    """The key sets of every source."""

    def __init__(
        self,
        *,
        store: KeyStore,
        polls: KeyPolls,
        clock: Clock,
        overlap_ns: int,
    ) -> None:
        self._store = store
        self._polls = polls
        self._clock = clock
        self._overlap_ns = overlap_ns
        self._log = structlog.get_logger()

    async def create(self, source: str, *, actor: str) -> Keyset:
        """The first key of a source, or the key set that it has already."""
        require_source(source, "source")
        now = self._clock.unix_ns()
        fresh = create(source, secret=new_secret(), now_ns=now)
        keyset = await self._store.update_keyset(source, lambda before: before or fresh)
        if keyset is fresh:
            self._log.info("keyset created", source=source, actor=actor)
        return keyset

    async def rotate(self, source: str, *, actor: str, expected_newest: str = "") -> Keyset:
        """A new version on its way to every Shield; `promote` makes it primary.

        Of two callers who saw the same newest version one wins; the other gets Conflict, however fast it
        arrives. Two rotations in a row would end the version that producers still sign with.
        """
        seen = expected_newest or _present(await self._store.keyset(source), source).versions[-1].name

        def decide(before: Keyset | None) -> Keyset:
            present = _present(before, source)
            if present.versions[-1].name != seen:
                raise Conflict(f"{source} has a newer key version than {seen}.", reason="rotation-under-way")
            return self._rotated(present)

        keyset = await self._store.update_keyset(source, decide)
        self._log.info("keyset rotated", source=source, actor=actor, added=keyset.versions[-1].name)
        return keyset

    async def rotate_if_due(self, source: str, *, cadence_ns: int, actor: str) -> bool:
        """Rotate unless another caller has meanwhile; returns whether it was done here."""
        rotated = False

        def decide(before: Keyset | None) -> Keyset:
            nonlocal rotated
            present = _present(before, source)
            rotated = rotation_due_ns(present, cadence_ns=cadence_ns) <= self._clock.unix_ns()
            return self._rotated(present) if rotated else present

        keyset = await self._store.update_keyset(source, decide)
        if rotated:
            self._log.info("keyset rotated", source=source, actor=actor, added=keyset.versions[-1].name)
        return rotated

    def _rotated(self, keyset: Keyset) -> Keyset:
        return rotate(keyset, secret=new_secret(), now_ns=self._clock.unix_ns())

    async def promote(self, source: str, key_version: str, *, actor: str) -> bool:
        """Let producers sign with the newest version; returns whether it was done here and not by another caller."""
        promoted = False

        def decide(before: Keyset | None) -> Keyset:
            nonlocal promoted
            present, now = _present(before, source), self._clock.unix_ns()
            after = promote(present, key_version, now_ns=now, overlap_ns=self._overlap_ns)
            promoted = after is not present
            return after

        await self._store.update_keyset(source, decide)
        if promoted:
            self._log.info("key is primary", source=source, actor=actor, key_version=key_version)
        return promoted

    async def set_minimum(self, source: str, key_version: str, *, actor: str) -> Keyset:
        """Refuse every version below one, at once."""
        now = self._clock.unix_ns()
        keyset = await self._store.update_keyset(
            source, lambda before: raise_minimum(_present(before, source), key_version, now_ns=now)
        )
        self._log.warning("minimum key version set", source=source, actor=actor, key_version=key_version)
        return keyset

    async def could_be_minimum(self, source: str, key_version: str) -> Keyset:
        """The key set, if the minimum could be set; raises what would speak against it. Empty asks for the key set."""
        keyset = _present(await self._store.keyset(source), source)
        if key_version:
            raise_minimum(keyset, key_version, now_ns=self._clock.unix_ns())
        return keyset

    async def revoke(self, source: str, key_version: str, *, actor: str) -> Keyset:
        """End a version at once."""
        now, secret = self._clock.unix_ns(), new_secret()
        keyset = await self._store.update_keyset(
            source, lambda before: revoke(_present(before, source), key_version, secret=secret, now_ns=now)
        )
        self._log.warning("key revoked", source=source, actor=actor, key_version=key_version)
        return keyset

    async def changes(self, since: int, *, limit: int) -> KeysetPage:
        """Changes after a version; for Shield."""
        return await self._store.keysets_since(since, limit=min(limit, MAX_PAGE) or MAX_PAGE)

    async def of(self, source: str) -> Keyset:
        """A source's own key set, as its producer polls it."""
        keyset = _present(await self._store.keyset(source), source)
        self._polls.note(source)
        return keyset

    async def described(
        self, source: str, *, after: str, limit: int, tenant: str = ""
    ) -> tuple[tuple[Keyset, ...], bool]:
        """One source's key set, or a page of all of them, or of one tenant's, by name; and whether there is more."""
        if source:
            return (_present(await self._store.keyset(source), source),), False
        wanted = min(limit, MAX_PAGE) or MAX_PAGE
        prefix = f"{tenant}/" if tenant else ""
        page = await self._store.keysets(after=max(after, prefix), limit=wanted + 1)
        # In order of their names, a tenant's stand together.
        own = tuple(keyset for keyset in page if keyset.source.startswith(prefix))
        return own[:wanted], len(own) > wanted


def _present(keyset: Keyset | None, source: str) -> Keyset:
    if keyset is None:
        raise NotFound(f"{source} has no key set.", reason="no-keyset")
    return keyset
