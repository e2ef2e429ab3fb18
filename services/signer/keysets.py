"""Makes, rotates and revokes the HMAC keys of sources, and tells each reader what is his to know.

Never decides what a rotation means (`snavio.domain.keyset` does), nor logs more of a key than its version.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

import structlog

from snavio.clock import Clock
from snavio.domain.directory import require_source
from snavio.domain.keyset import SECRET_BYTES, Keyset, create, revoke, rotate
from snavio.errors import NotFound
from snavio.ports.keystore import KeysetPage, KeyStore

# Whole key sets of up to 16 versions each: a page stays under 2 MiB.
MAX_PAGE = 1000
MAX_REMEMBERED_POLLS = 20_000


def new_secret() -> bytes:
    """A secret that nobody has seen."""
    return secrets.token_bytes(SECRET_BYTES)


class Keysets:
    """The key sets of every source."""

    def __init__(
        self,
        *,
        store: KeyStore,
        clock: Clock,
        delay_ns: int,
        overlap_ns: int,
        secret: Callable[[], bytes] = new_secret,
    ) -> None:
        self._store = store
        self._clock = clock
        self._delay_ns = delay_ns
        self._overlap_ns = overlap_ns
        self._secret = secret
        self._polls: OrderedDict[str, int] = OrderedDict()
        self._log = structlog.get_logger()

    async def create(self, source: str, *, actor: str) -> Keyset:
        """The first key of a source, or the key set that it has already."""
        require_source(source, "source")
        now = self._clock.unix_ns()
        fresh = create(source, secret=self._secret(), now_ns=now)
        keyset = await self._store.update_keyset(source, lambda before: before or fresh)
        if keyset is fresh:
            self._log.info("keyset created", source=source, actor=actor)
        return keyset

    async def rotate(self, source: str, *, actor: str) -> Keyset:
        """A new version that becomes primary after the distribution delay."""
        now, secret = self._clock.unix_ns(), self._secret()

        def decide(before: Keyset | None) -> Keyset:
            return rotate(
                _present(before, source),
                secret=secret,
                now_ns=now,
                delay_ns=self._delay_ns,
                overlap_ns=self._overlap_ns,
            )

        keyset = await self._store.update_keyset(source, decide)
        self._log.info("keyset rotated", source=source, actor=actor, added=keyset.versions[-1].name)
        return keyset

    async def revoke(self, source: str, key_version: str, *, actor: str) -> Keyset:
        """End a version at once."""
        now, secret = self._clock.unix_ns(), self._secret()
        keyset = await self._store.update_keyset(
            source, lambda before: revoke(_present(before, source), key_version, secret=secret, now_ns=now)
        )
        self._log.warning("key revoked", source=source, actor=actor, key_version=key_version)
        return keyset

    async def changes(self, since: int, *, limit: int) -> KeysetPage:
        """What changed after a version; for Shield."""
        return await self._store.keysets_since(since, limit=min(limit, MAX_PAGE) or MAX_PAGE)

    async def of(self, source: str) -> Keyset:
        """A source's own key set, as its producer polls it."""
        keyset = _present(await self._store.keyset(source), source)
        # Least recently polled goes first; a source that falls out only looks as if it had not polled.
        self._polls[source] = self._clock.unix_ns()
        self._polls.move_to_end(source)
        if len(self._polls) > MAX_REMEMBERED_POLLS:
            self._polls.popitem(last=False)
        return keyset

    def polled_at_ns(self, source: str) -> int | None:
        """When a source asked for its keys last, since this process began."""
        return self._polls.get(source)


def _present(keyset: Keyset | None, source: str) -> Keyset:
    if keyset is None:
        raise NotFound(f"{source} has no key set.", reason="no-keyset")
    return keyset
