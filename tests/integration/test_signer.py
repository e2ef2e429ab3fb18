from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, SnavioError, StateError, Unauthenticated
from snavio.pki import make_key_and_csr
from snavio.v1 import signer_pb2 as wire
from tests.support.control import ADMIN, Control

BILLING = "tenant/acme/service/billing"


async def create(control: Control, source: str = "acme/billing") -> wire.KeysetStatus:
    return await control.sign(
        ADMIN, "CreateKeyset", wire.CreateKeysetRequest(source=source), wire.KeysetStatus
    )


async def rotate(control: Control, source: str = "acme/billing") -> wire.KeysetStatus:
    return await control.sign(
        ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=source), wire.KeysetStatus
    )


async def changes(
    control: Control, since: int = 0, *, caller: str = "shield", limit: int = 0
) -> wire.KeysetChangesResponse:
    request = wire.KeysetChangesRequest(since_version=since, limit=limit)
    return await control.sign(caller, "KeysetChanges", request, wire.KeysetChangesResponse)


async def config(control: Control, caller: str) -> wire.TenantConfigResponse:
    return await control.sign(caller, "TenantConfig", wire.TenantConfigRequest(), wire.TenantConfigResponse)


async def issue(control: Control, caller: str, **fields: Any) -> wire.IssueCertificateResponse:
    request = wire.IssueCertificateRequest(**{"csr_pem": make_key_and_csr()[1], **fields})
    return await control.sign(caller, "IssueCertificate", request, wire.IssueCertificateResponse)


def spiffe(path: str) -> str:
    return f"spiffe://snavio.local/{path}"


async def test_source_gets_its_own_secret_and_shield_gets_the_same(control: Control) -> None:
    await create(control)
    await create(control, "rival/billing")
    await control.certify(BILLING, "billing")
    own = await config(control, "billing")
    assert own.keyset.source == "acme/billing"
    assert own.primary == "hmac-v1"
    assert own.poll_after_seconds > 0
    assert len(own.keyset.version[0].secret) == 32
    seen = {keyset.source: keyset for keyset in (await changes(control)).keyset}
    assert seen["acme/billing"] == own.keyset
    assert seen["rival/billing"].version[0].secret != own.keyset.version[0].secret


async def test_source_without_keyset_is_told_so(control: Control) -> None:
    await create(control, "rival/billing")
    await control.certify(BILLING, "billing")
    with pytest.raises(NotFound) as refusal:
        await config(control, "billing")
    assert refusal.value.reason == "no-keyset"


@pytest.mark.parametrize("caller", ["fast", "slow", "registry", "mailbox", ADMIN, "billing", "principal"])
async def test_nobody_but_shield_reads_everybodys_secrets(control: Control, caller: str) -> None:
    await create(control)
    await control.certify(BILLING, "billing")
    await control.certify("tenant/acme/principal/ci", "principal")
    with pytest.raises(NotAllowed):
        await changes(control, caller=caller)


async def test_nobody_but_a_service_reads_a_tenant_config(control: Control) -> None:
    for caller in ("shield", ADMIN):
        with pytest.raises(NotAllowed):
            await config(control, caller)


async def test_statuses_carry_no_secret(control: Control) -> None:
    answers = [await create(control), await rotate(control)]
    request = wire.RevokeKeyRequest(source="acme/billing", key_version="hmac-v1")
    answers.append(await control.sign(ADMIN, "RevokeKey", request, wire.KeysetStatus))
    assert [version.secret for answer in answers for version in answer.keyset.version] == [b""] * 5


async def test_creating_twice_keeps_the_first_key(control: Control) -> None:
    await create(control)
    before = await changes(control)
    await create(control)
    assert await changes(control) == before


async def test_bad_source_is_refused(control: Control) -> None:
    with pytest.raises(BadRequest, match="source: must be"):
        await create(control, "acme")


async def test_rotated_key_becomes_primary_when_it_has_spread(control: Control) -> None:
    await create(control)
    await control.certify(BILLING, "billing")
    version = (await changes(control)).version
    assert (await rotate(control)).primary == "hmac-v1"
    moved = await changes(control, version)
    assert [key.version for key in moved.keyset[0].version] == ["hmac-v1", "hmac-v2"]
    with pytest.raises(Conflict) as refusal:
        await rotate(control)
    assert refusal.value.reason == "rotation-under-way"
    await control.spread_keys()
    assert (await config(control, "billing")).primary == "hmac-v2"


async def test_revoked_primary_is_replaced_at_once(control: Control) -> None:
    await create(control)
    request = wire.RevokeKeyRequest(source="acme/billing", key_version="hmac-v1")
    status = await control.sign(ADMIN, "RevokeKey", request, wire.KeysetStatus)
    assert status.primary == "hmac-v2"
    assert [key.revoked for key in status.keyset.version] == [True, False]


async def test_changes_come_in_pages(control: Control) -> None:
    for number in range(5):
        await create(control, f"acme/s{number}")
    seen, since, more = [], 0, True
    while more:
        page = await changes(control, since, limit=2)
        seen += [keyset.source for keyset in page.keyset]
        since, more = page.version, page.more
    assert seen == [f"acme/s{number}" for number in range(5)]


async def test_shield_that_is_ahead_of_a_restored_store_starts_again(control: Control) -> None:
    await create(control)
    known = await changes(control)
    ahead = await changes(control, known.version + 1000)
    assert ahead.store_epoch != known.store_epoch
    assert [keyset.source for keyset in ahead.keyset] == ["acme/billing"]


@pytest.mark.parametrize(
    ("caller", "path"),
    [
        (ADMIN, "mesh/shield"),
        (ADMIN, "mesh/signer"),
        ("fast", "mesh/shield"),
        ("fast", "operator/admin"),
        ("fast", BILLING),
        ("billing", "tenant/acme/service/other"),
        ("billing", "tenant/rival/service/billing"),
        ("billing", "tenant/acme/principal/billing"),
        ("billing", "operator/admin"),
        ("principal", "tenant/acme/principal/other"),
        ("principal", "tenant/rival/principal/ci"),
        ("principal", BILLING),
        ("principal", "operator/admin"),
    ],
)
async def test_nobody_gets_a_certificate_that_is_not_his_to_have(
    control: Control, caller: str, path: str
) -> None:
    await control.certify(BILLING, "billing")
    await control.certify("tenant/acme/principal/ci", "principal")
    with pytest.raises(NotAllowed):
        await issue(control, caller, spiffe_id=spiffe(path))


async def test_services_and_mesh_renew_themselves_and_the_new_certificate_works(control: Control) -> None:
    await create(control)
    first = await control.certify(BILLING, "billing")
    second = await control.certify(BILLING, "billing-renewed", by="billing")
    assert first != second
    assert (await config(control, "billing-renewed")).primary == "hmac-v1"
    await control.certify("mesh/shield", "shield-renewed", by="shield")
    assert len((await changes(control, caller="shield-renewed")).keyset) == 1


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        (BILLING, "service_ttl_s"),
        ("tenant/acme/principal/ci", "principal_ttl_s"),
        ("operator/night", "operator_ttl_s"),
        ("job/spark", "job_ttl_s"),
    ],
)
async def test_lifetime_is_capped_by_the_kind_of_identity(control: Control, path: str, setting: str) -> None:
    cap = getattr(control.signer_settings, setting)
    now = control.clock.unix_ns() // 10**9
    for asked, granted in ((0, cap), (2**32 - 1, cap), (60, 60)):
        issued = await issue(control, ADMIN, spiffe_id=spiffe(path), ttl_seconds=asked)
        assert issued.not_after_unix_ns // 10**9 - now == granted


async def test_certificate_carries_the_named_identity_and_not_the_requests(control: Control) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(spiffe("mesh/shield"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = csr.public_bytes(serialization.Encoding.PEM).decode()
    issued = await issue(control, ADMIN, csr_pem=pem, spiffe_id=spiffe(BILLING))
    leaf = x509.load_pem_x509_certificate(issued.certificate_pem.encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(spiffe(BILLING))]
    assert issued.serial == format(leaf.serial_number, "x")


async def test_bad_certificate_requests_are_refused(control: Control) -> None:
    other_curve = ec.generate_private_key(ec.SECP384R1())
    csr = (
        x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(other_curve, hashes.SHA256())
    )
    der = bytearray(base64.b64decode("".join(make_key_and_csr()[1].decode().splitlines()[1:-1])))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    tampered = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
    for pem in (csr.public_bytes(serialization.Encoding.PEM).decode(), tampered, "nonsense", ""):
        with pytest.raises(BadRequest) as refusal:
            await issue(control, ADMIN, csr_pem=pem, spiffe_id=spiffe(BILLING))
        assert refusal.value.reason == "bad-csr"
    for name in ("spiffe://elsewhere.local/operator/admin", spiffe("operator/admin/x"), ""):
        with pytest.raises(BadRequest) as refusal:
            await issue(control, ADMIN, spiffe_id=name)
        assert refusal.value.reason == "bad-identity"


async def test_revoked_certificate_is_refused_at_once_and_after_a_restart(control: Control) -> None:
    await create(control)
    serial = await control.certify(BILLING, "billing")
    await config(control, "billing")
    request = wire.RevokeCertificateRequest(serial=serial, reason="stolen laptop")
    first = await control.sign(ADMIN, "RevokeCertificate", request, wire.RevokeCertificateResponse)
    again = await control.sign(ADMIN, "RevokeCertificate", request, wire.RevokeCertificateResponse)
    # Told again, and still one entry.
    assert again.version > first.version
    for _ in range(2):
        with pytest.raises(Unauthenticated) as refusal:
            await config(control, "billing")
        assert refusal.value.reason == "certificate-revoked"
        await control.stop_signer()
        await control.start_signer()
    listed = await control.sign("fast", "Denylist", wire.DenylistRequest(), wire.DenylistResponse)
    assert list(listed.serial) == [serial]
    later = wire.DenylistRequest(since_version=listed.version)
    assert not (await control.sign("fast", "Denylist", later, wire.DenylistResponse)).serial


async def test_a_denylist_of_several_pages_says_so_until_the_last(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.signer.certificates.revocation.MAX_PAGE", 2)
    for serial in ("a1", "a2", "a3"):
        request = wire.RevokeCertificateRequest(serial=serial, reason="stolen laptop")
        await control.sign(ADMIN, "RevokeCertificate", request, wire.RevokeCertificateResponse)
    first = await control.sign("fast", "Denylist", wire.DenylistRequest(), wire.DenylistResponse)
    assert (list(first.serial), first.more) == (["a1", "a2"], True)
    asked = wire.DenylistRequest(since_version=first.version)
    last = await control.sign("fast", "Denylist", asked, wire.DenylistResponse)
    assert (list(last.serial), last.more) == (["a3"], False)


@pytest.mark.parametrize("serial", ["", "0a", "AB", "xyz", "a" * 41, "0x1f"])
async def test_serial_that_no_certificate_could_present_is_refused(control: Control, serial: str) -> None:
    request = wire.RevokeCertificateRequest(serial=serial)
    with pytest.raises(BadRequest, match="serial: must be"):
        await control.sign(ADMIN, "RevokeCertificate", request, wire.RevokeCertificateResponse)


async def test_keys_survive_a_restart(control: Control) -> None:
    await create(control)
    await rotate(control)
    before = await changes(control)
    await control.stop_signer()
    await control.start_signer()
    assert await changes(control) == before


async def test_preparing_again_changes_nothing_and_renews_only_what_ends_soon(tmp_path: Path) -> None:
    clock, mesh, settings = ManualClock(time.time_ns()), MeshSettings(state_dir=tmp_path), SignerSettings()
    made = await prepare(mesh, settings, clock=clock)
    services = ["shield", "fast", "slow", "signer", "registry", "mailbox", "relay", "gateway"]
    assert made == [*services, "operator-admin", "job-spark"]
    ca = (mesh.certificates("shield") / "ca.pem").read_bytes()
    assert await prepare(mesh, settings, clock=clock) == []
    clock.advance(seconds=settings.mesh_ttl_s * 3 / 4)
    assert await prepare(mesh, settings, clock=clock) == made
    assert (mesh.certificates("shield") / "ca.pem").read_bytes() == ca
    for secret in (settings.sealing_key_path(mesh), settings.store_path(mesh)):
        assert secret.stat().st_mode & 0o077 == 0


async def test_lost_sealing_key_is_not_papered_over(tmp_path: Path) -> None:
    clock, mesh, settings = ManualClock(time.time_ns()), MeshSettings(state_dir=tmp_path), SignerSettings()
    await prepare(mesh, settings, clock=clock)
    settings.sealing_key_path(mesh).unlink()
    with pytest.raises(StateError) as refusal:
        await prepare(mesh, settings, clock=clock)
    assert refusal.value.reason == "no-sealing-key"


async def test_preparing_under_a_running_signer_is_refused(control: Control) -> None:
    with pytest.raises(StateError) as refusal:
        await prepare(control.mesh, control.signer_settings, clock=control.clock)
    assert refusal.value.reason == "store-locked"


async def test_no_secret_reaches_logs_or_errors(control: Control) -> None:
    with structlog.testing.capture_logs() as logs:
        await create(control)
        await rotate(control)
        await control.certify(BILLING, "billing")
        texts = []
        for attempt in (rotate(control), changes(control, caller="fast"), create(control, "nonsense")):
            with pytest.raises(SnavioError) as refusal:
                await attempt
            texts += [repr(refusal.value), str(refusal.value)]
    assert logs
    _assert_absent(await _secrets(control), "\n".join([*texts, *map(repr, logs)]))


async def test_process_logs_no_secret_and_stops_cleanly(tmp_path: Path) -> None:
    config_file = tmp_path / "snavio.toml"
    config_file.write_text(f'[mesh]\nstate_dir = "{tmp_path}"\nsigner = "127.0.0.1:0"\n')
    command = [sys.executable, "-m", "services.signer"]
    environment = {**os.environ, "SNAVIO_FOLLOW_PARENT": str(os.getpid())}
    made = subprocess.run(
        [*command, "init", "--config", str(config_file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
    )
    assert made.returncode == 0, made.stderr
    process = subprocess.Popen(
        [*command, "--config", str(config_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        ready, name, port = process.stdout.readline().split()
        assert (ready, name) == ("ready", "signer")
        mesh = MeshSettings(state_dir=tmp_path, signer=f"127.0.0.1:{port}")
        control = Control(mesh, ManualClock(time.time_ns()), SignerSettings(), None)  # type: ignore[arg-type]
        await create(control)
        await rotate(control)
        await control.certify(BILLING, "billing")
        secrets = await _secrets(control)
        await control.close()
    finally:
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "keyset rotated" in err
    _assert_absent(
        [*secrets, (tmp_path / "signer" / "sealing.key").read_bytes()], made.stdout + made.stderr + out + err
    )


async def _secrets(control: Control) -> list[bytes]:
    page = await changes(control)
    secrets = [key.secret for keyset in page.keyset for key in keyset.version]
    assert secrets
    return secrets


def _assert_absent(secrets: list[bytes], text: str) -> None:
    for secret in secrets:
        for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1], str(list(secret))):
            assert form not in text
