"""Events of a mesh's own upkeep (snapshots, keys, caches) are in the archive with all their fields."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import uuid
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from services.registry.settings import RegistrySettings
from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.cli.invalid_commands import Forger
from snavio.clock import SystemClock
from snavio.domain.directory import AclEntry, Draft
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.native import format_timestamp, read_verdicts, sign_command, uuid7
from snavio.ports.directory import Directory
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.signed.snapshot_reader import FAILURES
from snavio.telemetry import schema
from snavio.v1 import signer_pb2 as sig
from snavio.v1.batch_pb2 import Hello
from snavio.v1.shield_pb2 import GreetRequest, SubmitRequest
from snavio.wiring import open_directory
from tests.support.archived import PATIENCE_S, Row, fields, found
from tests.support.mesh import NAME, TARGET, TENANT, DemoMesh, demo_mesh

CALL_S = 10.0
STALE_S = 1.5
SIGNER: dict[str, object] = {
    # Versions follow each other at once, and the old one ends within two days: its users are warned.
    "distribution_delay_s": 0.0,
    "overlap_s": 3600.0,
}
SETTINGS: dict[str, dict[str, object]] = {
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    # Soon, and as small as they can be bounded.
    "registry": {"snapshot_interval_s": 1, "snapshot_max_mb": 1},
    "signer": SIGNER,
    # Caches that cannot be renewed become stale within a test.
    "fast": {"route_fresh_ms": round(STALE_S * 1000)},
    "shield": {"keys_fresh_ms": round(STALE_S * 1000)},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def channel(mesh: DemoMesh, service: str, who: str) -> MeshChannel:
    files = CertificateFiles.in_folder(mesh.certificates(who))
    return MeshChannel(mesh.addresses[service], files=files, service=service)


# --- snapshots


async def test_a_snapshot_that_was_written_is_told(mesh: DemoMesh) -> None:
    for row in await found(mesh, f"event = '{schema.SNAPSHOT_WRITTEN}'"):
        assert (row["service"], " bytes in " in fields(row)["detail"]) == ("registry", True)


@pytest.mark.parametrize(("service", "parts"), [("fast", ["routes"]), ("shield", ["hmac", "suspensions"])])
async def test_a_damaged_snapshot_is_told_by_whoever_did_not_believe_it(
    mesh: DemoMesh, service: str, parts: list[str]
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        # Again if Registry or Signer wrote a good one in between.
        while (await mesh.counters(service)).get(f"{FAILURES}.part-truncated", 0) < len(parts):
            for part in mesh.processes.mesh.snapshots().rglob("*.bin"):
                part.write_bytes(part.read_bytes()[:-1])
            # In good order: a rotation of keys waits for a Shield that has not said goodbye.
            mesh.processes.terminate(service)
            while mesh.processes.ended(service) is None:
                await asyncio.sleep(0.05)
            await _restarted(mesh, service)
    details = {f"The part {part} is not of the size it should be." for part in parts}
    rows = await found(
        mesh,
        f"event = '{schema.SNAPSHOT_LOAD_FAILED}' AND instance = '{service}-0'",
        enough=lambda rows: {row["detail"] for row in rows} >= details,
    )
    assert {(fields(row)["reason"], row["detail"]) for row in rows} == {
        ("part-truncated", detail) for detail in details
    }


# --- keys


async def test_keys_of_yesterday(mesh: DemoMesh) -> None:
    """`late` asked for its keys before the rotation, `quiet` was given its key by hand and has never asked."""
    operator = channel(mesh, "signer", "operator-admin")
    async with mesh.operator() as registering:
        for service in ("late", "quiet"):
            await mesh.register_service(registering, service)
            await registering.grant(f"{TENANT}/{service}", TARGET, NAME)
        late = Forger(mesh.processes.mesh, certificates=mesh.certificates("acme-late"), clock=SystemClock())
        await late.start()
        polled = (await _keyset(operator, "acme/late")).last_poll_unix_ns
        for service in ("late", "quiet"):
            await registering.rotate_key(f"{TENANT}/{service}")
            async with asyncio.timeout(PATIENCE_S):
                # Until every Shield has it and producers sign with it.
                while (await _keyset(operator, f"{TENANT}/{service}")).primary != "hmac-v2":
                    await asyncio.sleep(0.1)
    await operator.close()
    assert await late.submit(late.signed(target=TARGET)) is Verdict.DELIVERED
    await late.close()
    assert await _sent_without_asking(mesh, "quiet") is Verdict.DELIVERED
    for event in (schema.LEGACY_KEY_USED, schema.KEY_EXPIRY_IMMINENT):
        rows = await found(mesh, f"event = '{event}'", enough=lambda rows: len(rows) == 2)
        of = {row["source"]: fields(row) for row in rows}
        assert of["acme/quiet"] == {"version_id": "hmac-v1", "source": "acme/quiet"}
        assert of["acme/late"] == {
            "version_id": "hmac-v1",
            "source": "acme/late",
            "time_of_last_config_poll": _moment(polled),
        }


async def test_a_rotated_signing_key_is_told_with_all_that_verifiers_need(mesh: DemoMesh) -> None:
    operator = channel(mesh, "signer", "operator-admin")
    before = await operator.call(
        "/snavio.v1.Signer/GetPublicKeys",
        sig.GetPublicKeysRequest(scope="platform"),
        sig.PublicKeys,
        timeout_s=CALL_S,
    )
    after = await operator.call(
        "/snavio.v1.Signer/RotateScope",
        sig.RotateScopeRequest(scope="platform"),
        sig.PublicKeys,
        timeout_s=CALL_S,
    )
    await operator.close()
    (row,) = await found(mesh, f"event = '{schema.SIGNING_KEY_ROTATED}'")
    told = json.loads(fields(row)["extra"])
    keys = {key.key_id: key for key in after.key}
    old, new = keys[before.active_key_id], after.key[-1]
    assert uuid.UUID(told.pop("event_id"))
    assert b64decode(told.pop("new_public_key")) == new.public_key
    opened = told.pop("opened_at")
    assert opened == told.pop("occurred_at") and datetime.fromisoformat(opened) == row["at"]
    assert told == {
        "domain_id": mesh.processes.mesh.trust_domain,
        "scope_kind": "platform",
        "scope_id": "",
        "old_key_id": old.key_id,
        "new_key_id": new.key_id,
        "valid_from": format_timestamp(new.valid_from_unix_ns),
        "closes_at": format_timestamp(old.valid_until_unix_ns),
    }


# --- caches


async def test_a_cache_that_went_stale_and_was_read_again_is_told(mesh: DemoMesh) -> None:
    for service in ("registry", "signer"):
        mesh.processes.kill(service)
    # The clock is another process's: entries must really go stale, the most sensitive rights after two seconds.
    await asyncio.sleep(2.5)
    await _restarted(mesh, "signer", "registry")
    rows = await _refreshed(mesh, "recovered")
    for cache, row in rows.items():
        assert row["age_seconds"] >= (2.0 if cache == "ACL" else STALE_S)
        assert row["detail"].startswith("entries were stale from ")
    assert {(row["service"], cache, row["fresh_ttl"], row["stale_ttl"]) for cache, row in rows.items()} == {
        ("fast", "ACL", 30.0, 90.0),
        ("fast", "Routing", STALE_S, 180.0),
        ("shield", "HMAC", STALE_S, 180.0),
    }


async def test_a_cache_that_took_another_directorys_word_is_told(mesh: DemoMesh) -> None:
    """As after a state folder was restored from a backup."""
    for service in ("registry", "signer"):
        mesh.processes.kill(service)
    signer = SignerSettings.model_validate(SIGNER)
    await prepare(mesh.processes.mesh, signer, clock=SystemClock(), restored=True)
    async with _directory(mesh) as directory:
        epoch = await directory.renew_epoch()
    await _restarted(mesh, "signer", "registry")
    rows = await _refreshed(mesh, "epoch-changed")
    assert all(row["age_seconds"] > 0 for row in rows.values())
    assert rows["ACL"]["detail"] == rows["Routing"]["detail"] == f"directory {epoch}"
    assert rows["HMAC"]["detail"].startswith("key store ")


async def test_a_snapshot_that_cannot_be_published_is_told(mesh: DemoMesh) -> None:
    folder = mesh.processes.mesh.snapshots()
    kept = folder.with_name("snapshots-kept")
    folder.rename(kept)
    folder.write_bytes(b"")
    try:
        async with mesh.operator() as operator:
            await mesh.register_service(operator, "unpublished")
        rows = await found(mesh, f"event = '{schema.SNAPSHOT_FAILED}' AND service = 'registry'")
    finally:
        folder.unlink()
        kept.rename(folder)
    for row in rows:
        told = fields(row)
        assert told["reason"] and told["detail"], told


# --- the largest last: what is above the bound stays so


async def test_a_snapshot_that_is_too_large_is_told(mesh: DemoMesh) -> None:
    # Not by Registry's leave: so many writes would take longer than all else here.
    mesh.processes.kill("registry")
    async with _directory(mesh) as directory:
        # Chance cannot be compressed, and a right has the most of it in one row.
        rights = [
            AclEntry(
                f"x{secrets.token_hex(31)}/x{secrets.token_hex(31)}", TARGET, f"x{secrets.token_urlsafe(90)}"
            )
            for _ in range(8_000)
        ]
        written = await directory.write(lambda _view: [Draft(right) for right in rights], actor="test")
    await _restarted(mesh, "registry")
    (row,) = await found(mesh, f"event = '{schema.SNAPSHOT_TOO_LARGE}'")
    said = re.fullmatch(r"version (\d+): (\d+) bytes, at most (\d+)", fields(row)["detail"])
    assert said is not None
    version, size, bound = map(int, said.groups())
    assert (row["service"], version, bound) == ("registry", written.version, 1 << 20)
    assert size > bound


# --- how it is asked and provoked


async def _restarted(mesh: DemoMesh, *services: str) -> None:
    # Not on another thread: a process ends with the thread that started it.
    for service in services:
        mesh.processes.spawn(service)
    for service in services:
        await asyncio.to_thread(mesh.processes.wait_ready, service)


@asynccontextmanager
async def _directory(mesh: DemoMesh) -> AsyncIterator[Directory]:
    """Registry's own directory, while Registry is stopped."""
    path = RegistrySettings().store_path(mesh.processes.mesh)
    directory = await open_directory(path, clock=SystemClock())
    try:
        yield directory
    finally:
        await directory.close()


async def _keyset(operator: MeshChannel, source: str) -> sig.KeysetStatus:
    request = sig.DescribeKeysetsRequest(source=source)
    answer = await operator.call(
        "/snavio.v1.Signer/DescribeKeysets", request, sig.DescribeKeysetsResponse, timeout_s=CALL_S
    )
    status: sig.KeysetStatus = answer.keyset[0]
    return status


async def _sent_without_asking(mesh: DemoMesh, service: str) -> Verdict:
    """A command under a service's first key, which is read where Shield reads it."""
    signer, shield = channel(mesh, "signer", "shield"), channel(mesh, "shield", f"{TENANT}-{service}")
    keysets = await signer.call(
        "/snavio.v1.Signer/KeysetChanges",
        sig.KeysetChangesRequest(),
        sig.KeysetChangesResponse,
        timeout_s=CALL_S,
    )
    (keyset,) = [each for each in keysets.keyset if each.source == f"{TENANT}/{service}"]
    hello = await shield.call(
        "/snavio.v1.Shield/Greet", GreetRequest(wire_version=1), Hello, timeout_s=CALL_S
    )
    command = sign_command(
        keyset.version[0].secret,
        key_version=keyset.version[0].version,
        audience=hello.audience,
        command_id=uuid7(),
        timestamp_unix_ns=SystemClock().unix_ns(),
        target=TARGET,
        name=NAME,
        payload=b"by hand",
    )
    answer = await shield.call_raw(
        "/snavio.v1.Shield/Submit",
        SubmitRequest(command=command, budget_ms=5000).SerializeToString(),
        timeout_s=CALL_S,
    )
    await signer.close()
    await shield.close()
    return Verdict(read_verdicts(answer).codes[0])


async def _refreshed(mesh: DemoMesh, reason: str) -> dict[str, Row]:
    """The last refresh of each cache for that reason, with all its fields."""
    rows = await found(
        mesh,
        f"event = '{schema.CACHE_REFRESHED}' AND reason = '{reason}'",
        enough=lambda rows: {row["cache_type"] for row in rows} == {"ACL", "Routing", "HMAC"},
    )
    return {row["cache_type"]: {**row, **fields(row)} for row in rows}


def _moment(unix_ns: int) -> datetime:
    """As the archive has it: in microseconds."""
    return datetime.fromisoformat(format_timestamp(unix_ns // 1000 * 1000))


# --- certificates


async def test_a_refused_certificate_is_counted_and_told_once(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await operator.register_service("acme", "lost")
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "lost", "acme")
        serial = await operator.certify(identity, mesh.certificates("acme-lost"))
        await operator.revoke_certificate(serial, reason="lost")
    lost = channel(mesh, "shield", "acme-lost")
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(20):
            refused = ""
            # Until Shield has pulled it.
            while refused != "certificate-revoked":
                try:
                    await lost.call_raw("/grpc.health.v1.Health/Check", b"", timeout_s=PATIENCE_S)
                except SnavioError as error:
                    refused = error.reason
    await lost.close()
    (row,) = await found(mesh, f"event = '{schema.CERTIFICATE_REFUSED}' AND service = 'shield'")
    assert fields(row) == {
        "reason": "certificate-revoked",
        "source": "acme/lost",
        "tenant": "acme",
        "detail": identity.spiffe_id,
    }
    assert (await mesh.counters("shield"))["certificate_refused.certificate-revoked"] >= 20


# --- keys that are out of date


async def test_commands_refused_on_keys_that_are_out_of_date_are_told(tmp_path: Path) -> None:
    settings: dict[str, dict[str, object]] = {
        "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
        "shield": {"keys_fresh_ms": 1000, "keys_stale_ms": 3000},
    }
    async with demo_mesh(tmp_path / "mesh", settings=settings) as mesh:
        async with mesh.operator() as registering:
            await mesh.register_service(registering, "late")
            await registering.grant(f"{TENANT}/late", TARGET, NAME)
        late = Forger(mesh.processes.mesh, certificates=mesh.certificates("acme-late"), clock=SystemClock())
        await late.start()
        mesh.processes.kill("signer")
        async with asyncio.timeout(PATIENCE_S):
            while await late.submit(late.signed(target=TARGET)) is not Verdict.SATURATED:
                await asyncio.sleep(0.1)
        await _restarted(mesh, "signer")
        rows = await found(mesh, f"event = '{schema.CACHE_EXPIRED}'")
        told = fields(rows[0])
        assert (rows[0]["service"], told["cache_type"], told["reason"]) == ("shield", "HMAC", "out-of-date")
        assert told["age_seconds"] >= told["stale_ttl"] == 3.0
        assert (await mesh.counters("shield"))["freshness.refused_out_of_date"] >= 1
        await late.close()
