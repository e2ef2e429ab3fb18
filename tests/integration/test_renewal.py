"""Certificates are renewed in time, by services and by the SDK; and failures of it."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
import structlog

from snavio.clock import ManualClock
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, IntegrityError, SnavioError, StateError, Unavailable
from snavio.pki import certificate_pem, issue_leaf, make_key, public_key_of_csr
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import DUE, JITTER, Certified, Leaf, Renewal, mesh_renewal
from snavio.sdk.certificate import ServiceCertificate
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import principals
from tests.support.pki import HOUR_S, Authority

SHIELD = Identity("snavio.local", IdentityKind.MESH, "shield")
FAST = Identity("snavio.local", IdentityKind.MESH, "fast")


class Ca:
    """Certifies as configured, or fails."""

    def __init__(self, authority: Authority, clock: ManualClock) -> None:
        self.authority = authority
        self.clock = clock
        self.identity = SHIELD
        self.failure: SnavioError | None = None
        self.wrong_key = False
        self.asked = 0

    async def __call__(self, csr_pem: bytes) -> Certified:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        key = make_key().public_key() if self.wrong_key else public_key_of_csr(csr_pem)
        leaf = issue_leaf(
            self.authority.ca,
            public_key=key,
            identity=self.identity,
            ttl_s=HOUR_S,
            now_unix_ns=self.clock.unix_ns(),
        )
        return Certified(certificate_pem(leaf), self.authority.ca.certificate_pem)


@pytest.fixture
def ca(tmp_path: Path) -> Ca:
    return Ca(Authority(tmp_path), ManualClock(time.time_ns()))


def folder_of(ca: Ca) -> Path:
    """A folder with a certificate of an hour, whose life begins now on the clock."""
    folder = ca.authority.leaf(SHIELD, ttl_s=HOUR_S).certificate.parent
    ca.clock = ManualClock(Leaf.in_folder(folder).issued_ns)
    return folder


async def test_certificate_is_renewed_when_two_thirds_of_its_life_are_over(ca: Ca) -> None:
    folder = folder_of(ca)
    renewal = Renewal(folder, ca, clock=ca.clock)
    first = Leaf.in_folder(folder)
    ca.clock.advance(seconds=HOUR_S * (DUE - JITTER) - 1)
    assert not await renewal.renew_if_due()
    assert ca.asked == 0
    ca.clock.advance(seconds=HOUR_S * JITTER + 1)
    assert await renewal.renew_if_due()
    second = Leaf.in_folder(folder)
    assert second.serial != first.serial
    assert second.not_after_ns > first.not_after_ns
    assert not await renewal.renew_if_due()
    CertificateFiles.in_folder(folder).read()


def test_jitter_only_makes_it_earlier(ca: Ca) -> None:
    shares = []
    for seed in range(200):
        renewal = Renewal(Path("nowhere"), ca, clock=ca.clock, jitter=random.Random(seed))
        shares.append(renewal._share)
    assert DUE - JITTER <= min(shares) < max(shares) <= DUE


async def test_what_another_process_has_renewed_is_not_renewed_again(ca: Ca) -> None:
    folder = folder_of(ca)
    one, two = Renewal(folder, ca, clock=ca.clock), Renewal(folder, ca, clock=ca.clock)
    ca.clock.advance(seconds=HOUR_S * DUE)
    assert await one.renew_if_due()
    assert not await two.renew_if_due()


@pytest.mark.parametrize("wrong", ["identity", "key", "ca"])
async def test_answer_that_is_not_ours_changes_nothing(ca: Ca, tmp_path: Path, wrong: str) -> None:
    folder = folder_of(ca)
    before = CertificateFiles.in_folder(folder).read()
    ca.clock.advance(seconds=HOUR_S * DUE)
    if wrong == "identity":
        ca.identity = FAST
    ca.wrong_key = wrong == "key"

    async def certify(csr_pem: bytes) -> Certified:
        certified = await ca(csr_pem)
        other = Authority(tmp_path / "other").ca.certificate_pem
        return Certified(certified.certificate_pem, other) if wrong == "ca" else certified

    with pytest.raises(IntegrityError):
        await Renewal(folder, certify, clock=ca.clock).renew_if_due()
    assert CertificateFiles.in_folder(folder).read() == before


async def test_failed_renewal_is_said_and_tried_again(ca: Ca) -> None:
    folder = folder_of(ca)
    ca.clock.advance(seconds=HOUR_S * DUE)
    ca.failure = Unavailable("Signer is away.")
    renewal = Renewal(folder, ca, clock=ca.clock)
    with structlog.testing.capture_logs() as logs:
        renewal.start()
        async with asyncio.timeout(20):
            while ca.asked < 2:
                await asyncio.sleep(0.01)
            ca.failure = None
            serial = Leaf.in_folder(folder).serial
            while not any(entry["event"] == "certificate renewed" for entry in logs):
                await asyncio.sleep(0.01)
        await renewal.stop()
    assert "certificate not renewed" in {entry["event"] for entry in logs}
    assert Leaf.in_folder(folder).serial != serial
    assert all("PRIVATE" not in repr(entry) for entry in logs)


async def test_gauge_counts_down_and_says_when_it_is_over(ca: Ca) -> None:
    renewal = Renewal(folder_of(ca), ca, clock=ca.clock)
    assert renewal.gauges() == {"expires_in_s": HOUR_S, "lifetime_s": HOUR_S}
    ca.clock.advance(seconds=HOUR_S + 60)
    assert renewal.gauges() == {"expires_in_s": -60.0, "lifetime_s": HOUR_S}
    assert Renewal(Path("nowhere"), ca, clock=ca.clock).gauges() == {}


async def test_mesh_service_renews_itself_by_signer(control: Control) -> None:
    folder = control.mesh.certificates("fast")
    channel = MeshChannel(control.mesh.signer, files=CertificateFiles.in_folder(folder), service="signer")
    renewal = mesh_renewal(folder, channel, clock=control.clock)
    try:
        assert not await renewal.renew_if_due()
        first = Leaf.in_folder(folder)
        control.clock.advance(seconds=control.signer_settings.mesh_ttl_s * DUE)
        assert await renewal.renew_if_due()
        assert Leaf.in_folder(folder).serial != first.serial
        assert Leaf.in_folder(folder).spiffe_id == FAST.spiffe_id
    finally:
        await channel.close()


async def test_signer_renews_its_own_in_process_before_it_serves(control: Control) -> None:
    folder = control.mesh.certificates("signer")
    before = Leaf.in_folder(folder)
    await control.stop_signer()
    # Even one that ended while no process ran.
    control.clock.advance(seconds=control.signer_settings.mesh_ttl_s + 1)
    await control.start_signer()
    after = Leaf.in_folder(folder)
    assert after.serial != before.serial
    assert after.spiffe_id == before.spiffe_id


async def test_introspection_shows_when_the_certificate_ends(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as control:
        for address, service in ((control.mesh.signer, "signer"), (control.mesh.registry, "registry")):
            files = CertificateFiles.in_folder(control.mesh.certificates(ADMIN))
            channel = MeshChannel(address, files=files, service=service)
            status = await channel.call(
                "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=5.0
            )
            await channel.close()
            [left_s] = [gauge.value for gauge in status.gauge if gauge.name == "certificate.expires_in_s"]
            assert 0 < left_s <= control.signer_settings.mesh_ttl_s


# The SDK


def service_certificate(control: Control, folder: str, **options: object) -> ServiceCertificate:
    fields = {
        "signer": control.mesh.signer,
        "clock": control.clock,
        "trust_domain": control.mesh.trust_domain,
        **options,
    }
    return ServiceCertificate(control.mesh.certificates(folder), **fields)  # type: ignore[arg-type]


async def test_sdk_gets_its_first_certificate_through_a_principal(control: Control) -> None:
    await control.certify("tenant/acme/principal/ci", "ci")
    await principals(control, "acme/billing", "ci")
    certificate = service_certificate(
        control, "billing", source="acme/billing", principal=control.mesh.certificates("ci")
    )
    await certificate.start(within_s=5.0)
    await certificate.stop()
    first = Leaf.in_folder(control.mesh.certificates("billing"))
    assert first.spiffe_id == "spiffe://snavio.local/tenant/acme/service/billing"
    # The next time the folder says whose it is, and nothing is due.
    again = service_certificate(control, "billing", principal=control.mesh.certificates("ci"))
    await again.start(within_s=5.0)
    await again.stop()
    assert Leaf.in_folder(control.mesh.certificates("billing")) == first


async def test_sdk_says_what_is_missing(control: Control) -> None:
    await control.certify("tenant/acme/principal/ci", "ci")
    await control.certify("tenant/acme/service/bot", "bot")
    ci = control.mesh.certificates("ci")
    with pytest.raises(BadRequest) as refusal:
        await service_certificate(control, "billing", principal=ci).start(within_s=5.0)
    assert refusal.value.reason == "no-source"
    with pytest.raises(BadRequest) as refusal:
        await service_certificate(control, "bot", principal=ci, source="acme/billing").start(within_s=5.0)
    assert refusal.value.reason == "wrong-source"
    with pytest.raises(SnavioError) as refused:
        await service_certificate(control, "billing", principal=ci, source="acme/billing").start(within_s=5.0)
    assert refused.value.reason == "unregistered-service"
    with pytest.raises(BadRequest):
        service_certificate(control, "billing", source="acme")
    with pytest.raises(StateError):
        nobody = control.mesh.certificates("nobody")
        await service_certificate(control, "x", principal=nobody, source="acme/x").start(within_s=5.0)
