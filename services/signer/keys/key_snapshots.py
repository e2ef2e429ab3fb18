"""Publishes key sets and denylist as a sealed snapshot, from which Shield starts while Signer is away.

Never lets a secret leave unsealed, never publishes what Shield could not open, and never fails a request: when
something goes wrong the snapshot before stays, and it is counted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from services.signer.keys.signatures import Signatures
from snavio.clock import Clock
from snavio.domain.keyset import Keyset
from snavio.domain.lineage import is_serial
from snavio.domain.signing_scope import PLATFORM
from snavio.errors import NotFound
from snavio.native import blake3_hex
from snavio.ports.archive import Archive
from snavio.ports.keystore import KeyStore, KeySurvey, SnapshotKey
from snavio.signed.publisher import Publisher, PublishingMeter
from snavio.signed.sealed_part import KEY_BYTES, seal, unseal
from snavio.signed.snapshot_manifest import HMAC, Manifest, ManifestPart, part_path
from snavio.signed.snapshot_reader import MAX_SNAPSHOT_BYTES
from snavio.signed.verification import KEYSETS, VerifyingKey, verify_part
from snavio.telemetry.events import EventJournal, SnapshotFailed
from snavio.v1.signer_pb2 import Keyset as WireKeyset
from snavio.v1.signer_pb2 import KeyVersion as WireKeyVersion
from snavio.v1.signer_pb2 import RevokedSubject
from snavio.v1.snapshot_pb2 import SealedKeys


class KeySnapshots:
    """Call `turn` about every half minute: what it publishes is as old as the last call."""

    def __init__(
        self,
        *,
        store: KeyStore,
        archive: Archive,
        signatures: Signatures,
        clock: Clock,
        lifetime_s: float,
        key_life_ns: int,
        events: EventJournal,
    ) -> None:
        self._store = store
        self._signatures = signatures
        self._clock = clock
        self._key_life_ns = key_life_ns
        self._publisher = Publisher(
            archive=archive,
            sign=signatures.sign_own,
            keys=self.verifying,
            clock=clock,
            lifetime_s=lifetime_s,
            max_bytes=MAX_SNAPSHOT_BYTES,
        )
        # Two rounds at once would seal one version twice, and one's manifest would name the other's bytes.
        self._one_at_a_time = asyncio.Lock()
        self.meter = PublishingMeter(
            clock,
            what="snapshot of key sets",
            unreadable="bad-part",
            tell=lambda reason, detail: events.record(
                SnapshotFailed(reason, detail), at_unix_ns=clock.unix_ns()
            ),
        )

    async def turn(self) -> None:
        """Publish the key sets, or a new time if they have not changed; a failure is counted and logged, not raised."""
        async with self._one_at_a_time:
            await self.meter.guarded(self._publish)

    async def opening_key(self) -> bytes:
        """The key with which Shield opens snapshots; as old as an HMAC key gets at the most."""
        now = self._clock.unix_ns()

        def decide(before: SnapshotKey | None) -> SnapshotKey:
            # A key from the future is one of a clock that was set back; waiting for it would keep it for ever.
            if before is not None and 0 <= now - before.made_ns < self._key_life_ns:
                return before
            return SnapshotKey(secrets.token_bytes(KEY_BYTES), now)

        return (await self._store.snapshot_key(decide)).key

    async def verifying(self) -> Sequence[VerifyingKey]:
        """The platform's public keys that are valid now or soon."""
        try:
            scope = await self._signatures.of(PLATFORM)
        except NotFound:
            return ()
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_ns, key.valid_until_ns)
            for key in scope.verifying(self._clock.unix_ns())
        ]

    async def _publish(self) -> None:
        """Write the manifest, and the part if it changed."""
        # Both write on their first time, and so come before the store is surveyed.
        key = await self.opening_key()
        await self._signatures.provision(PLATFORM, actor="signer")
        before = await self._publisher.published(HMAC)
        # The age of everything in it counts from here.
        generated_unix_ns = self._clock.unix_ns()
        survey = await self._store.survey(now_ns=generated_unix_ns)
        if before.is_newer_than(survey.version, survey.store_epoch):
            # Our own signature proves that the store was ahead once: it came from a backup. Without a new epoch its
            # next writes would take numbers that Shields have seen on other key sets.
            self.meter.went_back("key store", survey.version)
            await self._store.renew_epoch()
            survey = await self._store.survey(now_ns=generated_unix_ns)
        found = before.manifest
        if found is not None and before.holds(survey.version, survey.store_epoch):
            # Nothing has changed: the same part is as true as if it were sealed now.
            await self._publisher.publish(
                await self._publisher.signed(self._draft(survey, generated_unix_ns, found.parts)), before
            )
            return
        contents = await asyncio.to_thread(_sealed, survey, key)
        part = ManifestPart(
            KEYSETS,
            part_path(KEYSETS, version=survey.version, epoch=survey.store_epoch),
            len(contents),
            len(survey.keysets),
            blake3_hex(contents),
        )
        manifest = await self._publisher.signed(self._draft(survey, generated_unix_ns, (part,)))
        # As Shield will: what it could not open is worth less than the old snapshot.
        await asyncio.to_thread(_check, part, contents, manifest, key)
        await self._publisher.put(part, contents)
        await self._publisher.publish(manifest, before)
        self.meter.size_bytes = len(contents)
        await self._publisher.prune((KEYSETS,), kept={part.path, *before.paths})
        self.meter.generated()

    def _draft(self, survey: KeySurvey, generated_unix_ns: int, parts: tuple[ManifestPart, ...]) -> Manifest:
        return self._publisher.draft(
            HMAC,
            version=survey.version,
            epoch=survey.store_epoch,
            generated_unix_ns=generated_unix_ns,
            parts=parts,
        )


def _sealed(survey: KeySurvey, key: bytes) -> bytes:
    plain = SealedKeys(
        keyset=[_wire(keyset) for keyset in survey.keysets],
        revoked_serial=[entry.subject for entry in survey.revoked if is_serial(entry.subject)],
        revoked=[
            RevokedSubject(subject=entry.subject, issued_before_unix_ns=entry.before_ns)
            for entry in survey.revoked
        ],
    ).SerializeToString()
    return seal(plain, key=key, rows=len(survey.keysets), version=survey.version, epoch=survey.store_epoch)


def _wire(keyset: Keyset) -> WireKeyset:
    return WireKeyset(
        source=keyset.source,
        version=[
            WireKeyVersion(
                version=version.name,
                secret=version.secret,
                not_before_unix_ns=version.not_before_ns,
                not_after_unix_ns=version.not_after_ns,
                primary_from_unix_ns=version.primary_from_ns,
                revoked=version.revoked,
            )
            for version in keyset.versions
        ],
    )


def _check(part: ManifestPart, contents: bytes, manifest: Manifest, key: bytes) -> None:
    verify_part(part, contents, of=manifest)
    unseal(contents, key=key)
