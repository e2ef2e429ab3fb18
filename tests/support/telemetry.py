"""Journal blocks written with the protobuf library alone, and the inside of a Relay without its server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from services.relay.compaction import ArchiveCompaction
from services.relay.export_plan import ExportSchedule
from services.relay.exporter import Exporter
from services.relay.gaps import Arrival
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from services.relay.retention import ArchiveRetention
from snavio.clock import ManualClock
from snavio.native import Tombstones, ed25519_public_key, ed25519_sign, read_journal_page
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import ArchiveFinding, check, hours, overlaps
from snavio.telemetry.archive_query import ask
from snavio.telemetry.missing_events import missing
from snavio.v1.relay_pb2 import JournalPage
from snavio.v1.telemetry_pb2 import TelemetryBlock
from snavio.wiring import open_archive, open_outbox

NOW = 1_794_794_400_000_000_000
"""2026-11-16T02:00:00Z."""
SEED = bytes(range(32))
SOURCE, TARGET, NAME = "acme/billing", "discord-bot", "delete-user"


def block(
    verdicts: Sequence[int],
    *,
    kinds: Sequence[int] = (),
    service: str = "fast",
    settled: int = NOW,
    admitted: int = NOW - 5_000_000,
    sent: int = NOW - 6_000_000,
    lane: dict[str, Any] | None = None,
    details: Sequence[dict[str, Any]] = (),
    events: Sequence[tuple[str, dict[str, Any]]] = (),
) -> TelemetryBlock:
    """Rows of one lane and one run, then events."""
    rows = len(verdicts)
    return TelemetryBlock(
        service=service,
        settled_unix_ns=settled,
        dictionary=["", SOURCE, TARGET, NAME, "acme/discord-bot", "hmac-v1"] if rows else [],
        command_id=b"".join(uuid.UUID(int=row + 1).bytes for row in range(rows)),
        verdict=bytes(verdicts),
        sent_unix_ns=[sent] * rows,
        kind=bytes(kinds),
        lane=[0] * rows,
        run=[0] * rows,
        lanes=[TelemetryBlock.Lane(source=1, target=2, name=3, **(lane or {}))] if rows else [],
        runs=[TelemetryBlock.Run(key_version=5, admitted_unix_ns=admitted)] if rows else [],
        details=[TelemetryBlock.Detail(**detail) for detail in details],
        event=[
            TelemetryBlock.Event(at_unix_ns=settled, name=name, fields=orjson.dumps(fields))
            for name, fields in events
        ],
    )


def page(
    *blocks: TelemetryBlock, first_seq: int = 1, instance: str = "fast-0", epoch: int = 7, **more: Any
) -> bytes:
    """A serialised JournalPage."""
    built: bytes = JournalPage(
        instance=instance, epoch=epoch, first_seq=first_seq, block=blocks, **more
    ).SerializeToString()
    return built


def arrival(
    *blocks: TelemetryBlock,
    first_seq: int = 1,
    instance: str = "fast-0",
    epoch: int = 7,
    present: int | None = None,
    service: str = "fast",
    ended: Sequence[tuple[int, int]] = (),
) -> Arrival:
    """A page as Relay's intake takes it."""
    _, _, _, raw, _ = read_journal_page(page(*blocks, first_seq=first_seq, instance=instance, epoch=epoch))
    return Arrival(service, instance, present or epoch, epoch, first_seq, raw, ended)


async def verifying_keys() -> Sequence[VerifyingKey]:
    """The key of `sign`."""
    return [VerifyingKey("platform-1", ed25519_public_key(SEED), 0)]


async def sign(message: bytes) -> tuple[str, bytes]:
    """As Signer would."""
    return "platform-1", ed25519_sign(SEED, message)


@dataclass(slots=True)
class Inside:
    """The parts of a Relay, with a clock that is moved by hand; every part is the real one but Signer."""

    folder: Path
    clock: ManualClock
    outbox: Outbox
    archive: Archive
    waiting: PendingPages
    own: RelayEvents
    intake: PageIntake
    exporter: Exporter
    compaction: ArchiveCompaction
    retention: ArchiveRetention
    tombstones: Tombstones
    turn: asyncio.Lock

    @property
    def archive_folder(self) -> Path:
        return self.folder / "archive"

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        """Rows of the archive by number."""
        answer = ask(self.archive_folder, f"SELECT * FROM events WHERE {where} ORDER BY instance, epoch, seq")
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    async def findings(self) -> list[ArchiveFinding]:
        """The result of `snavio archive verify`."""
        found = list(hours(self.archive_folder))
        keys = await verifying_keys()
        each = [one for hour in found for one in check(self.archive_folder, hour, keys)]
        return each + overlaps(found) + missing(self.archive_folder, found)


@asynccontextmanager
async def inside(
    folder: Path,
    *,
    clock: ManualClock | None = None,
    max_bytes: int = 1 << 30,
    signing: Callable[[bytes], Any] = sign,
    keys: Callable[[], Any] = verifying_keys,
    archive: Archive | None = None,
    outbox: Outbox | None = None,
) -> AsyncIterator[Inside]:
    """A Relay over `folder`, as it would be after a start; leaves everything as a killed process would."""
    ticking = clock or ManualClock(NOW)
    store = outbox or await open_outbox(folder / "outbox.db", max_bytes=max_bytes)
    shelf = archive or open_archive(folder / "archive")
    waiting, tombstones, turn = PendingPages(), Tombstones(), asyncio.Lock()
    waiting.load(await store.pages())
    own = RelayEvents(instance="relay-0", epoch=ticking.unix_ns(), clock=ticking)
    signer = ManifestSigner(sign=signing, keys=keys)
    intake = PageIntake(outbox=store, waiting=waiting, own=own, clock=ticking)
    exporter = Exporter(
        outbox=store,
        archive=shelf,
        waiting=waiting,
        own=own,
        signer=signer,
        tombstones=tombstones,
        turn=turn,
        clock=ticking,
        rhythm=ExportSchedule(events=10, after_ns=30_000_000_000, few_after_ns=60_000_000_000),
        revocations_known_unix_ns=ticking.unix_ns,
    )
    compaction = ArchiveCompaction(
        outbox=store, archive=shelf, signer=signer, keys=keys, turn=turn, clock=ticking, after_s=300
    )
    retention = ArchiveRetention(
        outbox=store, archive=shelf, sign=signing, keys=keys, turn=turn, clock=ticking, keep_days=7
    )
    await intake.start()
    exporter.resume(await store.planned())
    try:
        yield Inside(
            folder,
            ticking,
            store,
            shelf,
            waiting,
            own,
            intake,
            exporter,
            compaction,
            retention,
            tombstones,
            turn,
        )
    finally:
        await intake.stop()
        await store.close()
        await shelf.close()
