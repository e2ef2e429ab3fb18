"""An identity or tenant that renews without end reaches its own bounds and no other's; a revocation always works."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.signer.settings import SignerSettings
from snavio.errors import Saturated, Unauthenticated
from snavio.pki import make_key_and_csr
from snavio.v1 import introspection_pb2 as status
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import assume, principals, spiffe

BILLING = spiffe("tenant/acme/service/billing")
# What once could not be revoked any more.
RENEWALS = 50_001 if os.environ.get("SNAVIO_FULL") == "1" else 30


@asynccontextmanager
async def bounded(path: Path, **bounds: float) -> AsyncIterator[Control]:
    """Signer with small bounds, and a certificate of a service of `acme` and one of `rival`."""
    async with control_plane(path, signer_settings=SignerSettings.model_validate(bounds)) as control:
        await control.certify("tenant/acme/service/billing", "thief")
        await control.certify("tenant/rival/service/billing", "rival")
        yield control


async def renew(control: Control, folder: str, tenant: str = "acme") -> str:
    return await control.certify(f"tenant/{tenant}/service/billing", folder, by=folder)


async def refused(control: Control, folder: str = "thief") -> Saturated:
    with pytest.raises(Saturated) as refusal:
        for _ in range(100):
            await renew(control, folder)
    return refusal.value


async def revoke(control: Control, serial: str) -> sig.RevokeCertificateResponse:
    request = sig.RevokeCertificateRequest(serial=serial, reason="stolen")
    answer: sig.RevokeCertificateResponse = await control.sign(
        ADMIN, "RevokeCertificate", request, sig.RevokeCertificateResponse
    )
    return answer


async def revoke_identity(control: Control, spiffe_id: str) -> None:
    request = sig.RevokeIdentityRequest(spiffe_id=spiffe_id, reason="stolen")
    await control.sign(ADMIN, "RevokeIdentity", request, sig.RevokeIdentityResponse)


async def restore(control: Control, spiffe_id: str) -> None:
    request = sig.RestoreIdentityRequest(spiffe_id=spiffe_id)
    await control.sign(ADMIN, "RestoreIdentity", request, sig.RestoreIdentityResponse)


async def denylist(control: Control) -> list[str]:
    answer = await control.sign("fast", "Denylist", sig.DenylistRequest(), sig.DenylistResponse)
    return [entry.subject for entry in answer.revoked]


async def shares(control: Control) -> dict[str, status.ShareUse]:
    request = status.StatusRequest()
    channel_of = control._channels
    await denylist(control)
    channel = next(channel for (caller, _), channel in channel_of.items() if caller == "fast")
    answer = await channel.call(
        "/snavio.v1.Introspection/Status", request, status.StatusResponse, timeout_s=10.0
    )
    return {use.bound: use for use in answer.share}


@pytest.mark.timeout(1200)
async def test_chain_of_more_renewals_than_the_denylist_has_entries_is_one_entry(tmp_path: Path) -> None:
    async with bounded(
        tmp_path, max_revocations=10, certificates_per_identity=60_000, issue_burst=60_000
    ) as control:
        first = await renew(control, "thief")
        # One key for all: making them would cost more than everything else.
        request = sig.IssueCertificateRequest(csr_pem=make_key_and_csr()[1].decode(), spiffe_id=BILLING)
        for _ in range(RENEWALS):
            answer = await control.sign("thief", "IssueCertificate", request, sig.IssueCertificateResponse)
        last = answer.serial
        ended = await revoke(control, first)
        assert len(await denylist(control)) == 1
        assert len(ended.serial) == min(RENEWALS + 2, 1000)
        assert ended.more == (RENEWALS > 1000)
        for folder in ("thief",):
            with pytest.raises(Unauthenticated) as refusal:
                await renew(control, folder)
            assert refusal.value.reason == "certificate-revoked"
        # From whichever end it is named.
        assert (await revoke(control, last)).revoked[0].subject == ended.revoked[0].subject
        await renew(control, "rival", "rival")
        use = (await shares(control))["revocations"]
        assert (use.total, use.used) == (10, 1)


async def test_renewal_beyond_the_rate_is_refused_with_a_hint_and_another_tenant_renews(
    tmp_path: Path,
) -> None:
    async with bounded(tmp_path, issue_burst=5, issue_per_s=1.0) as control:
        refusal = await refused(control)
        assert refusal.reason == "renewal-rate"
        assert 0 < refusal.retry_after_ms <= 1000
        await renew(control, "rival", "rival")
        control.clock.advance(seconds=1)
        await renew(control, "thief")


async def test_tenant_with_many_identities_has_a_rate_too(tmp_path: Path) -> None:
    async with bounded(tmp_path, issue_burst=2, issue_per_s=1.0) as control:
        with pytest.raises(Saturated) as refusal:
            for number in range(9):
                await control.certify(f"tenant/acme/service/s{number}", "one")
        assert refusal.value.reason == "renewal-rate"
        await renew(control, "rival", "rival")


async def test_living_certificates_of_one_identity_are_bounded_and_revoked_ones_make_room(
    tmp_path: Path,
) -> None:
    async with bounded(tmp_path, certificates_per_identity=10) as control:
        refusal = await refused(control)
        assert refusal.reason == "tenant-share"
        assert refusal.retry_after_ms
        assert "10 of 10" in str(refusal)
        await control.certify("tenant/acme/service/bot", "bot")
        living = await control.sign(
            ADMIN,
            "ListCertificates",
            sig.ListCertificatesRequest(spiffe_id=BILLING),
            sig.ListCertificatesResponse,
        )
        await revoke(control, living.certificate[0].serial)
        await control.certify("tenant/acme/service/billing", "afresh")
        await renew(control, "afresh")


async def test_expired_certificates_make_room_before_their_day_is_over(tmp_path: Path) -> None:
    async with bounded(tmp_path, certificates_per_identity=10) as control:
        await refused(control)
        control.clock.advance(seconds=3700)
        await control.certify("tenant/acme/service/billing", "afresh")


async def test_one_tenant_that_has_its_share_stops_neither_another_nor_the_mesh(tmp_path: Path) -> None:
    async with bounded(tmp_path, max_certificates=100) as control:
        with pytest.raises(Saturated) as refusal:
            for number in range(100):
                await control.certify(f"tenant/acme/service/s{number}", "one")
        assert "acme has its share" in str(refusal.value)
        await renew(control, "rival", "rival")
        await control.certify("operator/night", "night")
        await control.certify("mesh/fast", "fast", by="fast")
        use = (await shares(control))["certificates"]
        assert {holder.tenant: holder.used for holder in use.holder}["acme"] == use.per_tenant == 25
        # It is counted anew at start.
        await control.stop_signer()
        await control.start_signer()
        with pytest.raises(Saturated):
            await control.certify("tenant/acme/service/more", "one")


async def test_hundreds_of_replicas_that_renew_for_a_day_meet_no_bound(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as control:
        await control.certify("tenant/acme/principal/ci", "ci")
        await principals(control, "acme/billing", "ci")
        for _ in range(300):
            await assume(control, "ci", "acme/billing")
        control.clock.advance(seconds=2400)
        for _ in range(300):
            await assume(control, "ci", "acme/billing")


# The order of issue


async def test_clock_set_back_leaves_no_certificate_out_and_refuses_none_that_is_new(tmp_path: Path) -> None:
    async with bounded(tmp_path) as control:
        control.clock._unix_ns -= 600 * 10**9
        await revoke_identity(control, BILLING)
        with pytest.raises(Unauthenticated):
            await renew(control, "thief")
        await restore(control, BILLING)
        for restart in (False, True):
            if restart:
                control.clock._unix_ns -= 600 * 10**9
                await control.stop_signer()
                await control.start_signer()
            await control.certify("tenant/acme/service/billing", "afresh")
            await renew(control, "afresh")
            with pytest.raises(Unauthenticated):
                await renew(control, "thief")


async def test_revoked_restored_and_issued_at_one_moment_are_told_apart(tmp_path: Path) -> None:
    async with bounded(tmp_path) as control:
        for turn in range(3):
            await revoke_identity(control, BILLING)
            await restore(control, BILLING)
            await control.certify("tenant/acme/service/billing", f"afresh-{turn}")
            await renew(control, f"afresh-{turn}")
            for folder in ("thief", *(f"afresh-{before}" for before in range(turn))):
                with pytest.raises(Unauthenticated):
                    await renew(control, folder)
        assert await denylist(control) == [BILLING]


async def test_service_had_through_a_principal_ends_with_it_by_one_entry_and_others_stay(
    tmp_path: Path,
) -> None:
    async with bounded(tmp_path) as control:
        for name in ("ci", "cd"):
            await control.certify(f"tenant/acme/principal/{name}", name)
        await principals(control, "acme/billing", "ci", "cd")
        for number in range(5):
            await assume(control, "ci", "acme/billing", folder=f"through-ci-{number}")
        await assume(control, "cd", "acme/billing", folder="through-cd")
        await revoke_identity(control, spiffe("tenant/acme/principal/ci"))
        assert await denylist(control) == [spiffe("tenant/acme/principal/ci")]
        for number in range(5):
            with pytest.raises(Unauthenticated):
                await assume(control, f"through-ci-{number}", "acme/billing")
        await assume(control, "through-cd", "acme/billing")
