"""Signer's key store as one sealed file that every write replaces as a whole.

Never writes a secret in the clear, never opens a file that was cut, changed or sealed with another key, and
never acknowledges a write before file and folder are on disk.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

from snavio.adapters.embedded.files import replace_private_file
from snavio.adapters.embedded.keystore_document import Contents, decode, encode
from snavio.adapters.embedded.sealing import SealingKey
from snavio.adapters.embedded.sqlite import StoreLock
from snavio.domain.delegation import Delegation
from snavio.domain.enrolment import Enrolments
from snavio.domain.keyset import Keyset
from snavio.domain.signing_scope import Scope
from snavio.errors import Conflict, Saturated, StateError, Unavailable
from snavio.ports.keystore import (
    Authority,
    KeysetPage,
    KeySurvey,
    Revocation,
    RevocationPage,
    SnapshotKey,
)
from snavio.worker import Worker

MAGIC = b"SNAVIOKS"
FORMAT_VERSION = 2
# Every write costs the whole file, about 5 MB at this size. More sources want another adapter.
MAX_KEYSETS = 20_000
MAX_REVOCATIONS = 50_000
MAX_SCOPES = 20_000

T = TypeVar("T")
V = TypeVar("V")


class SealedKeyStore:
    """A `KeyStore`; the contents are also kept in memory, so reads cost nothing."""

    def __init__(self, path: Path, *, key: SealingKey, lock: StoreLock, worker: Worker) -> None:
        self._path = path
        self._key = key
        self._lock = lock
        self._worker = worker
        self._contents: Contents | None = None

    @classmethod
    async def open(cls, path: Path, *, key: SealingKey, create: bool = False) -> Self:
        """Open the store at `path`, or make an empty one there if `create` says so and there is none."""
        worker = Worker("key store")
        try:
            return await worker.run(lambda: cls._open(path, key=key, create=create, worker=worker))
        except BaseException:
            await worker.close(lambda: None)
            raise

    @classmethod
    def _open(cls, path: Path, *, key: SealingKey, create: bool, worker: Worker) -> Self:
        if not create and not path.exists():
            raise StateError(
                f"{path} does not exist; `python -m services.signer init` makes it.", reason="no-store"
            )
        lock = StoreLock(path)
        try:
            store = cls(path, key=key, lock=lock, worker=worker)
            if path.exists():
                store._load()
            else:
                store._save(Contents(store_epoch=_epoch()))
        except BaseException:
            lock.release()
            raise
        return store

    async def close(self) -> None:
        await self._worker.close(self._lock.release)

    async def authority(self) -> Authority | None:
        return await self._read(lambda contents: contents.authority)

    async def put_authority(self, authority: Authority) -> None:
        def change(contents: Contents) -> tuple[Contents, None]:
            if contents.authority is not None:
                raise Conflict("This installation has a CA already.", reason="authority-exists")
            return replace(contents, version=contents.version + 1, authority=authority), None

        await self._write(change)

    async def keyset(self, source: str) -> Keyset | None:
        return await self._read(lambda contents: contents.keysets.get(source, (0, None))[1])

    async def update_keyset(self, source: str, decide: Callable[[Keyset | None], Keyset]) -> Keyset:
        def change(contents: Contents) -> tuple[Contents, Keyset]:
            before = contents.keysets.get(source, (0, None))[1]
            after = decide(before)
            if after == before:
                return contents, after
            if before is None and len(contents.keysets) >= MAX_KEYSETS:
                raise Saturated(
                    f"The key store holds {MAX_KEYSETS} sources and is full.", retry_after_ms=60_000
                )
            version = contents.version + 1
            return replace(
                contents, version=version, keysets=_moved_last(contents.keysets, source, (version, after))
            ), after

        return await self._write(change)

    async def keysets_of(self, sources: Collection[str]) -> dict[str, Keyset]:
        def pick(contents: Contents) -> dict[str, Keyset]:
            return {source: contents.keysets[source][1] for source in sources if source in contents.keysets}

        return await self._read(pick)

    async def keysets(self, *, after: str = "", limit: int) -> tuple[Keyset, ...]:
        def page(contents: Contents) -> tuple[Keyset, ...]:
            names = heapq.nsmallest(limit, (name for name in contents.keysets if name > after))
            return tuple(contents.keysets[name][1] for name in names)

        return await self._read(page)

    async def keysets_since(self, version: int, *, limit: int) -> KeysetPage:
        if version > await self._read(lambda contents: contents.version):
            await self.renew_epoch()
            version = 0

        def page(contents: Contents) -> KeysetPage:
            newer = _newer(contents.keysets, version)
            taken = newer[:limit]
            more = len(newer) > limit
            return KeysetPage(
                store_epoch=contents.store_epoch,
                version=taken[-1][0] if more else contents.version,
                keysets=tuple(keyset for _, keyset in taken),
                more=more,
            )

        return await self._read(page)

    async def revoke(self, revocation: Revocation, *, now_ns: int) -> int:
        return await self.revoke_all([revocation], now_ns=now_ns)

    async def revoke_all(self, revocations: Sequence[Revocation], *, now_ns: int) -> int:
        def change(contents: Contents) -> tuple[Contents, int]:
            fresh = {entry.serial: entry for entry in revocations if entry.serial not in contents.revocations}
            if not fresh:
                return contents, max((contents.revocations[e.serial][0] for e in revocations), default=0)
            kept = {
                serial: entry
                for serial, entry in contents.revocations.items()
                if entry[1].forget_at_ns > now_ns
            }
            if len(kept) + len(fresh) > MAX_REVOCATIONS:
                raise Saturated("The certificate denylist is full.", retry_after_ms=60_000)
            # A version each: a page of the denylist ends at a version, and must not end inside of one.
            version = contents.version
            for revocation in fresh.values():
                version += 1
                kept[revocation.serial] = (version, revocation)
            return replace(contents, version=version, revocations=kept), version

        return await self._write(change)

    async def revocations_since(self, version: int, *, now_ns: int, limit: int) -> RevocationPage:
        def page(contents: Contents) -> RevocationPage:
            newer = _newer(contents.revocations, version if version <= contents.version else 0)
            taken = newer[:limit]
            return RevocationPage(
                version=taken[-1][0] if len(newer) > limit else contents.version,
                revocations=tuple(entry for _, entry in taken if entry.forget_at_ns > now_ns),
            )

        return await self._read(page)

    async def survey(self, *, now_ns: int) -> KeySurvey:
        def take(contents: Contents) -> KeySurvey:
            return KeySurvey(
                contents.store_epoch,
                contents.version,
                tuple(keyset for _, keyset in contents.keysets.values()),
                tuple(
                    revocation.serial
                    for _, revocation in contents.revocations.values()
                    if revocation.forget_at_ns > now_ns
                ),
            )

        return await self._read(take)

    async def snapshot_key(self, decide: Callable[[SnapshotKey | None], SnapshotKey]) -> SnapshotKey:
        def change(contents: Contents) -> tuple[Contents, SnapshotKey]:
            after = decide(contents.snapshot_key)
            if after == contents.snapshot_key:
                return contents, after
            return replace(contents, version=contents.version + 1, snapshot_key=after), after

        return await self._write(change)

    async def polls(self) -> dict[str, int]:
        return await self._read(lambda contents: dict(contents.polls))

    async def record_polls(self, polls: Mapping[str, int]) -> None:
        def change(contents: Contents) -> tuple[Contents, None]:
            newer = {
                source: at
                for source, at in polls.items()
                if source in contents.keysets and at > contents.polls.get(source, 0)
            }
            if not newer:
                return contents, None
            return replace(contents, version=contents.version + 1, polls={**contents.polls, **newer}), None

        await self._write(change)

    async def claim_turn(self, name: str, *, now_ns: int, until_ns: int) -> bool:
        def change(contents: Contents) -> tuple[Contents, bool]:
            claimed, until = contents.turns.get(name, (0, 0))
            if claimed <= now_ns < until:
                return contents, False
            turns = {**contents.turns, name: (now_ns, until_ns)}
            return replace(contents, version=contents.version + 1, turns=turns), True

        return await self._write(change)

    async def scope(self, name: str) -> Scope | None:
        return await self._read(lambda contents: contents.scopes.get(name))

    async def scopes(self) -> tuple[Scope, ...]:
        return await self._read(lambda contents: tuple(contents.scopes.values()))

    async def update_scope(self, name: str, decide: Callable[[Scope | None], Scope]) -> Scope:
        def change(contents: Contents) -> tuple[Contents, Scope]:
            before = contents.scopes.get(name)
            after = decide(before)
            if after == before:
                return contents, after
            if before is None and len(contents.scopes) >= MAX_SCOPES:
                raise Saturated(
                    f"The key store holds {MAX_SCOPES} scopes and is full.", retry_after_ms=60_000
                )
            scopes = {**contents.scopes, name: after}
            return replace(contents, version=contents.version + 1, scopes=scopes), after

        return await self._write(change)

    async def enrolments(self) -> Enrolments:
        return await self._read(lambda contents: contents.enrolments)

    async def update_enrolments(self, decide: Callable[[Enrolments], Enrolments]) -> Enrolments:
        def change(contents: Contents) -> tuple[Contents, Enrolments]:
            after = decide(contents.enrolments)
            if after == contents.enrolments:
                return contents, after
            return replace(contents, version=contents.version + 1, enrolments=after), after

        return await self._write(change)

    async def delegation(self, source: str) -> Delegation | None:
        return await self._read(lambda contents: contents.delegations.get(source))

    async def put_delegation(self, source: str, delegation: Delegation | None) -> Delegation | None:
        def change(contents: Contents) -> tuple[Contents, Delegation | None]:
            before = contents.delegations.get(source)
            if delegation == before:
                return contents, before
            if before is None and len(contents.delegations) >= MAX_KEYSETS:
                raise Saturated(
                    f"The key store holds {MAX_KEYSETS} services and is full.", retry_after_ms=60_000
                )
            kept = {name: entry for name, entry in contents.delegations.items() if name != source}
            if delegation is not None:
                kept[source] = delegation
            return replace(contents, version=contents.version + 1, delegations=kept), before

        return await self._write(change)

    async def renew_epoch(self) -> int:
        def change(contents: Contents) -> tuple[Contents, int]:
            epoch = _epoch()
            return replace(contents, version=contents.version + 1, store_epoch=epoch), epoch

        return await self._write(change)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _read(self, question: Callable[[Contents], T]) -> T:
        return await self._worker.run(lambda: question(self._contents or self._load()))

    async def _write(self, change: Callable[[Contents], tuple[Contents, T]]) -> T:
        def write() -> T:
            before = self._contents or self._load()
            after, answer = change(before)
            if after is not before:
                self._save(after)
            return answer

        return await self._worker.run(write)

    def _load(self) -> Contents:
        try:
            sealed = self._path.read_bytes()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}.") from error
        name = str(self._path)
        plain = self._key.unseal(sealed, magic=MAGIC, format_version=FORMAT_VERSION, name=name)
        self._contents = decode(plain, name=name)
        return self._contents

    def _save(self, contents: Contents) -> None:
        # Forgotten first: if the write fails half-way, what counts is what the disk says when asked again.
        # Going on with either version from memory could give one version number to two different writes.
        self._contents = None
        sealed = self._key.seal(encode(contents), magic=MAGIC, format_version=FORMAT_VERSION)
        try:
            replace_private_file(self._path, sealed)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror}.") from error
        self._contents = contents


def _epoch() -> int:
    return secrets.randbits(63) | 1


def _moved_last(
    entries: dict[str, tuple[int, V]], name: str, entry: tuple[int, V]
) -> dict[str, tuple[int, V]]:
    moved = {**entries}
    moved.pop(name, None)
    moved[name] = entry
    return moved


def _newer(entries: dict[str, tuple[int, V]], version: int) -> list[tuple[int, V]]:
    """Entries after `version`, oldest first; the cost is what changed, not what is there."""
    newer: list[tuple[int, V]] = []
    for entry in reversed(entries.values()):
        if entry[0] <= version:
            break
        newer.append(entry)
    newer.reverse()
    return newer
