"""The right to act as a service, its duration, and the certificates after it was withdrawn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509

from services.signer.settings import SignerSettings
from snavio.adapters.embedded.sqlite_certificates import SqliteCertificateLedger
from snavio.errors import BadRequest, NotAllowed, SnavioError, Unauthenticated
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import (
    assume,
    bad_requests,
    newcomer,
    principals,
    request_with,
    spiffe,
    token_for,
)

SOURCE = "acme/billing"
BILLING = spiffe("tenant/acme/service/billing")
CI = spiffe("tenant/acme/principal/ci")


async def furnish(control: Control) -> None:
    """Signer, with a service `acme/billing` that the principal `ci` may act as."""
    await control.certify("tenant/acme/principal/ci", "ci")
    await control.certify("tenant/acme/principal/other", "other")
    await control.certify("tenant/rival/principal/ci", "rival")
    await control.sign(ADMIN, "CreateKeyset", sig.CreateKeysetRequest(source=SOURCE), sig.KeysetStatus)
    await principals(control, SOURCE, "ci")


async def works(control: Control, folder: str) -> bool:
    """True if a service's certificate is still accepted."""
    try:
        await control.sign(folder, "TenantConfig", sig.TenantConfigRequest(), sig.TenantConfigResponse)
    except Unauthenticated as error:
        assert error.reason == "certificate-revoked"
        return False
    return True


async def refusal(attempt: object) -> str:
    with pytest.raises(NotAllowed) as refused:
        await attempt  # type: ignore[misc]
    return refused.value.reason


async def revoke(control: Control, serial: str) -> list[str]:
    request = sig.RevokeCertificateRequest(serial=serial, reason="test")
    answer = await control.sign(ADMIN, "RevokeCertificate", request, sig.RevokeCertificateResponse)
    return list(answer.serial)


async def revoke_identity(control: Control, spiffe_id: str) -> set[str]:
    request = sig.RevokeIdentityRequest(spiffe_id=spiffe_id, reason="test")
    answer = await control.sign(ADMIN, "RevokeIdentity", request, sig.RevokeIdentityResponse)
    return set(answer.serial)


async def listed(
    control: Control, spiffe_id: str = "", *, after_serial: str = "", limit: int = 0
) -> list[sig.CertificateRecord]:
    request = sig.ListCertificatesRequest(spiffe_id=spiffe_id, after_serial=after_serial, limit=limit)
    answer = await control.sign(ADMIN, "ListCertificates", request, sig.ListCertificatesResponse)
    return list(answer.certificate)


async def test_named_principal_acts_as_the_service_for_an_hour_at_most(control: Control) -> None:
    now = control.clock.unix_ns() // 10**9
    for asked, granted in ((0, 3600), (2**32 - 1, 3600), (60, 60)):
        issued = await assume(control, "ci", SOURCE, ttl_seconds=asked, folder="billing")
        assert issued.not_after_unix_ns // 10**9 - now == granted
    leaf = x509.load_pem_x509_certificate(issued.certificate_pem.encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(BILLING)]
    assert await works(control, "billing")


async def test_nobody_else_acts_as_the_service(control: Control) -> None:
    await assume(control, "ci", SOURCE, folder="billing")
    await control.certify("tenant/acme/service/bot", "bot")
    await control.certify("tenant/rival/service/billing", "namesake")
    for caller in ("other", "rival", "bot", "namesake"):
        assert await refusal(assume(control, caller, SOURCE)) == "not-delegated"
    for caller in (ADMIN, "shield", "registry"):
        assert await refusal(assume(control, caller, SOURCE)) == "not-allowed"


async def test_unregistered_suspended_and_removed_services_are_nobodys(control: Control) -> None:
    assert await refusal(assume(control, "ci", "acme/nothing")) == "unregistered-service"
    await assume(control, "ci", SOURCE, folder="billing")
    await principals(control, SOURCE, "ci", suspended=True)
    for caller in ("ci", "billing"):
        assert await refusal(assume(control, caller, SOURCE)) == "suspended"
    await principals(control, SOURCE, "ci")
    await assume(control, "ci", SOURCE)
    await principals(control, SOURCE, removed=True)
    assert await refusal(assume(control, "ci", SOURCE)) == "unregistered-service"


async def test_service_renews_itself_as_long_as_its_principal_is_named(control: Control) -> None:
    await assume(control, "ci", SOURCE, folder="billing")
    await assume(control, "billing", SOURCE, folder="renewed")
    await principals(control, SOURCE, "ci", "other")
    await assume(control, "renewed", SOURCE, folder="again")
    await assume(control, "other", SOURCE, folder="others")
    revoked = await principals(control, SOURCE, "other")
    assert len(revoked) == 3
    for folder in ("billing", "renewed", "again"):
        assert not await works(control, folder)
    assert await works(control, "others")
    await assume(control, "others", SOURCE)


async def test_renewal_by_issue_certificate_asks_for_the_principal_too(control: Control) -> None:
    await assume(control, "ci", SOURCE, folder="billing")
    await control.certify("tenant/acme/service/billing", "renewed", by="billing")
    await principals(control, SOURCE, "ci", suspended=True)
    with pytest.raises(NotAllowed) as refused:
        await control.certify("tenant/acme/service/billing", "again", by="renewed")
    assert refused.value.reason == "suspended"


async def test_service_whose_certificate_the_ledger_does_not_know_renews_nothing(control: Control) -> None:
    """As after a restored backup: it is unknown that a principal has to be named for it."""
    await assume(control, "ci", SOURCE, folder="billing")
    assert control.signer is not None
    ledger = cast("SqliteCertificateLedger", control.signer.certificates.ledger)
    await ledger._file.transaction(
        lambda connection: connection.execute("DELETE FROM issued WHERE spiffe_id = ?", (BILLING,)).fetchall()
    )
    await principals(control, SOURCE, "other")
    assert await refusal(assume(control, "billing", SOURCE)) == "not-delegated"
    assert (
        await refusal(control.certify("tenant/acme/service/billing", "again", by="billing"))
        == "not-delegated"
    )


async def test_service_that_an_operator_certified_renews_itself_unless_it_is_suspended(
    control: Control,
) -> None:
    await control.certify("tenant/acme/service/billing", "billing")
    await principals(control, SOURCE)
    await assume(control, "billing", SOURCE, folder="renewed")
    await control.certify("tenant/acme/service/billing", "again", by="billing")
    assert await works(control, "renewed")
    await principals(control, SOURCE, suspended=True)
    with pytest.raises(NotAllowed) as refused:
        await control.certify("tenant/acme/service/billing", "more", by="billing")
    assert refused.value.reason == "suspended"


async def test_there_is_no_way_around_to_a_longer_life(tmp_path: Path) -> None:
    settings = SignerSettings(service_ttl_s=86_400)
    async with control_plane(tmp_path, signer_settings=settings) as control:
        await control.certify("tenant/acme/principal/ci", "ci")
        await principals(control, SOURCE, "ci")
        await assume(control, "ci", SOURCE, folder="billing")
        await control.certify("tenant/acme/service/billing", "renewed", by="billing")
        for record in await listed(control, BILLING):
            assert record.not_after_unix_ns - control.clock.unix_ns() <= 3600 * 10**9


async def test_bad_certificate_requests_are_refused(control: Control) -> None:
    for what, csr_pem in bad_requests().items():
        with pytest.raises(BadRequest) as refused:
            await assume(control, "ci", SOURCE, csr_pem=csr_pem)
        assert refused.value.reason == "bad-csr", what
    for name in ("tenant/rival/service/billing", "tenant/acme/service/bot", "operator/admin"):
        with pytest.raises(BadRequest) as refused:
            await assume(control, "ci", SOURCE, csr_pem=request_with(None, spiffe(name)))
        assert refused.value.reason == "csr-names-another"
    for source in ("", "acme", "acme/billing/x", "ACME/billing", "x" * 10_000, "acme/\n"):
        with pytest.raises(BadRequest, match="source: must be"):
            await assume(control, "ci", source)


async def test_bad_principals_are_refused(control: Control) -> None:
    for names in (["A"], ["x" * 64], ["a/b"], [""], [f"p{n}" for n in range(65)]):
        with pytest.raises(BadRequest, match="principal: must be"):
            await principals(control, SOURCE, *names)
    await assume(control, "ci", SOURCE)


async def test_registry_hands_registrations_and_suspensions_on(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as control:
        tenant = reg.CreateTenantRequest(tenant=reg.Tenant(tenant="acme"), principal="ci")
        made = await control.ask(ADMIN, "CreateTenant", tenant, reg.CreateTenantResponse)
        await newcomer(control, made.enrolment_token)
        service = reg.Service(tenant="acme", service="billing", principal=["ci"])
        # The whole way without an operator: the principal registers, and acts.
        await control.write("ci", "RegisterService", reg.RegisterServiceRequest(service=service))
        await assume(control, "ci", SOURCE, folder="billing")
        assert await works(control, "billing")
        suspension = reg.Suspension(source=SOURCE, reason="test")
        for suspended in (True, False):
            await control.write(
                ADMIN,
                "SetSuspension",
                reg.SetSuspensionRequest(suspension=suspension, suspended=suspended),
            )
            if suspended:
                assert await refusal(assume(control, "billing", SOURCE)) == "suspended"
                # Registering again does not lift it.
                await control.write("ci", "RegisterService", reg.RegisterServiceRequest(service=service))
                assert await refusal(assume(control, "ci", SOURCE)) == "suspended"
        await assume(control, "ci", SOURCE)
        bare = reg.Service(tenant="acme", service="billing")
        # A registration that is refused ends nothing at Signer.
        for options in (reg.WriteOptions(expected_version=0), reg.WriteOptions(reason="\n")):
            with pytest.raises(SnavioError):
                await control.write(
                    "ci", "RegisterService", reg.RegisterServiceRequest(service=bare, options=options)
                )
        assert await works(control, "billing")
        await control.write("ci", "RegisterService", reg.RegisterServiceRequest(service=bare))
        assert not await works(control, "billing")
        assert await refusal(assume(control, "ci", SOURCE)) == "not-delegated"


# What is revoked


async def test_revoking_a_certificate_revokes_what_a_thief_renewed_from_it(control: Control) -> None:
    stolen = await assume(control, "ci", SOURCE, folder="billing")
    first = await assume(control, "billing", SOURCE, folder="thief")
    second = await assume(control, "thief", SOURCE, folder="thief-again")
    bystander = await assume(control, "ci", SOURCE, folder="bystander")
    assert set(await revoke(control, stolen.serial)) == {stolen.serial, first.serial, second.serial}
    for folder in ("billing", "thief", "thief-again"):
        assert not await works(control, folder)
    assert await works(control, "bystander")
    with pytest.raises(Unauthenticated):
        await assume(control, "thief-again", SOURCE)
    states = {record.serial: record.revoked for record in await listed(control, BILLING)}
    assert states[second.serial]
    assert not states[bystander.serial]


async def test_renewal_during_the_revocation_is_revoked_or_refused(control: Control) -> None:
    stolen = await assume(control, "ci", SOURCE, folder="billing")
    outcomes = await asyncio.gather(
        *(assume(control, "billing", SOURCE, folder=f"thief-{n}") for n in range(4)),
        revoke(control, stolen.serial),
        *(assume(control, "billing", SOURCE, folder=f"thief-{n}") for n in range(4, 8)),
        return_exceptions=True,
    )
    assert all(isinstance(o, Unauthenticated) for o in outcomes if isinstance(o, BaseException))
    issued = {o.serial for o in outcomes if isinstance(o, sig.IssueCertificateResponse)}
    states = {record.serial: record.revoked for record in await listed(control, BILLING)}
    assert all(states[serial] for serial in issued)


async def test_operators_revoked_certificate_takes_no_tenant_down(control: Control) -> None:
    await control.certify("operator/night", "night")
    await control.certify("tenant/acme/service/billing", "billing", by="night")
    night = (await listed(control, spiffe("operator/night")))[0].serial
    assert await revoke(control, night) == [night]
    assert await works(control, "billing")


async def test_revoked_identity_loses_all_and_gets_nothing_until_restored(control: Control) -> None:
    one = await assume(control, "ci", SOURCE, folder="billing")
    two = await assume(control, "billing", SOURCE, folder="renewed")
    others = await assume(control, "ci", SOURCE, folder="others")
    assert {one.serial, two.serial, others.serial} == await revoke_identity(control, BILLING)
    assert not await works(control, "renewed")
    assert await refusal(assume(control, "ci", SOURCE)) == "identity-barred"
    with pytest.raises(NotAllowed) as refused:
        await control.certify("tenant/acme/service/billing", "by-operator")
    assert refused.value.reason == "identity-barred"
    assert all(record.barred for record in await listed(control, BILLING))
    await control.stop_signer()
    await control.start_signer()
    assert await refusal(assume(control, "ci", SOURCE)) == "identity-barred"
    request = sig.RestoreIdentityRequest(spiffe_id=BILLING)
    for changed in (True, False):
        answer = await control.sign(ADMIN, "RestoreIdentity", request, sig.RestoreIdentityResponse)
        assert answer.changed is changed
    await assume(control, "ci", SOURCE, folder="afresh")
    assert await works(control, "afresh")
    assert not await works(control, "renewed")


async def test_principal_whose_own_certificate_has_ended_takes_along_what_it_acted_as(
    control: Control,
) -> None:
    await control.certify("tenant/acme/principal/brief", "brief", ttl_s=60)
    await principals(control, SOURCE, "brief")
    issued = await assume(control, "brief", SOURCE, folder="billing")
    control.clock.advance(seconds=100)
    assert await revoke_identity(control, spiffe("tenant/acme/principal/brief")) == {issued.serial}
    assert not await works(control, "billing")


async def test_revoked_principal_takes_along_what_it_acted_as(control: Control) -> None:
    await assume(control, "ci", SOURCE, folder="billing")
    await assume(control, "billing", SOURCE, folder="renewed")
    assert len(await revoke_identity(control, CI)) == 3
    assert not await works(control, "renewed")
    with pytest.raises(NotAllowed) as refused:
        await newcomer(control, await token_for(control, principal="ci"), folder="new")
    assert refused.value.reason == "identity-barred"


async def test_identity_that_is_none_cannot_be_revoked(control: Control) -> None:
    for name in ("", "spiffe://elsewhere/operator/admin", "x" * 10_000, "operator/admin"):
        with pytest.raises(BadRequest):
            await revoke_identity(control, name)
        request = sig.RestoreIdentityRequest(spiffe_id=name)
        with pytest.raises(BadRequest):
            await control.sign(ADMIN, "RestoreIdentity", request, sig.RestoreIdentityResponse)


async def test_certificates_are_listed_with_what_they_came_from_in_pages(control: Control) -> None:
    one = await assume(control, "ci", SOURCE, folder="billing")
    two = await assume(control, "billing", SOURCE)
    first, second = await listed(control, BILLING)
    ci = (await listed(control, CI))[0].serial
    assert (first.serial, first.issued_to, first.parent_serial) == (one.serial, CI, ci)
    assert (second.serial, second.issued_to, second.parent_serial) == (two.serial, BILLING, one.serial)
    everything = [record.serial for record in await listed(control)]
    seen: list[str] = []
    while page := await listed(control, limit=3, after_serial=seen[-1] if seen else ""):
        assert len(page) <= 3
        seen += [record.serial for record in page]
    assert seen == everything
    # What `init` made is there too.
    assert {spiffe("mesh/shield"), spiffe("operator/admin")} <= {r.spiffe_id for r in await listed(control)}
    control.clock.advance(seconds=3601)
    assert await listed(control, BILLING) == []


async def test_refusals_name_what_is_wrong_in_one_sentence(control: Control) -> None:
    for attempt in (assume(control, "other", SOURCE), assume(control, "ci", "acme/nothing")):
        with pytest.raises(SnavioError) as refused:
            await attempt
        assert str(refused.value).count(".") <= 2
        assert "\n" not in str(refused.value)
