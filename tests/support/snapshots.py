"""A directory, an archive and a platform key for tests of snapshots, with everything that can be done to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from services.registry.snapshots import SnapshotPlan, SnapshotWriter
from snavio.adapters.embedded.folder_archive import FileWatermark, FolderArchive
from snavio.clock import ManualClock
from snavio.domain.directory import AclEntry, Draft, Profile, Route, Suspension, Value
from snavio.errors import SnavioError
from snavio.native import ed25519_public_key, ed25519_sign
from snavio.signed.snapshot_manifest import PLACES, SNAPSHOT, Manifest, read_manifest
from snavio.signed.snapshot_reader import Refused, SnapshotReader
from snavio.signed.snapshot_refusal import RefusalReason
from snavio.signed.verification import (
    ACL,
    BANS,
    ROUTES,
    SUSPENSIONS,
    TERMS,
    VerifiedSnapshot,
    VerifyingKey,
    examine,
)
from snavio.telemetry.events import EventJournal
from tests.support.memory_directory import MemoryDirectory

SECOND = 1_000_000_000
PARTS = (ROUTES, ACL, SUSPENSIONS, BANS, TERMS)


@dataclass
class Platform:
    """Signs as Signer would; tests change the key, take it away, or let it fail."""

    seed: bytes = bytes(range(32))
    key_id: str = "ed25519-one"
    valid_from_unix_ns: int = 0
    valid_until_unix_ns: int = 0
    known: bool = True
    failing: SnavioError | None = None
    asked: int = 0

    async def sign(self, message: bytes) -> tuple[str, bytes]:
        self.asked += 1
        if self.failing is not None:
            raise self.failing
        return self.key_id, ed25519_sign(self.seed, message)

    async def verifying(self) -> Sequence[VerifyingKey]:
        if self.failing is not None:
            raise self.failing
        key = VerifyingKey(
            self.key_id, ed25519_public_key(self.seed), self.valid_from_unix_ns, self.valid_until_unix_ns
        )
        return [key] if self.known else []


@dataclass
class Studio:
    """Everything around one archive."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    platform: Platform = field(default_factory=Platform)
    plan: SnapshotPlan = field(
        default_factory=lambda: SnapshotPlan(interval_s=30, lifetime_s=3600, max_bytes=1 << 20)
    )

    def __post_init__(self) -> None:
        self.events = EventJournal(epoch=1)
        self.directory = MemoryDirectory(clock=self.clock)
        self.archive = FolderArchive(self.folder)
        self.writer = self.new_writer()
        self.reader = self.new_reader("fast-0")

    def new_writer(self, **changed: Any) -> SnapshotWriter:
        given: dict[str, Any] = {
            "directory": self.directory,
            "archive": self.archive,
            "sign": self.platform.sign,
            "keys": self.platform.verifying,
            "clock": self.clock,
            "plan": self.plan,
            "events": self.events,
        }
        return SnapshotWriter(**{**given, **changed})

    def new_reader(self, name: str) -> SnapshotReader:
        return SnapshotReader(
            archive=self.archive,
            keys=self.platform.verifying,
            watermark=FileWatermark(self.folder / "marks" / name),
            clock=self.clock,
        )

    async def put(self, *values: Value) -> None:
        await self.directory.write(lambda _view: [Draft(value) for value in values], actor="test")

    async def fill(self, rows: int = 3) -> None:
        for row in range(rows):
            await self.put(
                Route("bot", f"say{row}", profile=Profile.MODERATE).addressed_to("acme"),
                AclEntry("acme/shop", "bot", f"say{row}"),
            )
        await self.put(Suspension("acme/evil", "too loud"))

    async def load(self, reader: SnapshotReader | None = None) -> VerifiedSnapshot | Refused:
        """A snapshot as a service would get it: verified, and read whole."""

        def use(snapshot: VerifiedSnapshot) -> VerifiedSnapshot:
            examine(snapshot)
            return snapshot

        return await (reader or self.reader).load(PARTS, use)

    async def refusal(self, reader: SnapshotReader | None = None) -> RefusalReason | None:
        loaded = await self.load(reader)
        return loaded.refusal if isinstance(loaded, Refused) else None

    @property
    def manifest_path(self) -> Path:
        return self.folder / PLACES[SNAPSHOT]

    def manifest(self) -> Manifest:
        return read_manifest(self.manifest_path.read_bytes()).manifest

    def part_path(self, name: str) -> Path:
        return self.folder / self.manifest().part(name).path

    def resign(self, change: Callable[[Manifest], Manifest]) -> None:
        """Puts a changed manifest in its place, well signed."""
        changed = replace(change(self.manifest()), key_id=self.platform.key_id)
        signed = replace(changed, signature=ed25519_sign(self.platform.seed, changed.signed_form()))
        self.manifest_path.write_bytes(signed.encoded())

    def rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the manifest's JSON and leaves the signature."""
        document = orjson.loads(self.manifest_path.read_bytes())
        change(document)
        self.manifest_path.write_bytes(orjson.dumps(document))
