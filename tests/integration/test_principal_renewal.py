"""A principal renews its certificate with itself, and revoking one of the chain revokes its successors."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.domain.directory import Principal, Tenant
from snavio.errors import BadRequest, SnavioError, Unauthenticated
from snavio.rpc.renewal import DUE, Leaf
from snavio.sdk.certificate import ServiceCertificate
from snavio.sdk.principal import principal_renewal, renew_now
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from tests.support.acme import apply
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import assume, newcomer, principals, spiffe, token_for
from tests.support.neighbours import eventually

CI = spiffe("tenant/acme/principal/ci")


async def furnish(control: Control) -> None:
    await newcomer(control, await token_for(control))


def leaf(control: Control, folder: str = "ci") -> Leaf:
    return Leaf.in_folder(control.mesh.certificates(folder))


async def renew(control: Control, folder: str = "ci") -> Leaf:
    return await renew_now(
        control.mesh.certificates(folder),
        signer=control.mesh.signer,
        clock=control.clock,
        trust_domain=control.mesh.trust_domain,
    )


async def test_a_principal_renews_itself_when_two_thirds_of_its_life_are_over(control: Control) -> None:
    renewal = principal_renewal(
        control.mesh.certificates("ci"),
        signer=control.mesh.signer,
        clock=control.clock,
        trust_domain=control.mesh.trust_domain,
    )
    first = leaf(control)
    assert not await renewal.renew_if_due()
    # The server's certificates and ours end by this clock; TLS looks at the machine's, which stands still.
    control.clock.advance(seconds=control.signer_settings.principal_ttl_s * DUE)
    assert await renewal.renew_if_due()
    second = leaf(control)
    assert (second.spiffe_id, second.serial != first.serial) == (CI, True)
    assert second.not_after_ns > first.not_after_ns


async def test_a_principal_renews_nobody_else(control: Control) -> None:
    for path in ("tenant/acme/principal/other", "tenant/acme/service/billing", "operator/eve", "mesh/shield"):
        with pytest.raises(SnavioError) as refusal:
            await control.certify(path, "stolen", by="ci")
        assert refusal.value.reason == "not-your-identity"


async def test_revoking_a_principals_certificate_ends_what_was_renewed_and_assumed_from_it(
    control: Control,
) -> None:
    first = leaf(control)
    await control.certify("tenant/acme/principal/ci", "thief", by="ci")
    await control.certify("tenant/acme/principal/ci", "again", by="thief")
    await principals(control, "acme/billing", "ci")
    await assume(control, "again", "acme/billing", folder="billing")
    request = sig.RevokeCertificateRequest(serial=first.serial, reason="stolen laptop")
    answer = await control.sign(ADMIN, "RevokeCertificate", request, sig.RevokeCertificateResponse)
    assert set(answer.serial) == {leaf(control, name).serial for name in ("ci", "thief", "again", "billing")}
    for folder in ("ci", "thief", "again"):
        with pytest.raises(Unauthenticated):
            await renew(control, folder)


async def test_a_barred_principal_is_not_renewed(control: Control) -> None:
    request = sig.RevokeIdentityRequest(spiffe_id=CI, reason="left")
    await control.sign(ADMIN, "RevokeIdentity", request, sig.RevokeIdentityResponse)
    with pytest.raises(Unauthenticated):
        await renew(control)


async def test_what_has_ended_takes_a_token_and_says_so(control: Control) -> None:
    before = leaf(control)
    control.clock.advance(seconds=control.signer_settings.principal_ttl_s)
    with pytest.raises(Unauthenticated) as refusal:
        await renew(control)
    assert refusal.value.reason == "certificate-expired"
    assert "token" in str(refusal.value)
    assert leaf(control) == before


async def test_only_principals_are_renewed_that_way(control: Control) -> None:
    with pytest.raises(BadRequest) as refusal:
        await renew(control, "fast")
    assert refusal.value.reason == "not-a-principal"


async def test_the_sdk_renews_the_principal_of_a_service_too(control: Control) -> None:
    await principals(control, "acme/billing", "ci")
    first = leaf(control)
    control.clock.advance(seconds=control.signer_settings.principal_ttl_s * DUE)
    certificate = ServiceCertificate(
        control.mesh.certificates("billing"),
        signer=control.mesh.signer,
        clock=control.clock,
        trust_domain=control.mesh.trust_domain,
        source="acme/billing",
        principal=control.mesh.certificates("ci"),
    )
    await certificate.start(within_s=5.0)
    try:
        await eventually(lambda: leaf(control).serial != first.serial)
    finally:
        await certificate.stop()


async def test_a_principal_that_its_tenant_removes_loses_its_certificates(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as running:
        applied = await apply(running, Tenant("acme"), Principal("acme", "ci"))
        (born,) = applied.enrolment
        await newcomer(running, born.token)
        await control_renews(running)
        await apply(running, deleted=[Principal("acme", "ci")])
        with pytest.raises(Unauthenticated):
            await renew(running)


async def control_renews(control: Control) -> None:
    assert (await renew(control)).spiffe_id == CI


async def test_registry_ends_principals_and_nobody_else(control: Control) -> None:
    for path in ("operator/admin", "tenant/acme/service/billing", "mesh/shield"):
        request = sig.RevokeIdentityRequest(spiffe_id=spiffe(path), reason="no")
        with pytest.raises(SnavioError) as refusal:
            await control.sign("registry", "RevokeIdentity", request, sig.RevokeIdentityResponse)
        assert refusal.value.reason == "not-your-identity"


async def test_a_tenant_that_a_batch_makes_comes_with_a_token_once(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as running:
        tried = await apply(running, Tenant("acme"), dry_run=True)
        assert not tried.enrolment
        made = await apply(running, Tenant("acme"), Tenant("rival"))
        assert [born.tenant for born in made.enrolment] == ["acme", "rival"]
        assert all(born.expires_unix_ns for born in made.enrolment)
        again = await apply(running, Tenant("acme"), Tenant("rival"))
        assert not again.enrolment
        enrolled = await newcomer(running, made.enrolment[0].token, name="owner")
        assert enrolled.identity.spiffe_id == spiffe("tenant/acme/principal/owner")


async def test_a_tenant_is_made_without_a_token_when_signer_is_away(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as running:
        await running.stop_signer()
        made = await apply(running, Tenant("acme"))
        assert [(born.tenant, born.token) for born in made.enrolment] == [("acme", "")]
        assert isinstance(made, reg.ApplyResponse)
