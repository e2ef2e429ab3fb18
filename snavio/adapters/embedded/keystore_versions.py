"""Entries of the key store by the version that wrote them: entries newer than a reader's version, and new versions.

Pure. Entries are in order of version, so the cost depends on the changes and not on the size of the store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from snavio.adapters.embedded.keystore_document import Contents
from snavio.domain.keyset import Keyset
from snavio.errors import Saturated
from snavio.ports.keystore import KeysetPage, RevocationPage

# Every write rewrites the whole file, about 5 MB at this size. More sources need another adapter.
MAX_KEYSETS = 20_000
# More writes than a store makes between a backup and its restore.
EPOCH_STEP = 1 << 32

V = TypeVar("V")


def with_keyset(contents: Contents, source: str, keyset: Keyset) -> Contents:
    """The contents with this key set last; Saturated when the store is full."""
    if source not in contents.keysets and len(contents.keysets) >= MAX_KEYSETS:
        raise Saturated(f"The key store holds {MAX_KEYSETS} sources and is full.", retry_after_ms=60_000)
    version = contents.version + 1
    moved = {**contents.keysets}
    moved.pop(source, None)
    moved[source] = (version, keyset)
    return replace(contents, version=version, keysets=moved)


def keysets_after(contents: Contents, version: int, *, limit: int) -> KeysetPage:
    """Key sets that were written after `version`, oldest first."""
    newer = _newer(contents.keysets, version)
    taken = newer[:limit]
    more = len(newer) > limit
    return KeysetPage(
        store_epoch=contents.store_epoch,
        version=taken[-1][0] if more else contents.version,
        keysets=tuple(keyset for _, keyset in taken),
        more=more,
    )


def revocations_after(contents: Contents, version: int, *, now_ns: int, limit: int) -> RevocationPage:
    """The denylist after `version`; all of it for a reader who is ahead of the store."""
    newer = _newer(contents.revocations, version if version <= contents.version else 0)
    taken, more = newer[:limit], len(newer) > limit
    return RevocationPage(
        version=taken[-1][0] if more else contents.version,
        revocations=tuple(entry for _, entry in taken if entry.forget_at_ns > now_ns),
        more=more,
    )


def with_epoch(contents: Contents, epoch: int) -> Contents:
    """The contents under a new epoch, with every revocation under a new version.

    Readers of the denylist know versions and no epochs: had two histories used one version for different revocations, a
    reader of the first would never get those of the second. So every revocation is published again, under versions that
    the earlier history cannot have reached.
    """
    version = contents.version + EPOCH_STEP
    revocations = {
        serial: (version + place, revocation)
        for place, (serial, (_, revocation)) in enumerate(contents.revocations.items(), 1)
    }
    return replace(contents, version=version + len(revocations), store_epoch=epoch, revocations=revocations)


def _newer(entries: dict[str, tuple[int, V]], version: int) -> list[tuple[int, V]]:
    newer: list[tuple[int, V]] = []
    for entry in reversed(entries.values()):
        if entry[0] <= version:
            break
        newer.append(entry)
    newer.reverse()
    return newer
