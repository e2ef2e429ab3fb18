"""Signer publishes its key sets sealed, and Shield starts from them while Signer is away."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from services.shield.key_cache import KeyCache
from services.shield.snapshot_key_cache import SnapshotKeyCache
from services.signer.keys.key_snapshots import KeySnapshots
from services.signer.settings import SignerSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed, Unavailable
from snavio.native import Admission
from snavio.replication.denylist import denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.peer import Peer
from snavio.signed.publisher import GENERATED
from snavio.signed.snapshot_manifest import PLACES, read_manifest
from snavio.signed.snapshot_reader import FAILURES, LOADED, SnapshotReader
from snavio.telemetry.events import SnapshotFailed
from snavio.v1 import signer_pb2 as wire
from snavio.wiring import open_archive, open_watermark
from tests.support.control import ADMIN, Control, control_plane
from tests.support.judging import AUDIENCE, SOURCE, admitting, judged
from tests.support.neighbours import eventually

STALE_MS = 180_000
SERIAL = "abc123"


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    settings = SignerSettings(write_snapshots=False, rotate_every_s=3600)
    async with control_plane(tmp_path, signer_settings=settings) as running:
        await running.sign(ADMIN, "CreateKeyset", wire.CreateKeysetRequest(source=SOURCE), wire.KeysetStatus)
        yield running


def snapshots(control: Control) -> KeySnapshots:
    assert control.signer is not None
    found = control.signer.keys.snapshots
    assert found is not None
    return found


async def publish(control: Control) -> None:
    await snapshots(control).turn()
    assert not [name for name in snapshots(control).meter.counters() if "Failed" in name]


async def newest_key(control: Control) -> wire.KeyVersion:
    answer = await control.sign(
        "shield", "KeysetChanges", wire.KeysetChangesRequest(), wire.KeysetChangesResponse
    )
    key: wire.KeyVersion = answer.keyset[0].version[-1]
    return key


@dataclass
class Shield:
    """The part of Shield that holds keys."""

    control: Control
    keys: KeyCache
    admission: Admission
    gate: CertificateGate
    reader: SnapshotReader

    def judge(self, key: wire.KeyVersion) -> Verdict:
        return judged(self.admission, key, now_unix_ns=self.control.clock.unix_ns())

    def refused(self, serial: str) -> bool:
        peer = Peer(Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme"), serial, 1 << 62)
        return self.gate.check(peer) is Verdict.CERTIFICATE_REVOKED


@asynccontextmanager
async def shield(control: Control) -> AsyncIterator[Shield]:
    folder = control.mesh.state_dir / "shield"
    signer = MeshChannel(
        control.mesh.signer,
        files=CertificateFiles.in_folder(control.mesh.certificates("shield")),
        service="signer",
    )
    archive, clock = open_archive(control.mesh.snapshots()), control.clock
    admission = admitting()
    gate = CertificateGate(clock=clock)
    denylist = denylist_poller(signer, gate, clock=clock, interval_s=0.05, stale_s=3600)
    opening = SnapshotKeyCache(signer=signer, file=open_watermark(folder / "shield-0.opening"), clock=clock)
    reader = SnapshotReader(
        archive=archive,
        keys=opening.verifying,
        watermark=open_watermark(folder / "shield-0.keys-snapshot"),
        clock=clock,
    )
    keys = KeyCache(
        admission=admission,
        signer=signer,
        clock=clock,
        interval_s=0.05,
        stale_ms=STALE_MS,
        holder=AUDIENCE,
        denylist=denylist,
        snapshots=reader,
        opening=opening,
    )
    try:
        yield Shield(control, keys, admission, gate, reader)
    finally:
        await keys.stop()
        await denylist.stop()
        await archive.close()
        await signer.close()


async def once_with_signer(control: Control) -> None:
    """A first life of Shield, in which it receives the key that opens the snapshot."""
    async with shield(control) as first:
        await first.keys.start(within_s=5)


async def test_shield_starts_from_the_sealed_snapshot_while_signer_is_away(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.shield.key_cache.SIGNER_PATIENCE_S", 0.2)
    key = await newest_key(control)
    revoke = wire.RevokeCertificateRequest(serial=SERIAL, reason="stolen")
    await control.sign(ADMIN, "RevokeCertificate", revoke, wire.RevokeCertificateResponse)
    await publish(control)
    await once_with_signer(control)
    await control.stop_signer()
    control.clock.advance(seconds=20)
    async with shield(control) as second:
        await second.keys.start(within_s=5)
        assert second.reader.counters() == {LOADED: 1}
        assert second.judge(key) is Verdict.UNDECIDED
        assert second.refused(SERIAL)
        # As old as the snapshot, not as young as the start.
        age_ns = second.keys.age_ns()
        assert age_ns is not None
        assert 20 * 10**9 <= age_ns < 21 * 10**9


async def test_what_was_revoked_since_the_snapshot_is_refused_from_the_first_command_on(
    control: Control,
) -> None:
    key = await newest_key(control)
    await publish(control)
    await control.sign(
        ADMIN,
        "RevokeKey",
        wire.RevokeKeyRequest(source=SOURCE, key_version=key.version),
        wire.KeysetStatus,
    )
    revoke = wire.RevokeCertificateRequest(serial=SERIAL)
    await control.sign(ADMIN, "RevokeCertificate", revoke, wire.RevokeCertificateResponse)
    async with shield(control) as started:
        await started.keys.start(within_s=5)
        assert started.reader.counters() == {LOADED: 1}
        assert started.judge(key) is Verdict.KEY_REVOKED
        assert started.refused(SERIAL)


async def test_a_snapshot_older_than_keys_may_be_is_not_begun_with(control: Control) -> None:
    await publish(control)
    await once_with_signer(control)
    await control.stop_signer()
    control.clock.advance(seconds=STALE_MS / 1000)
    async with shield(control) as second:
        with pytest.raises(Unavailable):
            await second.keys.start(within_s=0.2)
        assert second.reader.counters() == {FAILURES: 1, f"{FAILURES}.too-old": 1}


async def test_a_shield_that_never_met_signer_cannot_open_the_snapshot(control: Control) -> None:
    key = await newest_key(control)
    await publish(control)
    await control.stop_signer()
    async with shield(control) as first:
        with pytest.raises(Unavailable):
            await first.keys.start(within_s=0.2)
        assert first.reader.counters() == {FAILURES: 1, f"{FAILURES}.unavailable": 1}
        assert first.judge(key) is Verdict.UNKNOWN_KEY_VERSION


@pytest.mark.parametrize("place", ["start", "middle", "end"])
async def test_one_bit_flipped_in_the_sealed_part_means_a_cold_load(control: Control, place: str) -> None:
    key = await newest_key(control)
    await publish(control)
    (part,) = (control.mesh.snapshots() / "registry" / "hmac").glob("*.bin")
    contents = bytearray(part.read_bytes())
    contents[{"start": 9, "middle": len(contents) // 2, "end": -1}[place]] ^= 1
    part.write_bytes(contents)
    async with shield(control) as started:
        await started.keys.start(within_s=5)
        assert started.reader.counters() == {FAILURES: 1, f"{FAILURES}.part-tampered": 1}
        assert started.judge(key) is Verdict.UNDECIDED
    await publish(control)
    async with shield(control) as again:
        await again.keys.start(within_s=5)
        assert again.reader.counters() == {LOADED: 1}


async def test_an_older_snapshot_that_is_put_back_is_refused(control: Control) -> None:
    folder = control.mesh.snapshots() / "registry" / "hmac"
    await publish(control)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    await control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)
    await publish(control)
    await once_with_signer(control)
    for name, contents in before.items():
        (folder / name).write_bytes(contents)
    async with shield(control) as again:
        await again.keys.start(within_s=5)
        assert again.reader.counters() == {FAILURES: 1, f"{FAILURES}.rolled-back": 1}


async def test_a_part_that_signer_sealed_with_a_newer_key_is_not_opened_and_asked_for_later(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.shield.key_cache.SIGNER_PATIENCE_S", 0.2)
    await publish(control)
    await once_with_signer(control)
    control.clock.advance(seconds=3700)
    await publish(control)
    address = control.mesh.signer
    await control.stop_signer()
    async with shield(control) as second:
        with pytest.raises(Unavailable):
            await second.keys.start(within_s=0.2)
        assert second.reader.counters() == {FAILURES: 1, f"{FAILURES}.cannot-open": 1}
    control.mesh = control.mesh.model_copy(update={"signer": address})
    await control.start_signer()
    async with shield(control) as third:
        await third.keys.start(within_s=5)
        assert third.reader.counters() == {LOADED: 1}


async def test_nothing_new_renews_the_time_and_keeps_the_part(control: Control) -> None:
    folder = control.mesh.snapshots()
    await publish(control)
    first = read_manifest((folder / PLACES["hmac"]).read_bytes()).manifest
    control.clock.advance(seconds=30)
    await publish(control)
    second = read_manifest((folder / PLACES["hmac"]).read_bytes()).manifest
    assert second.parts == first.parts
    assert second.generated_unix_ns - first.generated_unix_ns == 30 * 10**9
    assert snapshots(control).meter.counters() == {GENERATED: 1}


async def test_a_store_from_a_backup_takes_a_new_epoch_because_its_own_snapshot_is_ahead(
    control: Control,
) -> None:
    path = control.signer_settings.store_path(control.mesh)
    await publish(control)
    backup = path.read_bytes()
    for _ in range(3):
        await control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)
        await control.spread_keys()
    await publish(control)
    ahead = read_manifest((control.mesh.snapshots() / PLACES["hmac"]).read_bytes()).manifest
    await once_with_signer(control)
    await control.stop_signer()
    path.write_bytes(backup)
    control.clock.advance(seconds=1)
    await control.start_signer()
    await publish(control)
    after = read_manifest((control.mesh.snapshots() / PLACES["hmac"]).read_bytes()).manifest
    assert after.epoch != ahead.epoch
    async with shield(control) as again:
        await again.keys.start(within_s=5)
        assert again.reader.counters()[LOADED] == 1


async def test_registry_can_neither_read_nor_sign_snapshots_of_keys(control: Control) -> None:
    await publish(control)
    with pytest.raises(NotAllowed):
        await control.sign("registry", "SnapshotKey", wire.SnapshotKeyRequest(), wire.SnapshotKeyResponse)
    document = orjson.loads((control.mesh.snapshots() / PLACES["hmac"]).read_bytes())
    del document["signature"]
    # An old manifest with a new time would make revoked keys look fresh.
    forged = wire.SignRequest(scope="platform", message=[orjson.dumps(document, option=orjson.OPT_SORT_KEYS)])
    with pytest.raises(NotAllowed) as refusal:
        await control.sign("registry", "Sign", forged, wire.SignResponse)
    assert refusal.value.reason == "not-your-snapshot"
    # Only a manifest of that kind is refused, not every message that contains the same bytes.
    other = wire.SignRequest(scope="platform", message=[b'{"note":{"kind":"hmac"}}', b'"kind":"hmac"'])
    assert len((await control.sign("registry", "Sign", other, wire.SignResponse)).signature) == 2


async def test_what_opens_snapshots_is_for_shields_eyes_only(control: Control) -> None:
    await publish(control)
    await once_with_signer(control)
    kept = control.mesh.state_dir / "shield" / "shield-0.opening"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    answer = await control.sign("shield", "SnapshotKey", wire.SnapshotKeyRequest(), wire.SnapshotKeyResponse)
    secret = (await newest_key(control)).secret
    for path in control.mesh.snapshots().rglob("*"):
        if path.is_file():
            assert answer.key not in path.read_bytes()
            assert secret not in path.read_bytes()


async def test_a_shield_that_asked_too_early_learns_what_opens_snapshots_before_it_serves(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [Unavailable("scripted")]
    ask = SnapshotKeyCache._ask

    async def once_away(opening: SnapshotKeyCache) -> None:
        if failures:
            raise failures.pop()
        await ask(opening)

    monkeypatch.setattr(SnapshotKeyCache, "_ask", once_away)
    async with shield(control) as first:
        await first.keys.start(within_s=5)
        assert (control.mesh.state_dir / "shield" / "shield-0.opening").exists()


async def test_a_damaged_file_of_what_opens_snapshots_is_asked_for_anew(control: Control) -> None:
    await publish(control)
    await once_with_signer(control)
    kept = control.mesh.state_dir / "shield" / "shield-0.opening"
    good = kept.read_bytes()
    kept.write_bytes(good[:-7])
    async with shield(control) as again:
        await again.keys.start(within_s=5)
        assert again.reader.counters() == {LOADED: 1}
        assert kept.read_bytes() == good


@pytest.mark.parametrize("at", ["put", "swap"])
async def test_a_full_disk_leaves_the_old_snapshot_and_is_counted(
    control: Control, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    await publish(control)
    manifest = control.mesh.snapshots() / PLACES["hmac"]
    before = manifest.read_bytes()
    await control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)

    async def full(*_arguments: object, **_named: object) -> None:
        raise Unavailable("scripted", reason="archive-full")

    assert control.signer is not None
    with monkeypatch.context() as patch:
        patch.setattr(control.signer.keys.archive, at, full)
        await snapshots(control).turn()
    assert snapshots(control).meter.counters()["Snavio.Snapshot.Failed.archive-full"] == 1
    # Operators are told by the event, through the archive.
    recorded = control.signer.keys.events.after(0, limit=100)
    told = [one.event for one in recorded if isinstance(one.event, SnapshotFailed)]
    assert [(event.reason, event.detail) for event in told] == [
        ("archive-full", "snapshot of key sets: scripted")
    ]
    assert manifest.read_bytes() == before
    async with shield(control) as started:
        await started.keys.start(within_s=5)
        assert started.reader.counters() == {LOADED: 1}
    await snapshots(control).turn()
    assert manifest.read_bytes() != before


async def test_rounds_that_meet_publish_one_part_that_its_manifest_names(control: Control) -> None:
    await once_with_signer(control)
    await asyncio.gather(*(snapshots(control).turn() for _ in range(4)))
    assert snapshots(control).meter.counters() == {GENERATED: 1}
    async with shield(control) as started:
        await started.keys.start(within_s=5)
        assert started.reader.counters() == {LOADED: 1}


async def test_signer_publishes_by_itself(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as running:
        await eventually((running.mesh.snapshots() / PLACES["hmac"]).exists)
