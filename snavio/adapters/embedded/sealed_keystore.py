"""Signer's key store on one sealed file.

Never changes contents in place: each write creates new contents with their own version.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from snavio.adapters.embedded.keystore_document import Contents
from snavio.adapters.embedded.keystore_versions import (
    MAX_KEYSETS,
    keysets_after,
    revocations_after,
    with_epoch,
    with_keyset,
)
from snavio.adapters.embedded.revocation_entries import holders_of, with_revocations
from snavio.adapters.embedded.sealed_file import SealedFile, new_epoch
from snavio.adapters.embedded.sealing import SealingKey
from snavio.domain.delegation import Delegation
from snavio.domain.enrolment import Enrolments
from snavio.domain.key_rollout import Holder
from snavio.domain.keyset import Keyset
from snavio.domain.signing_scope import Scope
from snavio.errors import Conflict, Saturated
from snavio.host.shares import ShareLimit
from snavio.ports.keystore import (
    Authority,
    KeysetPage,
    KeySurvey,
    Revocation,
    RevocationPage,
    SnapshotKey,
    Spread,
)

MAX_SCOPES = 20_000


class SealedKeyStore:
    """A `KeyStore`."""

    def __init__(self, file: SealedFile) -> None:
        self._file = file

    @classmethod
    async def open(cls, path: Path, *, key: SealingKey, create: bool = False) -> Self:
        """Open the store at `path`; create an empty one if there is none and `create` is set."""
        return cls(await SealedFile.open(path, key=key, create=create))

    async def close(self) -> None:
        await self._file.close()

    async def authority(self) -> Authority | None:
        return await self._file.read(lambda contents: contents.authority)

    async def put_authority(self, authority: Authority) -> None:
        def change(contents: Contents) -> tuple[Contents, None]:
            if contents.authority is not None:
                raise Conflict("This installation has a CA already.", reason="authority-exists")
            return contents.changed(authority=authority), None

        await self._file.write(change)

    async def keyset(self, source: str) -> Keyset | None:
        return await self._file.read(lambda contents: contents.keysets.get(source, (0, None))[1])

    async def update_keyset(self, source: str, decide: Callable[[Keyset | None], Keyset]) -> Keyset:
        def change(contents: Contents) -> tuple[Contents, Keyset]:
            before = contents.keysets.get(source, (0, None))[1]
            after = decide(before)
            return (contents if after == before else with_keyset(contents, source, after)), after

        return await self._file.write(change)

    async def keysets_of(self, sources: Collection[str]) -> dict[str, Keyset]:
        def pick(contents: Contents) -> dict[str, Keyset]:
            return {source: contents.keysets[source][1] for source in sources if source in contents.keysets}

        return await self._file.read(pick)

    async def keysets(self, *, after: str = "", limit: int) -> tuple[Keyset, ...]:
        def page(contents: Contents) -> tuple[Keyset, ...]:
            names = heapq.nsmallest(limit, (name for name in contents.keysets if name > after))
            return tuple(contents.keysets[name][1] for name in names)

        return await self._file.read(page)

    async def keysets_since(self, version: int, *, limit: int) -> KeysetPage:
        if version > await self._file.read(lambda contents: contents.version):
            await self.renew_epoch()
            version = 0
        return await self._file.read(lambda contents: keysets_after(contents, version, limit=limit))

    async def written(self, sources: Collection[str]) -> dict[str, int]:
        return await self._file.read(
            lambda contents: {
                source: contents.keysets[source][0] for source in sources if source in contents.keysets
            }
        )

    async def spread(self) -> Spread:
        def take(contents: Contents) -> Spread:
            waiting = tuple(
                entry
                for entry in contents.keysets.values()
                if entry[1].versions[-1].undecided and not entry[1].versions[-1].revoked
            )
            return Spread(contents.store_epoch, waiting, tuple(contents.holders.values()))

        return await self._file.read(take)

    async def holders(self) -> tuple[int, tuple[Holder, ...]]:
        return await self._file.read(
            lambda contents: (contents.store_epoch, tuple(contents.holders.values()))
        )

    async def record_holders(self, heard: Collection[Holder], *, gone: Collection[str] = ()) -> None:
        def change(contents: Contents) -> tuple[Contents, None]:
            holders = {**contents.holders, **{holder.name: holder for holder in heard}}
            holders = {name: holder for name, holder in holders.items() if name not in gone}
            return contents.changed(holders=holders), None

        await self._file.write(change)

    async def revoke(self, revocation: Revocation, *, now_ns: int) -> int:
        return await self.revoke_all([revocation], now_ns=now_ns)

    async def revoke_all(
        self, revocations: Sequence[Revocation], *, now_ns: int, limit: ShareLimit | None = None
    ) -> int:
        return await self._file.write(
            lambda contents: with_revocations(contents, revocations, now_ns=now_ns, limit=limit)
        )

    async def revocation_holders(self) -> dict[str, int]:
        return await self._file.read(
            lambda contents: dict(holders_of(entry for _, entry in contents.revocations.values()))
        )

    async def latest_revoked_ns(self) -> int:
        return await self._file.read(
            lambda contents: max(
                (entry.before_ns for _, entry in contents.revocations.values() if entry.counted), default=0
            )
        )

    async def revocations_since(self, version: int, *, now_ns: int, limit: int) -> RevocationPage:
        return await self._file.read(
            lambda contents: revocations_after(contents, version, now_ns=now_ns, limit=limit)
        )

    async def survey(self, *, now_ns: int) -> KeySurvey:
        def take(contents: Contents) -> KeySurvey:
            return KeySurvey(
                contents.store_epoch,
                contents.version,
                tuple(keyset for _, keyset in contents.keysets.values()),
                tuple(
                    revocation.entry
                    for _, revocation in contents.revocations.values()
                    if revocation.forget_at_ns > now_ns
                ),
            )

        return await self._file.read(take)

    async def snapshot_key(self, decide: Callable[[SnapshotKey | None], SnapshotKey]) -> SnapshotKey:
        def change(contents: Contents) -> tuple[Contents, SnapshotKey]:
            after = decide(contents.snapshot_key)
            return contents.changed(snapshot_key=after), after

        return await self._file.write(change)

    async def polls(self) -> dict[str, int]:
        return await self._file.read(lambda contents: dict(contents.polls))

    async def record_polls(self, polls: Mapping[str, int]) -> None:
        def change(contents: Contents) -> tuple[Contents, None]:
            newer = {
                source: at
                for source, at in polls.items()
                if source in contents.keysets and at > contents.polls.get(source, 0)
            }
            return contents.changed(polls={**contents.polls, **newer}), None

        await self._file.write(change)

    async def claim_turn(self, name: str, *, now_ns: int, until_ns: int) -> bool:
        def change(contents: Contents) -> tuple[Contents, bool]:
            claimed, until = contents.turns.get(name, (0, 0))
            if claimed <= now_ns < until:
                return contents, False
            turns = {**contents.turns, name: (now_ns, until_ns)}
            return contents.changed(turns=turns), True

        return await self._file.write(change)

    async def scope(self, name: str) -> Scope | None:
        return await self._file.read(lambda contents: contents.scopes.get(name))

    async def scopes(self) -> tuple[Scope, ...]:
        return await self._file.read(lambda contents: tuple(contents.scopes.values()))

    async def update_scope(self, name: str, decide: Callable[[Scope | None], Scope]) -> Scope:
        def change(contents: Contents) -> tuple[Contents, Scope]:
            before = contents.scopes.get(name)
            after = decide(before)
            if before is None and len(contents.scopes) >= MAX_SCOPES:
                raise Saturated(
                    f"The key store holds {MAX_SCOPES} scopes and is full.", retry_after_ms=60_000
                )
            return contents.changed(scopes={**contents.scopes, name: after}), after

        return await self._file.write(change)

    async def enrolments(self) -> Enrolments:
        return await self._file.read(lambda contents: contents.enrolments)

    async def update_enrolments(self, decide: Callable[[Enrolments], Enrolments]) -> Enrolments:
        def change(contents: Contents) -> tuple[Contents, Enrolments]:
            after = decide(contents.enrolments)
            return contents.changed(enrolments=after), after

        return await self._file.write(change)

    async def delegation(self, source: str) -> Delegation | None:
        return await self._file.read(lambda contents: contents.delegations.get(source))

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
            return contents.changed(delegations=kept), before

        return await self._file.write(change)

    async def renew_epoch(self) -> int:
        def change(contents: Contents) -> tuple[Contents, int]:
            epoch = new_epoch()
            return with_epoch(contents, epoch), epoch

        return await self._file.write(change)
